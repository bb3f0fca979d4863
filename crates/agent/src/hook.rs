//! Hooks: the embedding program's own code at named moments of a turn and of a session.

use std::fmt;
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_core::record::CallOutcome;
use allstop_core::{Receipt, SessionId, StopReason, ToolCall, TurnNumber};
use allstop_scope::Scope;
use futures::future::BoxFuture;

use crate::foreign::{self, Foreign};

/// A moment of a turn or of a session.
#[derive(Debug, Clone)]
pub enum HookEvent {
    /// Before the first model call.
    TurnStart {
        /// The user's words.
        input: Arc<str>,
    },
    /// Before a model call.
    ModelStart {
        /// The step.
        step: u32,
    },
    /// After a model call that gave an answer.
    ModelEnd {
        /// The step.
        step: u32,
        /// Its text.
        text: Arc<str>,
    },
    /// Before a tool call, after its permission.
    ToolStart {
        /// The call.
        call: ToolCall,
    },
    /// After a tool call.
    ToolEnd {
        /// The call.
        call: ToolCall,
        /// How it ended.
        outcome: CallOutcome,
        /// What the model is told.
        content: Arc<str>,
    },
    /// After the turn has its ending; its verdict changes nothing any more.
    TurnEnd {
        /// Why it ended.
        stop_reason: StopReason,
    },
    /// A session was opened; told once, before its first turn.
    SessionStart {
        /// Whether it had turns before.
        resumed: bool,
    },
    /// A session is closed: nothing of it runs any more.
    SessionEnd,
    /// A turn of a session was stopped; it has its ending.
    Stop {
        /// What stopped and what did not.
        receipt: Option<Arc<Receipt>>,
    },
    /// A turn of a session failed; it has its ending.
    Error {
        /// What failed, in one line.
        message: Arc<str>,
    },
}

impl HookEvent {
    /// The name of the moment, as configuration and receipts call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TurnStart { .. } => "turn_start",
            Self::ModelStart { .. } => "model_start",
            Self::ModelEnd { .. } => "model_end",
            Self::ToolStart { .. } => "tool_start",
            Self::ToolEnd { .. } => "tool_end",
            Self::TurnEnd { .. } => "turn_end",
            Self::SessionStart { .. } => "session_start",
            Self::SessionEnd => "session_end",
            Self::Stop { .. } => "stop",
            Self::Error { .. } => "error",
        }
    }
}

/// What a hook says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookVerdict {
    /// Go on.
    Continue,
    /// A call does not run (before a tool), or the turn ends with `error` (anywhere else).
    Deny {
        /// Why.
        reason: String,
    },
}

/// Where a hook runs.
#[derive(Debug, Clone)]
pub struct HookCx {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn: TurnNumber,
    /// Cancelled by a stop. What the hook starts, it starts here.
    pub scope: Scope,
}

/// The embedding program's own code.
pub trait Hook: Send + Sync + fmt::Debug {
    /// For receipts.
    fn name(&self) -> &Arc<str>;

    /// Whether it wants to hear of this event: most are asked and want none, which then costs nothing.
    fn wants(&self, event: &HookEvent) -> bool;

    /// Hears of it. A hook that panics has denied.
    ///
    /// # Cancel safety
    /// The future is dropped as soon as a stop covers the turn: a stopped hook is a stop, not a denial.
    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict>;
}

/// What the hooks said.
pub(crate) enum Told {
    Continue,
    Denied(String),
    Stopped,
}

/// Tells every hook that wants to hear, in order, until one denies.
pub(crate) async fn tell(hooks: &[Arc<dyn Hook>], cx: &HookCx, event: &HookEvent) -> Told {
    for hook in hooks.iter().filter(|hook| hook.wants(event)) {
        let hearing = hook.on(cx, event.clone());
        let name = Arc::clone(hook.name());
        match foreign::run(&cx.scope, ItemKind::Hook, name, event.name(), hearing).await {
            Foreign::Answered(HookVerdict::Continue) => {}
            Foreign::Answered(HookVerdict::Deny { reason }) => return Told::Denied(reason),
            Foreign::Panicked => return Told::Denied(format!("the hook {} panicked", hook.name())),
            Foreign::Stopped => return Told::Stopped,
        }
    }
    Told::Continue
}
