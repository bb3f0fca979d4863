//! Transition function of a turn. The function is used by a running turn and, after a crash, by the recovery that ends
//! the turn.
//!
//! ```text
//! idle ──model call starts──▶ asking ──succeeds──▶ answered ──tool call starts──▶ in tools ──┐
//!  ▲ ▲                          │                     │  ▲────── model call starts: asking ◀─┘
//!  │ │ ◀── a message is added: from anywhere but asking
//!  │ └──────── fails ───────────┘                     │
//!  └ started                                          └── committed        (stopped: from anywhere)
//! ```
//!
//! Invariants:
//! 1. Each call starts once and ends once. Within a turn, no two calls have the same id.
//! 2. A model call runs alone; tool calls may run in parallel.
//! 3. A turn commits only after the model has answered all messages. A turn ends only when none of its calls is open.
//! 4. A turn accepts no event after its ending: `apply` refuses late events.

use std::sync::Arc;

use crate::ids::{CallId, TurnNumber};
use crate::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use crate::stop_reason::StopReason;
use crate::turn::effects::{CallEffect, TurnEffects};
use crate::turn::started_calls::StartedCalls;
use crate::usage::Usage;

/// An event in a turn that has started.
#[derive(Debug, Clone, Copy)]
pub enum TurnEvent<'a> {
    /// A call starts.
    CallStarted(&'a StartedCall),
    /// A call has ended.
    CallFinished {
        /// Id of the call.
        id: &'a CallId,
        /// Outcome of the call.
        outcome: CallOutcome,
        /// Usage of the call.
        usage: Option<Usage>,
        /// True if the command of the call has exited.
        has_exited: bool,
        /// Beginning of the result.
        result: Option<&'a Arc<str>>,
    },
    /// A message was added between two steps.
    Steered,
    /// The turn is committed.
    Committed,
    /// The turn is stopped.
    Stopped(StopReason),
}

impl<'a> TurnEvent<'a> {
    /// The event of a record. `None` if the record does not belong to a running turn.
    pub fn of(record: &'a SessionRecord) -> Option<(TurnNumber, Self)> {
        Some(match record {
            SessionRecord::CallStarted { turn, call, .. } => (*turn, Self::CallStarted(call)),
            SessionRecord::CallFinished {
                turn,
                id,
                outcome,
                usage,
                exit_code,
                result,
                ..
            } => (
                *turn,
                Self::CallFinished {
                    id,
                    outcome: *outcome,
                    usage: *usage,
                    has_exited: exit_code.is_some(),
                    result: result.as_ref(),
                },
            ),
            SessionRecord::MessageSteered { turn, .. } => (*turn, Self::Steered),
            SessionRecord::TurnCommitted { turn, .. } => (*turn, Self::Committed),
            SessionRecord::TurnStopped { turn, reason, .. } => (*turn, Self::Stopped(*reason)),
            SessionRecord::SessionOpened { .. }
            | SessionRecord::TurnStarted { .. }
            | SessionRecord::MessagesKept { .. }
            | SessionRecord::Compacted { .. }
            | SessionRecord::SettingsChanged { .. }
            | SessionRecord::Stopped { .. }
            | SessionRecord::TurnUndone { .. }
            | SessionRecord::Metered { .. }
            | SessionRecord::BackgroundStarted { .. }
            | SessionRecord::BackgroundDetached { .. }
            | SessionRecord::BackgroundEnded { .. } => return None,
        })
    }
}

/// Error of an event that is not allowed in the turn's state. The state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalEvent {
    /// The turn has ended: it accepts no late events.
    #[error("the turn has already ended as {}", match .0 {
        TurnEndKind::Committed => "completed",
        TurnEndKind::Stopped(reason) => reason.as_str(),
    })]
    Ended(TurnEndKind),
    /// A call with this id has already started in this turn.
    #[error("the call {0} was started twice")]
    CallStartedTwice(CallId),
    /// No call with this id is open: it never started, or has ended.
    #[error("the call {0} is not open")]
    CallNotOpen(CallId),
    /// The event requires that all calls have ended, but this call is open.
    #[error("the call {0} is still open")]
    CallOpen(CallId),
    /// A tool call or a commit is only allowed after an answer of the model, and there is no answer.
    #[error("the model has not answered")]
    NoAnswer,
    /// A model call ends, but none is open.
    #[error("no model call is open")]
    NoModelCall,
    /// The model did not request this call, or the call already has its result.
    #[error("the call {0} was not requested, or already has its result")]
    NotAsked(CallId),
    /// The arguments of the call are malformed. The caller must reject the call and never run it.
    #[error("the arguments of the call {0} are malformed")]
    MalformedArguments(CallId),
    /// A stop was recorded with the reason `completed`.
    #[error("a turn cannot be stopped as completed")]
    StoppedAsCompleted,
}

/// The ending of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEndKind {
    /// The turn was committed.
    Committed,
    /// The turn was stopped for this reason.
    Stopped(StopReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnPhase {
    Idle,
    Asking,
    Answered,
    InTools,
}

/// State of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnState {
    number: TurnNumber,
    phase: TurnPhase,
    ending: Option<TurnEndKind>,
    steps: u32,
    metered: Usage,
    started: StartedCalls,
    open: Vec<StartedCall>,
    unknown: Vec<StartedCall>,
    effects: TurnEffects,
}

impl TurnState {
    /// State of a turn that has just started.
    pub fn new(number: TurnNumber) -> Self {
        Self {
            number,
            phase: TurnPhase::Idle,
            ending: None,
            steps: 0,
            metered: Usage::default(),
            started: StartedCalls::default(),
            open: Vec::new(),
            unknown: Vec::new(),
            effects: TurnEffects::default(),
        }
    }

