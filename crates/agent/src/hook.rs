//! Hooks: callbacks of the embedding program at named points of a turn and of a session. A receipt is the result of a
//! stop. It lists the work that has ended and the work that still runs.

use std::fmt;
use std::sync::Arc;

use allstop_core::record::CallOutcome;
use allstop_core::{Receipt, SessionId, StopReason, ToolCall, TurnNumber};
use allstop_scope::Scope;
use futures::future::BoxFuture;

/// A point of a turn or of a session.
#[derive(Debug, Clone)]
pub enum HookEvent {
    /// Before the first model call.
    TurnStart {
        /// Text of the user.
        input: Arc<str>,
    },
    /// Before a model call.
    ModelStart {
        /// The step.
        step: u32,
    },
    /// After a model call that returned an answer.
    ModelEnd {
        /// The step.
        step: u32,
        /// Text of the answer.
        text: Arc<str>,
    },
    /// A tool call is requested, before its permission is decided.
    ToolRequested {
        /// The call.
        call: ToolCall,
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
        /// Outcome of the call.
        outcome: CallOutcome,
        /// Content of the result that the model receives.
        content: Arc<str>,
    },
    /// Before a final answer ends the turn. The answer has passed all checks.
    FinalAnswer {
        /// Text of the answer.
        text: Arc<str>,
        /// Number of earlier answers of this turn after which a hook has prolonged the turn.
        prolonged: u32,
    },
    /// After the turn has ended. The verdict is ignored.
    TurnEnd {
        /// Reason of the end.
        stop_reason: StopReason,
    },
    /// A session was opened. Called once, before the first turn.
    SessionStart {
        /// True if the session has earlier turns.
        resumed: bool,
    },
    /// A session was closed: none of its work runs any more.
    SessionEnd,
    /// A turn of a session was stopped, and has ended.
    Stop {
        /// Receipt of the stop.
        receipt: Option<Arc<Receipt>>,
    },
    /// A turn of a session failed, and has ended.
    Error {
        /// The failure, in one line.
        message: Arc<str>,
    },
}

impl HookEvent {
    /// Name of the event in configuration and receipts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TurnStart { .. } => "turn_start",
            Self::ModelStart { .. } => "model_start",
            Self::ModelEnd { .. } => "model_end",
            Self::ToolRequested { .. } => "tool_requested",
            Self::ToolStart { .. } => "tool_start",
            Self::ToolEnd { .. } => "tool_end",
            Self::FinalAnswer { .. } => "final_answer",
            Self::TurnEnd { .. } => "turn_end",
            Self::SessionStart { .. } => "session_start",
            Self::SessionEnd => "session_end",
            Self::Stop { .. } => "stop",
            Self::Error { .. } => "error",
        }
    }

    /// Replaces the text that the hooks of this event may change. Returns false if the event has no such text.
    pub(crate) fn replace_text(&mut self, text: &Arc<str>) -> bool {
        match self {
            Self::TurnStart { input: old } | Self::ToolEnd { content: old, .. } => {
                *old = Arc::clone(text);
                true
            }
            _ => false,
        }
    }
}

/// Verdict of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookVerdict {
    /// The turn continues.
    Continue,
    /// The requested call needs no approval by a person. A permission rule that denies the call still applies. If it is
    /// uncertain whether such a rule matches the call, a person is still asked. At events other than the request of a
    /// call, this verdict has the effect of [`Continue`](Self::Continue).
    Allow,
    /// At the request or the start of a call, the call does not run. At any other event during a turn, the turn ends
    /// with the stop reason `error`. After the end of a turn and outside of turns, the verdict is ignored.
    Deny {
        /// Reason of the denial.
        reason: String,
    },
    /// At the start of a turn, replaces the message of the user. After a tool call, replaces the content of the result.
    /// The conversation contains only the new text, and the next hooks receive this text. At any other event, this
    /// verdict has the effect of [`Continue`](Self::Continue).
    Replace {
        /// The new text.
        text: Arc<str>,
    },
    /// At a final answer, the turn continues: the model receives this message as a message of the user. The hooks can
    /// prolong a turn at most [`PROLONGATIONS_MAX`] times. At any other event, this verdict has the effect of
    /// [`Continue`](Self::Continue).
    Prolong {
        /// The message.
        message: Arc<str>,
    },
}

