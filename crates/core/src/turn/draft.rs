//! A running turn: a user's message, and the steps that answer it so far.

use std::sync::Arc;

use crate::cause::Cause;
use crate::decision::{CommitDecision, CommitVerdict};
use crate::ids::{BackgroundId, CallId, MessageId};
use crate::image::Images;
use crate::message::{Message, ToolCall};
use crate::record::{CallOutcome, SessionRecord, StartedCall};
use crate::time::Timestamp;
use crate::turn::budget::Reservation;
use crate::turn::conversation::Conversation;
use crate::turn::effects::CallEffect;
use crate::turn::limits::{StartRefusal, TurnLimits};
use crate::turn::lost_note::note_about;
use crate::turn::model_call::RunningModel;
use crate::turn::request_names::for_request;
use crate::turn::state::{IllegalEvent, TurnEvent, TurnState};
use crate::turn::step::OpenStep;
use crate::turn::summary::{INPUT_EXCERPT_CHARS, excerpt};
use crate::turn::turn_start::TurnStart;
use crate::usage::Usage;

/// A running turn on top of an immutable conversation. This conversation is the base of the draft.
///
/// A draft never changes its base. A draft ends with [`Draft::commit`] or [`Draft::stop`]. If a draft is dropped
/// instead, the conversation is unchanged, and the next recovery of the session writes the ending of the turn.
#[derive(Debug)]
#[must_use = "a draft that is dropped is a turn that never was"]
pub struct Draft {
    pub(super) base: Arc<Conversation>,
    pub(super) decision: Arc<CommitDecision>,
    pub(super) state: TurnState,
    /// The user's message and the completed steps: a valid history at all times.
    pub(super) messages: Vec<Arc<Message>>,
    /// Beginning of the user's message.
    pub(super) input: Arc<str>,
    /// Number of messages at the end of `messages` that no request to the model has contained.
    pub(super) messages_unseen: usize,
    /// Number of messages that [`Draft::keep_messages`] has returned.
    messages_kept: usize,
    /// Number of these messages that the log verifiably has.
    messages_confirmed: usize,
    /// The step whose tool calls are running.
    pub(super) step: Option<OpenStep>,
    /// Usage of the model's answers in `messages` and `step`.
    pub(super) answered_usage: Usage,
    /// Additional data about running tool calls.
    pub(super) call_side_data: Vec<(CallId, CallSideData)>,
    pub(super) running_model: Option<RunningModel>,
    /// Background work that calls of this turn have started.
    works: Vec<(BackgroundId, CallId)>,
    /// For the turn of a sub-agent: path of the calls that contain it. Set at a stop.
    pub(super) path: Option<Arc<str>>,
    pub(super) limits: TurnLimits,
}

/// Additional data about a tool call, next to its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallSideData {
    /// Usage that the call itself caused, such as the usage of a sub-agent. The metered total includes this usage.
    pub usage: Usage,
    /// Exit code of a command that ended by itself.
    pub exit_code: Option<i32>,
}

/// Reason why a step or a call did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// The step or call was refused because of a stop or a limit. The turn must end for this reason.
    #[error(transparent)]
    Refused(#[from] StartRefusal),
    /// A bug of the caller.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
}

impl Draft {
    /// Begins a turn. Fails if the turn is already stopped, or if a limit refuses the turn.
    ///
    /// A stop takes precedence over every limit. If a limit refuses the turn, the [`CommitDecision`] of the turn
    /// becomes a stop.
    ///
    /// # Errors
    /// Returns the refusal. [`StartRefusal::stop`] creates the records of the turn from the refusal.
    pub fn begin(
        base: Arc<Conversation>,
        start: &TurnStart,
        limits: &TurnLimits,
        decision: Arc<CommitDecision>,
    ) -> Result<Self, StartRefusal> {
        if let Err(refusal) = check_entry(&base, limits, &decision) {
            let ours = decision.stop(refusal.cause());
            return Err(match decision.stopped_by() {
                Some(first) if !ours => StartRefusal::Stopped(first.clone()),
                _ => refusal,
            });
        }
        let note = note_about(&base.lost).into_iter();
        let messages: Vec<_> = note.chain(start.messages()).collect();
        Ok(Self {
            messages_unseen: messages.len(),
            messages,
            base,
            decision,
            state: TurnState::new(start.turn),
            input: excerpt(&start.input, INPUT_EXCERPT_CHARS),
            messages_kept: 0,
            messages_confirmed: 0,
            step: None,
            answered_usage: Usage::default(),
            call_side_data: Vec::new(),
            running_model: None,
            works: Vec::new(),
            path: None,
            limits: limits.clone(),
        })
    }

