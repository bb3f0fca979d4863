//! Control of a run in progress. A run is a sequence of turns. The control can stop one call, send a message to the
//! running turn, and move a call to the background. A stop of the whole run is a separate operation.
//!
//! Invariants:
//! 1. A message accepted by [`RunControls::steer`] is later either in the turn or in [`RunControls::undelivered`].
//!    Before a commit, the turn checks that the queue is empty, and closes the queue, in one critical section. A
//!    withdrawn message is never in the turn.
//! 2. A call can be stopped as soon as the model has requested it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use allstop_core::decision::{CommitDecision, DecisionState};
use allstop_core::record::CallOutcome;
use allstop_core::turn::{CallEffect, CallSideData, Conversation, StopPolicy};
use allstop_core::{CallId, Cause, CauseKind, Extent, Images, MessageId, ToolCall, Usage};
use allstop_scope::{Scope, Stop, StopRequest};
use allstop_tools::{CallJournal, CallLink, Denial, NotPromotable};
use parking_lot::Mutex;

use crate::ending_turn::{EndingTurn, InterruptReason, UnwrittenEnding};
use crate::outcome::TurnOutcome;

/// Control of a run in progress, in addition to a stop of the whole run.
#[derive(Debug, Default)]
pub struct RunControls {
    /// Calls of the running turn or, if no turn runs, of the last turn.
    calls: Mutex<HashMap<CallId, ControlledCall>>,
    steered: Mutex<SteerQueue>,
    superseded: OnceLock<StopPolicy>,
    /// True if the run was stopped before its message was sent.
    stopped_before: AtomicBool,
    /// Stop policy of the agent, set when the first turn begins.
    stop_policy: OnceLock<StopPolicy>,
    /// Decision of the running turn or, if no turn runs, of the last turn.
    decision: Mutex<Option<Arc<CommitDecision>>>,
    ending_turn: EndingTurn,
    /// Set for the run of a sub-agent.
    enclosing: Option<EnclosingCalls>,
    totals: Mutex<RunTotals>,
}

/// Totals of the run so far.
#[derive(Debug, Default)]
struct RunTotals {
    /// Steps begun.
    steps: u32,
    /// Usage of the finished model calls, and of the tool calls of earlier turns.
    usage: Usage,
}

/// Calls that wait for the run of a sub-agent.
#[derive(Debug)]
pub(crate) struct EnclosingCalls {
    /// The calls, the outermost one first. All of them receive the usage of the sub-agent.
    pub(crate) calls: Vec<CallLink>,
    /// Conversation of the outermost agent, which lists the earlier calls with an unknown outcome.
    pub(crate) conversation: Arc<Conversation>,
}

#[derive(Debug)]
struct ControlledCall {
    scope: Scope,
    link: CallLink,
}

/// A message for the running turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredMessage {
    /// Id of the message.
    pub id: MessageId,
    /// Text of the user.
    pub text: Arc<str>,
    /// Images of the user.
    pub images: Images,
}

#[derive(Debug, Default)]
struct SteerQueue {
    // The sender bounds the length: a session limits the number of waiting messages.
    messages: Vec<SteeredMessage>,
    /// Messages withdrawn before the turn took them.
    withdrawn: Vec<SteeredMessage>,
    /// Ids of the messages that the turn has taken.
    taken: Vec<MessageId>,
    closed: bool,
}

impl RunControls {
    /// Creates the controls of a sub-agent's run. The enclosing calls receive the usage of each model call when the call
    /// ends, so no usage is lost if the run never reports its outcome.
    pub(crate) fn of_sub_agent(enclosing: EnclosingCalls) -> Self {
        Self {
            enclosing: Some(enclosing),
            ..Self::default()
        }
    }

    /// Journal for the calls of this run, if it is the run of a sub-agent that a turn waits for.
    pub(crate) fn journal(&self) -> Option<Arc<dyn CallJournal>> {
        self.enclosing.as_ref()?.calls.first()?.journal()
    }

    /// True if this is the run of a sub-agent that has moved to the background.
    pub(crate) fn has_moved(&self) -> bool {
        let outermost = self.enclosing.as_ref().and_then(|one| one.calls.first());
        outermost.is_some_and(CallLink::is_handed_over)
    }

    /// In the run of a sub-agent: reports the end of a call to the journal.
    pub(crate) fn report_end(&self, id: &CallId, outcome: CallOutcome, content: &Arc<str>) {
        let Some(journal) = self.journal() else {
            return;
        };
        let scope = self.calls.lock().get(id).map(|call| call.scope.clone());
        if let Some(path) = scope.and_then(|scope| scope.item_path()) {
            journal.end(CallId::new(path), outcome, Arc::clone(content));
        }
    }

    /// In the run of a sub-agent: reports a denied call to the enclosing calls.
    pub(crate) fn report_denial(&self, denial: &Denial) {
        for call in self.enclosing.iter().flat_map(|enclosing| &enclosing.calls) {
            call.denied(denial.clone());
        }
    }

