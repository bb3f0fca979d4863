//! What others may do to a run while it runs, beside stopping it: stop one of its calls, hand it a message, send a call
//! to the background.
//!
//! Invariants:
//! 1. A message that was taken by [`RunControls::steer`] is either in the turn, or in [`RunControls::undelivered`]: the
//!    box closes in the same step in which the turn sees that it is empty and commits.
//!    One that was withdrawn is never in the turn.
//! 2. A call can be stopped from the moment in which the model has asked for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use allstop_core::decision::{Decision, DecisionState};
use allstop_core::turn::{CallNote, StopPolicy};
use allstop_core::{CallId, Cause, CauseKind, Extent, MessageId, Usage};
use allstop_scope::{Scope, Stop, StopOrder};
use allstop_tools::{CallLink, NotPromotable};
use parking_lot::Mutex;

use crate::after_turn::{AfterTurn, TurnInterrupted};
use crate::outcome::TurnOutcome;

/// What others may do to a run while it runs.
#[derive(Debug, Default)]
pub struct RunControls {
    /// The calls of the running turn, or of the last one.
    calls: Mutex<HashMap<CallId, ControlledCall>>,
    steered: Mutex<SteerBox>,
    superseded: OnceLock<StopPolicy>,
    /// The agent's own stop policy, once a turn has begun.
    stop_policy: OnceLock<StopPolicy>,
    /// The decision of the running turn, or of the last one.
    decision: Mutex<Option<Arc<Decision>>>,
    after_turn: AfterTurn,
    meter: ModelMeter,
    /// Steps that have begun, and usage of the model calls that have ended.
    so_far: Mutex<(u32, Usage)>,
}

/// Who hears at once what each model call has used.
#[derive(Default)]
struct ModelMeter(Option<Box<dyn Fn(Usage) + Send + Sync>>);

impl fmt::Debug for ModelMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelMeter")
            .field(&self.0.is_some())
            .finish()
    }
}

#[derive(Debug)]
struct ControlledCall {
    scope: Scope,
    link: CallLink,
}

/// A message for the running turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredMessage {
    /// Its id.
    pub id: MessageId,
    /// The user's words.
    pub text: Arc<str>,
}

#[derive(Debug, Default)]
struct SteerBox {
    // Bounded by whoever lets messages in: a session counts what waits.
    messages: Vec<SteeredMessage>,
    /// Taken back before the turn took them.
    withdrawn: Vec<SteeredMessage>,
    /// What the turn has taken.
    taken: Vec<MessageId>,
    closed: bool,
}

impl RunControls {
    /// Those of a run whose model calls `meter` hears of, each when it has ended: so that nothing is lost if the run's
    /// outcome never comes.
    pub(crate) fn metered_by(meter: impl Fn(Usage) + Send + Sync + 'static) -> Self {
        Self {
            meter: ModelMeter(Some(Box::new(meter))),
            ..Self::default()
        }
    }

    /// A step has begun.
    pub(crate) fn begin_step(&self) {
        self.so_far.lock().0 += 1;
    }

    /// A model call has ended, and used this.
    pub(crate) fn meter_model(&self, usage: Usage) {
        self.so_far.lock().1 += usage;
        if let Some(meter) = &self.meter.0 {
            meter(usage);
        }
    }

    /// Progress of the ending of the running turn, or of the last one; `None` before the first. Whoever has to account
    /// for a run without its outcome asks here: a turn that is [`DecisionState::Committing`] is not cancelled, it ends
    /// with [`TurnError::ending_unknown`](crate::TurnError::ending_unknown).
    pub fn decision_state(&self) -> Option<DecisionState> {
        let decision = self.decision.lock();
        decision.as_ref().map(|decision| decision.state())
    }

    /// The interrupt that ends the running turn, or the last one, without a commit, while that is being written.
    pub fn interrupted_turn(&self) -> Option<TurnInterrupted> {
        self.after_turn.interrupted()
    }

    /// The outcome of the running turn, or of the last one, while its hooks are told.
    pub fn ended_turn(&self) -> Option<TurnOutcome> {
        self.after_turn.outcome()
    }

    /// Stops the hooks that are told of the turn's ending: a stop of the turn that comes after its commit covers them
    /// alone. `None` where none run; none starts from now on.
    pub fn stop_hooks(&self, order: StopOrder) -> Option<Stop> {
        self.after_turn.stop_hooks(order)
    }

    pub(crate) fn after_turn(&self) -> &AfterTurn {
        &self.after_turn
    }

    /// Stops one call; its siblings and the turn go on, and the model is told. `None`: no such call was asked for in
    /// the running turn or the last one.
    pub fn stop_call(&self, id: &CallId, cause: Cause) -> Option<Stop> {
        let scope = self.call(id)?;
        Some(scope.stop(StopOrder::new(Extent::Call, cause)))
    }

    /// The scope of a call, if it was asked for in the running turn or the last one. One of a sub-agent is named by the
    /// calls that it lies in, `call_1/call_2`; once that has ended, whose call it was answers for it.
    pub fn call(&self, id: &CallId) -> Option<Scope> {
        let calls = self.calls.lock();
        if let Some(call) = calls.get(id) {
            return Some(call.scope.clone());
        }
        let (outer, _) = id.as_str().split_once('/')?;
        let outer = calls.get(&CallId::from(outer))?.scope.clone();
        drop(calls);
        let inner = outer.find_unit(id.as_str());
        inner.or_else(|| (outer.check().is_err() && outer.is_quiet()).then_some(outer))
    }

