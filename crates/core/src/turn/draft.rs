//! A turn that is under way.

use std::sync::Arc;

use crate::cause::Cause;
use crate::decision::{Decision, Verdict};
use crate::ids::{BackgroundId, CallId, MessageId, TurnNumber};
use crate::message::Message;
use crate::process::ProcessIdentity;
use crate::record::{CallOutcome, SessionRecord, StartedCall, TurnOrigin};
use crate::time::Timestamp;
use crate::turn::budget::Reservation;
use crate::turn::conversation::Conversation;
use crate::turn::limits::{Refusal, TurnLimits};
use crate::turn::model_call::RunningModel;
use crate::turn::request_names::for_request;
use crate::turn::state::{IllegalEvent, TurnEvent, TurnState};
use crate::turn::step::OpenStep;
use crate::usage::Usage;

/// With what a turn begins.
#[derive(Debug, Clone)]
pub struct TurnStart {
    /// Its number in the session.
    pub turn: TurnNumber,
    /// The user's words.
    pub input: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// The process that runs it.
    pub owner: Option<ProcessIdentity>,
    /// The message that caused it.
    pub message: Option<MessageId>,
    /// Its origin. A turn that background work caused has no words of the user.
    pub origin: TurnOrigin,
    /// Notes that the model is told first.
    pub notes: Vec<Note>,
}

/// Background work that has ended, told to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The work.
    pub id: BackgroundId,
    /// The words.
    pub text: Arc<str>,
}

impl TurnStart {
    /// The record of the start: durable before the first call.
    pub fn record(&self) -> SessionRecord {
        SessionRecord::TurnStarted {
            turn: self.turn,
            at: self.at,
            input: Arc::clone(&self.input),
            owner: self.owner.clone(),
            message: self.message.clone(),
            origin: self.origin,
            told: self.notes.iter().map(|note| note.id.clone()).collect(),
        }
    }

    /// First messages of the turn: the notes, then the user's words.
    pub(super) fn messages(&self) -> Vec<Arc<Message>> {
        let notes = self.notes.iter().map(|note| Message::Note {
            text: Arc::clone(&note.text),
        });
        let words = (self.origin == TurnOrigin::User).then(|| Message::User {
            text: Arc::clone(&self.input),
        });
        notes.chain(words).map(Arc::new).collect()
    }
}

/// A turn under way over an immutable base.
///
/// Nothing that it does can be seen in the base. It ends by [`Draft::commit`] or [`Draft::stop`]; dropped, it changes
/// nothing, and the next recovery of its session writes its ending.
#[derive(Debug)]
#[must_use = "a draft that is dropped is a turn that never was"]
pub struct Draft {
    pub(super) base: Arc<Conversation>,
    pub(super) decision: Arc<Decision>,
    pub(super) state: TurnState,
    /// The user's message and the completed steps: a valid history at any time.
    pub(super) messages: Vec<Arc<Message>>,
    /// The step whose tools run.
    pub(super) step: Option<OpenStep>,
    /// Usage of the answers in `messages` and `step`.
    pub(super) answered_usage: Usage,
    /// Facts about running tool calls beside their results.
    pub(super) call_notes: Vec<(CallId, CallNote)>,
    /// The model call that runs.
    pub(super) running_model: Option<RunningModel>,
    pub(super) limits: TurnLimits,
}

/// Facts about a tool call beside its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallNote {
    /// Usage of its own, such as a sub-agent's: metered.
    pub usage: Usage,
    /// The exit code of the command that it ran to its end.
    pub exit_code: Option<i32>,
}

/// Reason that a step or a call did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// A stop or a limit: the turn ends for it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A bug of the driver.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
}

impl Draft {
    /// Begins a turn, if no stop has fallen for it yet and the limits let it.
    ///
    /// A stop precedes every limit. If a limit refuses the turn, the decision falls for that.
    ///
    /// # Errors
    /// The refusal; its [`Refusal::stop`] is the whole story of the turn.
    pub fn begin(
        base: Arc<Conversation>,
        start: &TurnStart,
        limits: &TurnLimits,
        decision: Arc<Decision>,
    ) -> Result<Self, Refusal> {
        if let Err(refusal) = check_entry(&base, limits, &decision) {
            let ours = decision.stop(refusal.cause());
            return Err(match decision.stopped_by() {
                Some(first) if !ours => Refusal::Stopped(first.clone()),
                _ => refusal,
            });
        }
        Ok(Self {
            base,
            decision,
            state: TurnState::new(start.turn),
            messages: start.messages(),
            step: None,
            answered_usage: Usage::default(),
            call_notes: Vec::new(),
            running_model: None,
            limits: limits.clone(),
        })
    }

