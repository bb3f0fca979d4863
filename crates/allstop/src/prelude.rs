//! The names that most programs use: `use allstop::prelude::*`.

pub use allstop_agent::{
    Agent, AgentBuilder, AgentEvent, Answer, AnswerSchema, Deadlines, GuardrailStage,
    GuardrailVerdict, HookEvent, HookVerdict, Outcome, Run, RunError, RunFailure, guardrail, hook,
};
pub use allstop_core::turn::Budget;
pub use allstop_core::{CallId, Cause, CauseKind, Effect, Extent, Message, Receipt, StopReason};
pub use allstop_model as model;
pub use allstop_model::{Model, ModelError, ModelRequest, Reply, RequestSettings};
pub use allstop_scope::{RootOptions, Scope, StopRequest};
pub use allstop_session::{
    AgentSessions, FollowUp, MessageHandle, OnBackgroundEnd, Session, SessionBuilder, StopTarget,
    WAIT_DEFAULT,
};
pub use allstop_tools::{FnTool, Tool, ToolCx, ToolError, ToolOutput, blocking_tool, tool};
