//! The agent loop: model, tools, deadlines and a stop at any point.
//!
//! An [`Agent`] is what to do: a model, tools, settings, hooks, guardrails. [`Agent::start`] runs one or more prompts
//! as consecutive turns of one [`Run`], in a task that a scope owns: dropping the [`Run`] stops it with cause
//! `disconnect`, dropping a waiter of it stops nothing.
//!
//! A turn is a [`Draft`](allstop_core::turn::Draft) over an immutable conversation. Whatever ends it, its records go to
//! the [`History`] as one, and only a commit (or the policy `keep`) changes the conversation.
//!
//! What is where: `run` owns turns one after another; `turn` drives one, in `steps` (the loop), `model_call`, `calls`
//! (admission, then the calls of a step side by side) and `ending` (commit or stop); `foreign` runs what the embedding
//! program brought (hooks, guardrails, questions), so that it is covered by stops however it behaves; `subagent` is the
//! tool with which an agent starts agents of its own.

mod after_turn;
mod agent;
mod background;
mod controls;
mod error;
mod event;
mod foreign;
mod guardrail;
mod history;
mod hook;
mod life;
mod notes;
mod outcome;
mod parts;
mod prompt;
mod run;
mod settings;
mod subagent;
mod toolbox;
mod turn;

pub use after_turn::TurnInterrupted;
pub use agent::{Agent, AgentBuilder};
pub use background::Background;
pub use controls::{RunControls, SteeredMessage};
pub use error::{TurnError, TurnErrorKind};
pub use event::{AgentEvent, EventSink, UnfinishedCall};
pub use guardrail::{Guardrail, GuardrailVerdict, Stage};
pub use history::History;
pub use hook::{Hook, HookCx, HookEvent, HookVerdict};
pub use outcome::{Denial, RunOutcome, TurnOutcome};
pub use prompt::Prompt;
pub use run::{Run, RunRequest};
pub use settings::{Deadlines, Settings};
pub use subagent::{
    AGENT_TOOL, DEPTH_MAX_DEFAULT, RUNNING_MAX_DEFAULT, STEPS_MAX_DEFAULT, SubAgentBackground,
    SubAgentLimits, SubAgents,
};