    /// Denied calls of the sub-agents that the calls of the turn ran.
    pub(crate) fn denials_of_sub_agents(&self) -> Vec<Denial> {
        let calls = self.calls.lock();
        let mut denials: Vec<_> = calls
            .values()
            .flat_map(|call| call.link.denials())
            .collect();
        // The calls have no order, so the paths of the denied calls decide.
        denials.sort_by(|one, other| one.call_id.cmp(&other.call_id));
        denials
    }

    /// The call of an earlier turn of the outermost agent that this call of a sub-agent would repeat, if the outcome of
    /// the earlier call is unknown.
    pub(crate) fn repeats_uncertain(&self, call: &ToolCall) -> Option<&CallEffect> {
        self.enclosing.as_ref()?.conversation.uncertain_call(call)
    }

    pub(crate) fn begin_step(&self) {
        self.totals.lock().steps += 1;
    }

    pub(crate) fn meter_model(&self, usage: Usage) {
        self.totals.lock().usage += usage;
        for call in self.enclosing.iter().flat_map(|enclosing| &enclosing.calls) {
            call.meter(usage);
        }
    }

    /// Progress of the ending of the running turn or, if no turn runs, of the last turn; `None` before the first turn.
    /// A caller that has no outcome of the run can report this state. A turn in [`DecisionState::Committing`] is not
    /// cancelled: such a turn ends with [`TurnError::ending_unknown`](crate::TurnError::ending_unknown).
    pub fn decision_state(&self) -> Option<DecisionState> {
        let decision = self.decision.lock();
        decision.as_ref().map(|decision| decision.state())
    }

    /// Interrupt that ends the running turn without a commit. If no turn runs, the interrupt that ended the last turn.
    /// Set before the ending of the turn is written.
    pub fn interrupted_turn(&self) -> Option<InterruptReason> {
        self.ending_turn.interrupted()
    }

    /// Ending of the running turn while the store has not confirmed it.
    pub fn unwritten_ending(&self) -> Option<UnwrittenEnding> {
        self.ending_turn.unwritten()
    }

    /// Outcome of the running turn or, if no turn runs, of the last turn. Set after the ending of the turn is written,
    /// before the hooks after the turn run.
    pub fn ended_turn(&self) -> Option<TurnOutcome> {
        self.ending_turn.outcome()
    }

    /// Prevents further hooks after the turn, and returns the scope of the running hooks. A stop that arrives after the
    /// commit covers only these hooks.
    pub fn forbid_hooks_after_turn(&self) -> Option<Scope> {
        self.ending_turn.forbid_hooks()
    }

    pub(crate) fn ending_turn(&self) -> &EndingTurn {
        &self.ending_turn
    }

    /// Stops one call. The other calls and the turn continue. The result of the stopped call informs the model of the
    /// stop. `None` if the running turn (or the last turn, if no turn runs) requested no such call.
    pub fn stop_call(&self, id: &CallId, cause: Cause) -> Option<Stop> {
        let scope = self.call(id)?;
        Some(scope.stop(StopRequest::new(Extent::Call, cause)))
    }

    /// Stops one call with cause `user`. True if this request has stopped the call; false if the call is unknown, has ended
    /// or is stopped already.
    pub fn cancel_call(&self, id: &CallId) -> bool {
        let Some(scope) = self.call(id) else {
            return false;
        };
        let request = StopRequest::new(Extent::Call, CauseKind::User.into());
        let accepted = scope.accept_stop_of(std::slice::from_ref(&scope), request);
        let is_first = accepted.is_new();
        drop(accepted.begin());
        is_first
    }

    /// Scope of a call that the running turn or, if no turn runs, the last turn requested. The id of a sub-agent's call
    /// is a path of calls: `call_1/call_2`. After the sub-agent has ended, the scope of the outer call is returned.
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

    /// Ids of the running calls.
    pub fn running_calls(&self) -> Vec<CallId> {
        let calls = self.calls.lock();
        let running = calls.iter().filter(|(_, call)| !call.scope.is_quiet());
        running.map(|(id, _)| id.clone()).collect()
    }

    /// Asks a running call to continue in the background.
    ///
    /// # Errors
    /// If no such call is running, or if the tool of the call cannot continue in the background.
    pub fn promote(&self, id: &CallId) -> Result<(), NotPromotable> {
        let calls = self.calls.lock();
        let call = calls.get(id).filter(|call| !call.scope.is_quiet());
        call.ok_or(NotPromotable)?.link.promote()
    }

    /// Queues a message for the running turn, which takes the message before its next step.
    ///
    /// # Errors
    /// Returns the message if the turn accepts no more messages.
    pub fn steer(&self, message: SteeredMessage) -> Result<(), SteeredMessage> {
        let mut steered = self.steered.lock();
        if steered.closed {
            return Err(message);
        }
        steered.messages.push(message);
        Ok(())
    }

    /// Withdraws a message, unless the turn has already taken the message. Returns true if the turn has not taken the
    /// message, which is then undelivered.
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

    /// True if the turn has taken the message.
    pub fn has_taken(&self, id: &MessageId) -> bool {
        self.steered.lock().taken.contains(id)
    }

