//! Live events of a run, which is a sequence of turns.
//!
//! Events are only for display. The number of waiting events is bounded, the sender never waits, and a receiver that
//! lags too far misses events. The log contains the facts.

use std::fmt;
use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::message::Arguments;
use allstop_core::receipt::ItemState;
use allstop_core::record::CallOutcome;
use allstop_core::turn::LostTurn;
use allstop_core::{
    CallId, Cause, Effect, FinishReason, SessionId, StopReason, ToolCall, TurnNumber, Usage,
};
use allstop_scope::catch_panic;
use allstop_tools::{CallProgress, FileChange};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// Number of events by which a receiver may lag before it misses the oldest event. A long answer has about this many
/// deltas.
const EVENTS_KEPT_MAX: usize = 4096;

/// One event of a run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
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
        /// Number of the step in the turn, from 1.
        step: u32,
        /// The model.
        #[schemars(with = "String")]
        model: Arc<str>,
        /// True if a guardrail or the format of the answer checks the answer before the commit. A receiver that shows only text that has passed
        /// must not show the pieces of this step.
        #[serde(skip)]
        is_guarded: bool,
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
    /// The model's answer of a step is complete, with the whole text for receivers that missed deltas.
    StepAnswered {
        /// The step.
        step: u32,
        /// Whole text of the answer.
        #[schemars(with = "String")]
        text: Arc<str>,
        /// Reason why the model ended its answer.
        finish: FinishReason,
        /// Calls that the answer requests, for receivers that show them with the answer. Each follows as
        /// [`ToolRequested`](Self::ToolRequested).
        #[serde(skip)]
        calls: Arc<[ToolCall]>,
    },
    /// A failed model call will be retried; the text that it streamed is discarded.
    RetryScheduled {
        /// The step.
        step: u32,
        /// Number of the failed call, from 1.
        attempt: u32,
        /// Milliseconds until the retry.
        delay_ms: u64,
        /// The error.
        error: String,
    },
    /// The conversation is nearly too long for the model, or the provider has refused it as too long. Older tool results
    /// are shorter in the requests from this step on. The conversation keeps the whole results.
    RequestShortened {
        /// The step.
        step: u32,
        /// Number of messages that became shorter.
        results: u32,
    },
    /// The model is asked for a summary of older turns, because the conversation is too long. The summary replaces these
    /// turns.
    SummaryStarted {
        /// Number of turns.
        turns: u32,
        /// Estimated length of the conversation in tokens.
        tokens: u64,
    },
    /// The model has made no summary. The conversation is unchanged.
    SummaryFailed {
        /// The error.
        error: String,
    },
    /// The model requested a tool call.
    ToolRequested {
        /// The call.
        call_id: CallId,
        /// The tool.
        #[schemars(with = "String")]
        name: Arc<str>,
        /// Arguments of the call.
        arguments: Arguments,
    },
    /// A person is asked for permission to run a call.
    PermissionAsked {
        /// The call.
        call_id: CallId,
        /// The question.
        text: String,
    },
    /// A permission question was answered.
    PermissionAnswered {
        /// The call.
        call_id: CallId,
        /// True if the call may run.
        allowed: bool,
    },
    /// A call has started.
    ToolStarted {
        /// The call.
        call_id: CallId,
        /// The tool.
        #[schemars(with = "String")]
        name: Arc<str>,
        /// Effect of a repetition of the call.
        effect: Effect,
    },
    /// A piece of the output of a running call. A call has at most 20 of these events per second, each with all output
    /// since the previous one.
    ToolOutput {
        /// The call.
        call_id: CallId,
        /// The piece. Bytes that are not UTF-8 are replaced by U+FFFD.
        #[schemars(with = "String")]
        text: Arc<str>,
        /// Bytes of the piece in base64, if they are not UTF-8.
        #[serde(default)]
        #[schemars(with = "Option<String>")]
        base64: Option<Arc<str>>,
        /// Number of bytes left out before this piece: the call wrote more than fits into the events of a second. The
        /// call's result is made from all of its output.
        #[serde(default)]
        missed_bytes: u64,
    },
    /// Progress of a running call. It replaces all earlier progress of the call.
    ToolProgress {
        /// The call.
        call_id: CallId,
        /// The progress.
        #[serde(flatten)]
        progress: CallProgress,
    },
    /// A call has ended.
    ToolFinished {
        /// The call.
        call_id: CallId,
        /// The tool.
        #[schemars(with = "String")]
        name: Arc<str>,
        /// Outcome of the call.
        outcome: CallOutcome,
        /// Milliseconds since the start of the call.
        after_ms: u64,
        /// Content of the result that the model receives.
        #[schemars(with = "String")]
        content: Arc<str>,
        /// Exit code of the command, if the call ran a command to its end; 128 plus the signal's number if a signal
        /// killed it. A failed command does not fail its call, because the model gets its output.
        exit_code: Option<i32>,
        /// The change of a file that the call has made, for people. The model does not get it.
        #[schemars(with = "Option<FileChange>")]
        change: Option<Arc<FileChange>>,
        /// State of the call, if its stop could not end it.
        left: Option<ItemState>,
    },
    /// A call has started background work.
    BackgroundStarted {
        /// Id of the work.
        id: BackgroundId,
        /// The command, for display.
        #[schemars(with = "String")]
        name: Arc<str>,
    },
    /// A stop was received.
    StopHeard {
        /// The cause.
        cause: Cause,
    },
    /// The turn has ended.
    TurnEnded {
        /// The turn.
        turn: TurnNumber,
        /// Reason of the end.
        stop_reason: StopReason,
        /// Cause, if the turn did not complete.
        cause: Option<Cause>,
        /// The metered usage of the turn.
        usage: Usage,
        /// Tool calls that ran when the turn was stopped, as its receipt lists them.
        unfinished: Vec<UnfinishedCall>,
        /// Calls of the turn that may have changed something, if the conversation does not show them.
        #[serde(skip)]
        lost: Option<Arc<LostTurn>>,
    },
}