/// Maximum number of times that hooks prolong one turn. A hook may never be content with an answer, and each further
/// answer costs tokens. Useful corrections need only a few answers.
pub const PROLONGATIONS_MAX: u32 = 8;

/// Context of a hook.
#[derive(Debug, Clone)]
pub struct HookCx {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn: TurnNumber,
    /// Scope for the work that the hook starts. A stop cancels this scope.
    pub scope: Scope,
}

/// A callback of the embedding program.
pub trait Hook: Send + Sync + fmt::Debug {
    /// Name of the hook in receipts.
    fn name(&self) -> &Arc<str>;

    /// True if the hook wants this event. A hook that does not want an event costs nothing. This function is called on
    /// the engine's thread, so it must not block. A panic counts as a denial.
    fn wants(&self, event: &HookEvent) -> bool;

    /// Handles an event, on the runtime of the work. A panic counts as a denial.
    ///
    /// The calls of a step are admitted at the same time. So the events of different calls may be handled concurrently,
    /// and a call may start, or end, before the events of another call. The events of one call come in their order.
    ///
    /// # Cancel safety
    /// The future is dropped as soon as a stop covers the turn. The turn then counts as stopped, not as denied.
    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict>;

    /// Returns the note to the model about ended background work, which contains the end of its output. The log and the
    /// model get only the returned text. This function is called on the engine's thread, so it must not block. If it
    /// panics, the note is withheld.
    fn revise_note(&self, note: Arc<str>) -> Arc<str> {
        note
    }
}

impl<H: Hook + ?Sized> Hook for Arc<H> {
    fn name(&self) -> &Arc<str> {
        (**self).name()
    }

    fn wants(&self, event: &HookEvent) -> bool {
        (**self).wants(event)
    }

    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        (**self).on(cx, event)
    }

    fn revise_note(&self, note: Arc<str>) -> Arc<str> {
        (**self).revise_note(note)
    }
}

/// A hook that is a function; see [`hook`].
pub struct FnHook {
    name: Arc<str>,
    wants: Box<dyn Fn(&HookEvent) -> bool + Send + Sync>,
    on: Box<dyn Fn(HookCx, HookEvent) -> BoxFuture<'static, HookVerdict> + Send + Sync>,
}

/// Creates a hook from a function, which handles every event. [`FnHook::only`] selects events.
///
/// ```
/// use allstop_agent::{HookEvent, HookVerdict, hook};
///
/// let audit = hook("audit", async |_cx, event| {
///     println!("{}", event.name());
///     HookVerdict::Continue
/// })
/// .only(|event| matches!(event, HookEvent::ToolStart { .. }));
/// # let _ = audit;
/// ```
pub fn hook<F, R>(name: impl Into<Arc<str>>, on: F) -> FnHook
where
    F: Fn(HookCx, HookEvent) -> R + Send + Sync + 'static,
    R: Future<Output = HookVerdict> + Send + 'static,
{
    FnHook {
        name: name.into(),
        wants: Box::new(|_| true),
        on: Box::new(move |cx, event| Box::pin(on(cx, event))),
    }
}

impl FnHook {
    /// Handles only the events for which `wants` returns true. The function must not block.
    #[must_use]
    pub fn only(mut self, wants: impl Fn(&HookEvent) -> bool + Send + Sync + 'static) -> Self {
        self.wants = Box::new(wants);
        self
    }
}

impl Hook for FnHook {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        (self.wants)(event)
    }

    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        (self.on)(cx.clone(), event)
    }
}

impl fmt::Debug for FnHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FnHook").field(&self.name).finish()
    }
}