    /// The calls that run.
    pub fn running_calls(&self) -> Vec<CallId> {
        let calls = self.calls.lock();
        let running = calls.iter().filter(|(_, call)| !call.scope.is_quiet());
        running.map(|(id, _)| id.clone()).collect()
    }

    /// Asks a running call to go on in the background.
    ///
    /// # Errors
    /// If there is no such call, or its tool does not know how.
    pub fn promote(&self, id: &CallId) -> Result<(), NotPromotable> {
        let calls = self.calls.lock();
        let call = calls.get(id).filter(|call| !call.scope.is_quiet());
        call.ok_or(NotPromotable)?.link.promote()
    }

    /// Hands a message to the running turn, which takes it before its next step.
    ///
    /// # Errors
    /// The message, if the turn takes none any more.
    pub fn steer(&self, message: SteeredMessage) -> Result<(), SteeredMessage> {
        let mut steered = self.steered.lock();
        if steered.closed {
            return Err(message);
        }
        steered.messages.push(message);
        Ok(())
    }

    /// Takes a message back, unless the turn has taken it: returns whether it could. It is undelivered then.
    pub fn withdraw(&self, id: &MessageId) -> bool {
        let mut steered = self.steered.lock();
        let found = steered
            .messages
            .iter()
            .position(|message| message.id == *id);
        if let Some(at) = found {
            let message = steered.messages.remove(at);
            steered.withdrawn.push(message);
        }
        !steered.taken.contains(id)
    }

    /// Whether the turn has taken a message: it is a part of it.
    pub fn has_taken(&self, id: &MessageId) -> bool {
        self.steered.lock().taken.contains(id)
    }

    /// Closes the box, and gives back what the turn did not take.
    pub fn undelivered(&self) -> Vec<SteeredMessage> {
        let mut steered = self.steered.lock();
        steered.closed = true;
        let mut undelivered = std::mem::take(&mut steered.withdrawn);
        undelivered.append(&mut steered.messages);
        undelivered
    }

    /// Says what a stop with the cause `superseded` leaves of the turn, whatever the agent's own policy is. The first
    /// one to say it decides.
    pub fn supersede_with(&self, policy: StopPolicy) {
        // Said before: then that stands.
        let _ = self.superseded.set(policy);
    }

    /// What a stop with this cause leaves of the turn; `None` before the turn has begun.
    pub fn stop_policy(&self, cause: &Cause) -> Option<StopPolicy> {
        let superseded = self.superseded.get().copied();
        let superseded = superseded.filter(|_| cause.kind == CauseKind::Superseded);
        superseded.or(self.stop_policy.get().copied())
    }

    /// A turn begins: its calls can be asked for, and messages are taken.
    pub(crate) fn begin_turn(&self, decision: &Arc<Decision>, policy: StopPolicy) {
        // Every turn of a run has the same.
        let _ = self.stop_policy.set(policy);
        *self.decision.lock() = Some(Arc::clone(decision));
        self.after_turn.reset();
        self.calls.lock().clear();
        self.steered.lock().closed = false;
    }

    /// The turn has ended, and with it the time that its calls were given.
    pub(crate) fn end_turn(&self) {
        self.calls
            .lock()
            .values()
            .for_each(|call| call.scope.close());
    }

    pub(crate) fn add_call(&self, id: CallId, scope: Scope, link: CallLink) {
        self.calls.lock().insert(id, ControlledCall { scope, link });
    }

    pub(crate) fn link(&self, id: &CallId) -> CallLink {
        let calls = self.calls.lock();
        calls
            .get(id)
            .map(|call| call.link.clone())
            .unwrap_or_default()
    }

    /// What calls have told beside their results.
    pub(crate) fn call_notes(&self) -> Vec<(CallId, CallNote)> {
        let calls = self.calls.lock();
        let notes = calls
            .iter()
            .map(|(id, call)| (id.clone(), note_of(&call.link)));
        notes.collect()
    }

    /// Metered usage of the run so far: its model calls that have ended, and what its tool calls have told.
    pub fn usage(&self) -> Usage {
        let calls = self.call_notes().into_iter();
        let models = self.so_far.lock().1;
        calls.fold(models, |sum, (_, note)| sum + note.usage)
    }

    /// Steps of the run that have begun.
    pub fn steps(&self) -> u32 {
        self.so_far.lock().0
    }

    /// The messages that wait for the turn's next step.
    pub(crate) fn take_steered(&self) -> Vec<SteeredMessage> {
        let mut steered = self.steered.lock();
        let messages = std::mem::take(&mut steered.messages);
        let taken = messages.iter().map(|message| message.id.clone());
        steered.taken.extend(taken);
        messages
    }

    /// Gives back, in order, what the turn could not take: a stop was first.
    pub(crate) fn give_back(&self, messages: impl IntoIterator<Item = SteeredMessage>) {
        let mut steered = self.steered.lock();
        let messages: Vec<_> = messages.into_iter().collect();
        let is_back = |id: &MessageId| messages.iter().any(|message| message.id == *id);
        steered.taken.retain(|id| !is_back(id));
        steered.messages.splice(..0, messages);
    }

    /// Whether a message waits. If none does, none is taken any more: the turn is about to commit.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut steered = self.steered.lock();
        steered.closed = steered.messages.is_empty();
        steered.closed
    }
}

/// What a call has told beside its result.
pub(crate) fn note_of(link: &CallLink) -> CallNote {
    CallNote {
        usage: link.metered(),
        exit_code: link.exit_code(),
    }
}