    /// Closes the queue and returns the messages that the turn did not take.
    pub fn undelivered(&self) -> Vec<SteeredMessage> {
        let mut steered = self.steered.lock();
        steered.closed = true;
        let mut undelivered = std::mem::take(&mut steered.withdrawn);
        undelivered.append(&mut steered.messages);
        undelivered
    }

    /// Sets the stop policy for the cause `superseded` (a newer message replaces the turn), in place of the agent's
    /// policy. Only the first call has an effect.
    pub fn supersede_with(&self, policy: StopPolicy) {
        // Ignored if the policy was set before: the first value applies.
        let _ = self.superseded.set(policy);
    }

    /// Records that an earlier stop ends the turn at its start. The earlier stop has a separate receipt.
    pub fn set_stopped_before(&self) {
        self.stopped_before.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_stopped_before(&self) -> bool {
        self.stopped_before.load(Ordering::Relaxed)
    }

    /// Sets the policy of a turn that has not begun, if a running turn of the same agent has one.
    pub fn take_stop_policy_of(&self, running: &Self) {
        if let Some(policy) = running.stop_policy.get() {
            // Ignored if the turn has begun: all turns of an agent have the same policy.
            let _ = self.stop_policy.set(*policy);
        }
    }

    /// Policy for a stop with this cause; `None` before the policy of the turn is known.
    pub fn stop_policy(&self, cause: &Cause) -> Option<StopPolicy> {
        let superseded = self.superseded.get().copied();
        let superseded = superseded.filter(|_| cause.kind == CauseKind::Superseded);
        superseded.or(self.stop_policy.get().copied())
    }

    /// Begins a turn: clears the calls of the last turn but keeps their usage, and opens the queue for messages.
    pub(crate) fn begin_turn(&self, decision: &Arc<CommitDecision>, policy: StopPolicy) {
        // All turns of a run have the same policy.
        let _ = self.stop_policy.set(policy);
        *self.decision.lock() = Some(Arc::clone(decision));
        self.ending_turn.reset();
        {
            // Locked together, so that `usage` counts each call once.
            let mut calls = self.calls.lock();
            let mut totals = self.totals.lock();
            for (_, call) in calls.drain() {
                totals.usage += call.link.metered();
            }
        }
        self.steered.lock().closed = false;
    }

    /// Ends the turn: closes the scopes of its calls, which also ends the timeouts of the calls.
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

    /// Usage and exit codes that the calls have reported.
    pub(crate) fn call_notes(&self) -> Vec<(CallId, CallSideData)> {
        let calls = self.calls.lock();
        let notes = calls
            .iter()
            .map(|(id, call)| (id.clone(), note_of(&call.link)));
        notes.collect()
    }

    /// Metered usage of the run so far: finished model calls, and usage reported by tool calls.
    pub fn usage(&self) -> Usage {
        let calls = self.calls.lock();
        let earlier = self.totals.lock().usage;
        let calls = calls.values().map(|call| call.link.metered());
        calls.fold(earlier, |sum, usage| sum + usage)
    }

    /// Number of steps that the run has begun.
    pub fn steps(&self) -> u32 {
        self.totals.lock().steps
    }

    /// Takes the messages that wait for the turn's next step.
    pub(crate) fn take_steered(&self) -> Vec<SteeredMessage> {
        let mut steered = self.steered.lock();
        let messages = std::mem::take(&mut steered.messages);
        let taken = messages.iter().map(|message| message.id.clone());
        steered.taken.extend(taken);
        messages
    }

    /// Puts back, in order, messages that the turn could not take because it was stopped.
    pub(crate) fn give_back(&self, messages: impl IntoIterator<Item = SteeredMessage>) {
        let mut steered = self.steered.lock();
        let messages: Vec<_> = messages.into_iter().collect();
        let is_back = |id: &MessageId| messages.iter().any(|message| message.id == *id);
        steered.taken.retain(|id| !is_back(id));
        steered.messages.splice(..0, messages);
    }

    /// Closes the queue if no message waits. The turn calls this method before its commit. Returns true if the queue is
    /// now closed.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut steered = self.steered.lock();
        steered.closed = steered.messages.is_empty();
        steered.closed
    }
}

/// Usage and exit code that a call has reported.
pub(crate) fn note_of(link: &CallLink) -> CallSideData {
    CallSideData {
        usage: link.metered(),
        exit_code: link.exit_code(),
    }
}

#[cfg(test)]
mod tests {
    use allstop_scope::RootOptions;

    use super::*;

    #[tokio::test]
    async fn usage_includes_the_calls_of_earlier_turns() {
        let controls = RunControls::default();
        let tokens = |input_tokens| Usage {
            input_tokens,
            ..Usage::default()
        };
        for turn in 1..=2 {
            controls.begin_turn(&Arc::default(), StopPolicy::Rollback);
            controls.meter_model(tokens(1));
            let link = CallLink::unwatched("call_1".into());
            link.meter(tokens(10));
            let scope = Scope::root("call", RootOptions::single_runtime());
            controls.add_call("call_1".into(), scope, link);
            assert_eq!(controls.usage(), tokens(11 * turn));
        }
    }
}