    /// Replaces the user's message by the message of this start. Has no effect after the begin of the first step. Append
    /// the record of this start instead of the record of the former start.
    pub fn replace_start(&mut self, start: &TurnStart) {
        if self.state.steps() > 0 {
            return;
        }
        let note = note_about(&self.base.lost).into_iter();
        self.messages = note.chain(start.messages()).collect();
        self.messages_unseen = self.messages.len();
        self.input = excerpt(&start.input, INPUT_EXCERPT_CHARS);
    }

    /// Messages for the model: the messages of the base and of the draft, as shared pointers. Each tool call always has
    /// exactly one result. Replaces each tool name and call id that a provider could refuse.
    pub fn request_messages(&self) -> Vec<Arc<Message>> {
        let mut all = Vec::with_capacity(self.base.messages.len() + self.messages.len());
        let messages = self.base.messages.iter().chain(&self.messages);
        all.extend(messages.map(for_request));
        all
    }

    /// Adds a user's message between two steps. Append the record, then begin the next step. If the model has already
    /// given its final answer, the turn continues.
    ///
    /// # Errors
    /// Returns the refusal if the turn is stopped. Also reports a bug of the caller: a call is open or has no result.
    pub fn steer(
        &mut self,
        message: MessageId,
        text: Arc<str>,
        images: Images,
        at: Timestamp,
    ) -> Result<SessionRecord, DraftError> {
        self.check_stop()?;
        if let Some(call) = self.step.as_ref().and_then(|step| step.unanswered().next()) {
            return Err(IllegalEvent::CallOpen(call.id.clone()).into());
        }
        let record = self.apply_record(SessionRecord::MessageSteered {
            turn: self.state.number(),
            message,
            text: Arc::clone(&text),
            images: images.infos(),
            at,
        })?;
        self.messages.push(Arc::new(Message::User { text, images }));
        self.messages_unseen += 1;
        Ok(record)
    }

    /// Adds a note of the program for the model after its answer. The model must answer again before the turn can commit. A
    /// stop before the next step drops the note.
    ///
    /// # Errors
    /// Returns the refusal if the turn is stopped. Also reports a bug of the caller: a call is open or has no result.
    pub fn add_note(&mut self, text: impl Into<Arc<str>>) -> Result<(), DraftError> {
        self.check_stop()?;
        if let Some(call) = self.step.as_ref().and_then(|step| step.unanswered().next()) {
            return Err(IllegalEvent::CallOpen(call.id.clone()).into());
        }
        let note = Message::Note { text: text.into() };
        self.messages.push(Arc::new(note));
        self.messages_unseen += 1;
        Ok(())
    }

    /// Under the policy `keep`: the record of the messages that are complete since the last call of this function. Append
    /// it with the next records. If the process then dies, the recovery keeps these messages. `None` if there are no new
    /// messages, or if a step is not complete.
    pub fn keep_messages(&mut self) -> Option<SessionRecord> {
        let new = self.messages.get(self.messages_kept..)?;
        if new.is_empty() || self.step.is_some() {
            return None;
        }
        let record = SessionRecord::MessagesKept {
            turn: self.state.number(),
            messages: new.to_vec(),
        };
        self.messages_kept = self.messages.len();
        Some(record)
    }

    /// Records that the log has the record of the last [`keep_messages`](Self::keep_messages).
    pub fn confirm_kept(&mut self) {
        self.messages_confirmed = self.messages_kept;
    }

    /// True if messages of this turn may stay in the conversation even if its process dies.
    pub(super) fn may_have_kept_messages(&self) -> bool {
        self.messages_kept > 0
    }