impl AgentEvent {
    /// The tool call whose start this event reports.
    pub fn started_call(&self) -> Option<&CallId> {
        match self {
            Self::ToolStarted { call_id, .. } => Some(call_id),
            _ => None,
        }
    }
}

/// A tool call that ran when its turn was stopped.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UnfinishedCall {
    /// The call.
    pub call_id: CallId,
    /// State of the call in the receipt.
    pub state: ItemState,
}

/// Sink of a run's events. A run without a receiver builds no events.
#[derive(Clone, Default)]
pub struct EventSink(EventReceiver);

#[derive(Clone, Default)]
enum EventReceiver {
    #[default]
    Disabled,
    Channel(broadcast::Sender<AgentEvent>),
    Observer(Arc<dyn Fn(&AgentEvent) + Send + Sync>),
}

impl EventSink {
    /// Returns a sink that drops all events.
    pub fn none() -> Self {
        Self(EventReceiver::Disabled)
    }

    /// Creates a sink and its first receiver. A receiver that lags gets the number of events that it missed.
    pub fn channel() -> (Self, broadcast::Receiver<AgentEvent>) {
        let (tx, rx) = broadcast::channel(EVENTS_KEPT_MAX);
        (Self(EventReceiver::Channel(tx)), rx)
    }

    /// Creates a sink that loses no event. The sink calls `observe` on the thread that sends the event, so `observe`
    /// must not block. If `observe` panics, the observer misses this event.
    pub fn observer(observe: impl Fn(&AgentEvent) + Send + Sync + 'static) -> Self {
        Self(EventReceiver::Observer(Arc::new(observe)))
    }

    /// Sends an event if there is a receiver; never waits.
    pub fn send(&self, event: impl FnOnce() -> AgentEvent) {
        match &self.0 {
            EventReceiver::Disabled => {}
            // A channel without a receiver is not an error: receivers attach and detach.
            EventReceiver::Channel(tx) => drop(tx.send(event())),
            EventReceiver::Observer(observe) => {
                let _panic_is_logged = catch_panic("EventSink::observer", || observe(&event()));
            }
        }
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            EventReceiver::Disabled => "EventSink::none",
            EventReceiver::Channel(_) => "EventSink::channel",
            EventReceiver::Observer(_) => "EventSink::observer",
        })
    }
}
