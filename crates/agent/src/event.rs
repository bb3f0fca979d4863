//! What a run tells whoever watches it live.
//!
//! These events are for eyes: bounded, never waited for, lost when a watcher lags too far. What must not be lost is in
//! the log.

use std::fmt;
use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::message::Arguments;
use allstop_core::receipt::ItemState;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, Cause, Effect, FinishReason, SessionId, StopReason, TurnNumber, Usage};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::broadcast;

/// How many events a lagging watcher may be behind before it misses the oldest: a long answer's worth of deltas.
const EVENTS_KEPT_MAX: usize = 4096;

/// One event of a run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AgentEvent {
    /// A turn began.
    TurnStarted {
        /// The session.
        session_id: SessionId,
        /// The turn.
        turn: TurnNumber,
    },
    /// A model call is about to be made.
    StepStarted {
        /// The step of the turn: 1, 2, 3 …
        step: u32,
        /// The model.
        #[schemars(with = "String")]
        model: Arc<str>,
    },
    /// A piece of the answer.
    TextDelta {
        /// The piece.
        #[schemars(with = "String")]
        text: Arc<str>,
    },
    /// A piece of the model's reasoning.
    ReasoningDelta {
        /// The piece.
        #[schemars(with = "String")]
        text: Arc<str>,
    },
    /// The model's answer of a step is whole. Whoever missed deltas has the text here.
    StepAnswered {
        /// The step.
        step: u32,
        /// All its text.
        #[schemars(with = "String")]
        text: Arc<str>,
        /// How the model ended it.
        finish: FinishReason,
    },
    /// A failed model call will be repeated; what it had streamed does not count.
    RetryScheduled {
        /// The step.
        step: u32,
        /// The number of the call that failed, from 1.
        attempt: u32,
        /// How long until the next.
        delay_ms: u64,
        /// What failed.
        error: String,
    },
    /// The model asked for a tool.
    ToolRequested {
        /// The call.
        call_id: CallId,
        /// The tool.
        #[schemars(with = "String")]
        name: Arc<str>,
        /// With what.
        arguments: Arguments,
    },
    /// A person is asked whether a call may run.
    PermissionAsked {
        /// The call.
        call_id: CallId,
        /// The question.
        text: String,
    },
    /// The question was answered.
    PermissionAnswered {
        /// The call.
        call_id: CallId,
        /// Whether it may run.
        allowed: bool,
    },
    /// A call runs.
    ToolStarted {
        /// The call.
        call_id: CallId,
        /// The tool.
        #[schemars(with = "String")]
        name: Arc<str>,
        /// What repeating it would do.
        effect: Effect,
    },
    /// A piece of what a running call prints.
    ToolOutput {
        /// The call.
        call_id: CallId,
        /// The piece.
        #[schemars(with = "String")]
        text: Arc<str>,
    },
    /// A call has ended.
    ToolFinished {
        /// The call.
        call_id: CallId,
        /// The tool.
        #[schemars(with = "String")]
        name: Arc<str>,
        /// How.
        outcome: CallOutcome,
        /// Milliseconds from its start.
        after_ms: u64,
        /// What the model is told.
        #[schemars(with = "String")]
        content: Arc<str>,
        /// The exit code of the command that it ran to its end.
        exit_code: Option<i32>,
        /// What is left of a call that was stopped, where the stop did not end it.
        left: Option<ItemState>,
    },
    /// Background work runs that a call started.
    BackgroundStarted {
        /// Its id.
        id: BackgroundId,
        /// For people: the command.
        #[schemars(with = "String")]
        name: Arc<str>,
    },
    /// A stop was heard.
    StopHeard {
        /// The cause.
        cause: Cause,
    },
    /// The turn has its ending.
    TurnEnded {
        /// The turn.
        turn: TurnNumber,
        /// Why.
        stop_reason: StopReason,
        /// Whether it was stopped, and why.
        cause: Option<Cause>,
        /// The metered usage of the turn.
        usage: Usage,
        /// The tool calls that ran when the turn was stopped, as its receipt has them.
        unfinished: Vec<UnfinishedCall>,
    },
}

/// A tool call that ran when its turn was stopped.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct UnfinishedCall {
    /// The call.
    pub call_id: CallId,
    /// How the receipt says that the stop left it.
    pub state: ItemState,
}

/// Where events go. A run without a watcher pays for none.
#[derive(Clone, Default)]
pub struct EventSink(Watcher);

#[derive(Clone, Default)]
enum Watcher {
    #[default]
    Nobody,
    Channel(broadcast::Sender<AgentEvent>),
    Observer(Arc<dyn Fn(&AgentEvent) + Send + Sync>),
}

impl EventSink {
    /// Nobody watches.
    pub fn none() -> Self {
        Self(Watcher::Nobody)
    }

    /// A sink and its first watcher. A watcher that lags is told how many events it missed.
    pub fn channel() -> (Self, broadcast::Receiver<AgentEvent>) {
        let (tx, rx) = broadcast::channel(EVENTS_KEPT_MAX);
        (Self(Watcher::Channel(tx)), rx)
    }

    /// A sink that calls `observe` with every event, at the very moment, on the engine's own thread: it must not block.
    /// It misses nothing.
    pub fn observer(observe: impl Fn(&AgentEvent) + Send + Sync + 'static) -> Self {
        Self(Watcher::Observer(Arc::new(observe)))
    }

    /// Sends an event, if somebody watches; never waits.
    pub fn send(&self, event: impl FnOnce() -> AgentEvent) {
        match &self.0 {
            Watcher::Nobody => {}
            // No watcher is no error: they come and go.
            Watcher::Channel(tx) => drop(tx.send(event())),
            Watcher::Observer(observe) => observe(&event()),
        }
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Watcher::Nobody => "EventSink::none",
            Watcher::Channel(_) => "EventSink::channel",
            Watcher::Observer(_) => "EventSink::observer",
        })
    }
}