    /// Messages of this turn that verifiably stay in the conversation even if its process dies.
    pub(super) fn messages_in_log(&self) -> &[Arc<Message>] {
        let confirmed = self.messages.get(..self.messages_confirmed);
        confirmed.unwrap_or_default()
    }

    /// Takes over the starts and ends of background work from records that are appended during the turn. The end of work
    /// is the end of the call that has started it.
    pub fn observe_background(&mut self, records: &[SessionRecord]) {
        for record in records {
            match record {
                SessionRecord::BackgroundStarted {
                    id, turn, call_id, ..
                } if *turn == self.state.number() => {
                    self.state.change_call(call_id, CallEffect::work_started);
                    self.works.push((id.clone(), call_id.clone()));
                }
                SessionRecord::BackgroundEnded { id, state, .. } => {
                    if let Some((_, call)) = self.works.iter().find(|(work, _)| work == id) {
                        self.state.change_call(call, |call| call.work_ended(state));
                    }
                }
                _ => {}
            }
        }
    }

    /// The call with an uncertain outcome, in an earlier turn, that this call would repeat.
    pub fn repeats_uncertain(&self, call: &ToolCall) -> Option<&CallEffect> {
        self.base.uncertain_call(call)
    }

    /// State of the turn: steps, open calls, metered usage.
    pub fn state(&self) -> &TurnState {
        &self.state
    }

    /// The conversation before this turn.
    pub fn base(&self) -> &Arc<Conversation> {
        &self.base
    }

    /// The cause, if the turn is stopped.
    pub fn stopped_by(&self) -> Option<&Cause> {
        self.decision.stopped_by()
    }

    pub(super) fn check_stop(&self) -> Result<(), StartRefusal> {
        match self.decision.stopped_by() {
            Some(cause) => Err(StartRefusal::Stopped(cause.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn reserve(&self, tokens: u64) -> Result<Option<Reservation>, StartRefusal> {
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
        self.apply_record(SessionRecord::CallStarted {
            turn: self.state.number(),
            call,
            at,
        })
    }

    /// Stores additional data about a running tool call. The record of the call's end contains this data for every
    /// outcome of the call.
    pub fn set_call_side_data(&mut self, id: CallId, note: CallSideData) {
        if note != CallSideData::default() {
            self.call_side_data.retain(|(noted, _)| *noted != id);
            self.call_side_data.push((id, note));
        }
    }

    pub(super) fn end_tool_call(
        &mut self,
        id: CallId,
        outcome: CallOutcome,
        result: Option<Arc<str>>,
    ) -> Result<SessionRecord, IllegalEvent> {
        let result = result.filter(|_| self.state.effects().has(&id));
        let note = self.call_side_data.iter().find(|(noted, _)| *noted == id);
        let note = note.map_or_else(CallSideData::default, |(_, note)| *note);
        self.apply_record(SessionRecord::CallFinished {
            turn: self.state.number(),
            id,
            outcome,
            usage: (note.usage != Usage::default()).then_some(note.usage),
            finish: None,
            exit_code: note.exit_code,
            result,
        })
    }

    /// Applies the transition function to a record before the caller gets the record. Every record passes through this
    /// function.
    pub(super) fn apply_record(
        &mut self,
        record: SessionRecord,
    ) -> Result<SessionRecord, IllegalEvent> {
        if let Some((_, event)) = TurnEvent::of(&record) {
            self.state.apply(event)?;
        }
        Ok(record)
    }
}

fn check_entry(
    base: &Conversation,
    limits: &TurnLimits,
    decision: &CommitDecision,
) -> Result<(), StartRefusal> {
    if let Some(CommitVerdict::Stop(cause)) = decision.verdict() {
        return Err(StartRefusal::Stopped(cause.clone()));
    }
    if let Some(limit) = limits.turns_max
        && base.turns >= limit
    {
        return Err(StartRefusal::TurnsMax { limit });
    }
    if let Some(budget) = &limits.budget {
        budget.check_remaining()?;
    }
    Ok(())
}