    /// Messages for the model: the base and the draft, by pointer. It has exactly one result for each tool call
    /// at any time. A tool's name or a call's id that a provider could refuse is replaced.
    pub fn request_messages(&self) -> Vec<Arc<Message>> {
        let mut all = Vec::with_capacity(self.base.messages.len() + self.messages.len());
        let messages = self.base.messages.iter().chain(&self.messages);
        all.extend(messages.map(for_request));
        all
    }

    /// Takes a message between two steps: append the record, then go on with the next step. Behind a final answer the
    /// turn goes on too.
    ///
    /// # Errors
    /// The refusal after a stop, or a bug: a call is open or has no result.
    pub fn steer(
        &mut self,
        message: MessageId,
        text: Arc<str>,
        at: Timestamp,
    ) -> Result<SessionRecord, DraftError> {
        self.check_stop()?;
        if let Some(call) = self.step.as_ref().and_then(|step| step.unanswered().next()) {
            return Err(IllegalEvent::CallOpen(call.id.clone()).into());
        }
        let record = self.take(SessionRecord::MessageSteered {
            turn: self.state.number(),
            message,
            text: Arc::clone(&text),
            at,
        })?;
        self.messages.push(Arc::new(Message::User { text }));
        Ok(record)
    }

    /// Where the turn is: steps, open calls, metered usage.
    pub fn state(&self) -> &TurnState {
        &self.state
    }

    /// The conversation that it stands on.
    pub fn base(&self) -> &Arc<Conversation> {
        &self.base
    }

    /// The cause of the stop, if one has fallen.
    pub fn stopped_by(&self) -> Option<&Cause> {
        self.decision.stopped_by()
    }

    pub(super) fn check_stop(&self) -> Result<(), Refusal> {
        match self.decision.stopped_by() {
            Some(cause) => Err(Refusal::Stopped(cause.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn reserve(&self, tokens: u64) -> Result<Option<Reservation>, Refusal> {
        Ok(match &self.limits.budget {
            Some(budget) => Some(budget.reserve(tokens)?),
            None => None,
        })
    }

    pub(super) fn start_call(
        &mut self,
        call: StartedCall,
        at: Timestamp,
    ) -> Result<SessionRecord, IllegalEvent> {
        self.take(SessionRecord::CallStarted {
            turn: self.state.number(),
            call,
            at,
        })
    }

    /// Notes what is known of a running tool call beside its result: its end is recorded with it, however it ends.
    pub fn note_call(&mut self, id: CallId, note: CallNote) {
        if note != CallNote::default() {
            self.call_notes.retain(|(noted, _)| *noted != id);
            self.call_notes.push((id, note));
        }
    }

    pub(super) fn end_tool_call(
        &mut self,
        id: CallId,
        outcome: CallOutcome,
    ) -> Result<SessionRecord, IllegalEvent> {
        let note = self.call_notes.iter().find(|(noted, _)| *noted == id);
        let note = note.map_or_else(CallNote::default, |(_, note)| *note);
        self.take(SessionRecord::CallFinished {
            turn: self.state.number(),
            id,
            outcome,
            usage: (note.usage != Usage::default()).then_some(note.usage),
            finish: None,
            exit_code: note.exit_code,
        })
    }

    /// Every record passes here, and so through the transition function, before anybody sees it.
    pub(super) fn take(&mut self, record: SessionRecord) -> Result<SessionRecord, IllegalEvent> {
        if let Some((_, event)) = TurnEvent::of(&record) {
            self.state.apply(event)?;
        }
        Ok(record)
    }
}

fn check_entry(
    base: &Conversation,
    limits: &TurnLimits,
    decision: &Decision,
) -> Result<(), Refusal> {
    if let Some(Verdict::Stop(cause)) = decision.verdict() {
        return Err(Refusal::Stopped(cause.clone()));
    }
    if let Some(limit) = limits.turns_max
        && base.turns >= limit
    {
        return Err(Refusal::TurnsMax { limit });
    }
    if let Some(budget) = &limits.budget {
        budget.check_left()?;
    }
    Ok(())
}