    /// Applies an event. If the event is not allowed in this state, changes nothing.
    ///
    /// # Errors
    /// If the event is not allowed in this state.
    pub fn apply(&mut self, event: TurnEvent<'_>) -> Result<(), IllegalEvent> {
        if let Some(ending) = self.ending {
            return Err(IllegalEvent::Ended(ending));
        }
        match event {
            TurnEvent::CallStarted(call) => self.start_call(call),
            TurnEvent::CallFinished {
                id,
                outcome,
                usage,
                has_exited,
                result,
            } => {
                self.finish_call(id, outcome, usage)?;
                self.effects.finish(id, outcome, has_exited, result);
                Ok(())
            }
            TurnEvent::Steered => {
                self.check_no_call_open()?;
                // After a new message, the model must answer before the turn can commit.
                self.phase = TurnPhase::Idle;
                Ok(())
            }
            TurnEvent::Committed => self.end(TurnEndKind::Committed),
            TurnEvent::Stopped(reason) => self.end(TurnEndKind::Stopped(reason)),
        }
    }

    /// Checks whether the turn can end with this ending now.
    pub(super) fn check_ending(&self, ending: TurnEndKind) -> Result<(), IllegalEvent> {
        if let Some(ending) = self.ending {
            return Err(IllegalEvent::Ended(ending));
        }
        self.check_no_call_open()?;
        match ending {
            TurnEndKind::Committed if self.phase != TurnPhase::Answered => {
                Err(IllegalEvent::NoAnswer)
            }
            TurnEndKind::Stopped(StopReason::Completed) => Err(IllegalEvent::StoppedAsCompleted),
            TurnEndKind::Committed | TurnEndKind::Stopped(_) => Ok(()),
        }
    }

    fn end(&mut self, ending: TurnEndKind) -> Result<(), IllegalEvent> {
        self.check_ending(ending)?;
        self.ending = Some(ending);
        Ok(())
    }

    fn start_call(&mut self, call: &StartedCall) -> Result<(), IllegalEvent> {
        let phase = match call.kind {
            StartedCallKind::Model { .. } => {
                self.check_no_call_open()?;
                TurnPhase::Asking
            }
            StartedCallKind::Tool { .. } => match self.phase {
                TurnPhase::Answered | TurnPhase::InTools => TurnPhase::InTools,
                TurnPhase::Idle | TurnPhase::Asking => return Err(IllegalEvent::NoAnswer),
            },
        };
        if self.started.contains(&call.id) {
            return Err(IllegalEvent::CallStartedTwice(call.id.clone()));
        }
        self.started.insert(call.id.clone());
        self.open.push(call.clone());
        self.effects.start(call);
        self.phase = phase;
        self.steps += u32::from(phase == TurnPhase::Asking);
        Ok(())
    }

    fn finish_call(
        &mut self,
        id: &CallId,
        outcome: CallOutcome,
        usage: Option<Usage>,
    ) -> Result<(), IllegalEvent> {
        let Some(at) = self.open.iter().position(|call| call.id == *id) else {
            return Err(IllegalEvent::CallNotOpen(id.clone()));
        };
        // `remove` keeps the order of the other calls. Open calls are reported in the order in which they started.
        let call = self.open.remove(at);
        if matches!(call.kind, StartedCallKind::Model { .. }) {
            self.phase = match outcome {
                CallOutcome::Succeeded => TurnPhase::Answered,
                _ => TurnPhase::Idle,
            };
        }
        if outcome == CallOutcome::Unknown {
            self.unknown.push(call);
        }
        self.metered += usage.unwrap_or_default();
        Ok(())
    }

    fn check_no_call_open(&self) -> Result<(), IllegalEvent> {
        match self.open.first() {
            Some(call) => Err(IllegalEvent::CallOpen(call.id.clone())),
            None => Ok(()),
        }
    }

    /// A copy without the effects of the calls, to check records.
    pub(super) fn without_effects(&self) -> Self {
        Self {
            started: self.started.clone(),
            open: self.open.clone(),
            unknown: self.unknown.clone(),
            effects: TurnEffects::default(),
            ..*self
        }
    }

    /// Number of the turn.
    pub fn number(&self) -> TurnNumber {
        self.number
    }

    /// Number of model calls that have started.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Usage of the calls: the metered total, which never decreases.
    pub fn metered(&self) -> Usage {
        self.metered
    }

    /// Calls that have started but not ended, in the order in which they started.
    pub fn open_calls(&self) -> &[StartedCall] {
        &self.open
    }

    /// Id of the running model call. `None` if no model call runs.
    pub(super) fn open_model_call(&self) -> Option<&CallId> {
        let first = self.open.first()?;
        matches!(first.kind, StartedCallKind::Model { .. }).then_some(&first.id)
    }

    /// Calls with an unknown outcome.
    pub fn unknown_calls(&self) -> &[StartedCall] {
        &self.unknown
    }

    /// Calls that may have changed something outside the conversation.
    pub fn effects(&self) -> &TurnEffects {
        &self.effects
    }

    /// Changes the effect of a call, if the call may have changed something.
    pub(super) fn change_call(&mut self, id: &CallId, change: impl FnOnce(&mut CallEffect)) {
        self.effects.change_call(id, change);
    }

    /// True if a call with this id has started in this turn.
    pub fn has_started(&self, id: &CallId) -> bool {
        self.started.contains(id)
    }

    /// The ending. `None` while the turn runs.
    pub fn ending(&self) -> Option<TurnEndKind> {
        self.ending
    }
}
