//! Ending of a turn: a commit, or a stop with a receipt. The receipt lists the work that the stop ended and the work
//! that still runs. The record of the ending is written outside the stopped scope.

mod hooks;
mod unstarted_turn;
mod write;

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ConversationEffect, NothingToStop, StopInfo};
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{NotCommittedReason, StopPolicy, StoppedTurn, TurnStop};
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_scope::{PartReceipt, Scope, StopRequest};
use allstop_tools::Denial;

use hooks::call_end_hooks;
pub(super) use unstarted_turn::end_unstarted_turn;
use write::{NotWritten, write};

use super::{RunningTurn, TurnCx, TurnInterrupt};
use crate::ending_turn::InterruptReason;
use crate::error::{TurnError, TurnErrorKind};
use crate::event::AgentEvent;
use crate::history::RunHistory;
use crate::outcome::TurnOutcome;

/// Maximum wait for a stop that has closed the barrier of an outer scope.
const STOP_REACHES_MAX: Duration = Duration::from_millis(100);

impl RunningTurn<'_> {
    /// Commits the turn, unless a stop is first.
    pub(super) async fn commit(mut self, output: Arc<str>) -> TurnOutcome {
        self.work.stopped_if_overdue().await;
        let of_background = self.take_background();
        self.pending.extend(of_background);
        let at = self.now();
        let commit = match self.draft.commit(at) {
            Ok(commit) => commit,
            Err(not) => {
                self.draft = not.draft;
                let interrupt = match not.why {
                    NotCommittedReason::Stopped(_) => TurnInterrupt::Stopped,
                    NotCommittedReason::Illegal(illegal) => illegal.into(),
                    NotCommittedReason::DecisionUsed => TurnInterrupt::Failed(TurnError {
                        kind: TurnErrorKind::Bug,
                        message: not.why.to_string(),
                        hint: None,
                    }),
                };
                return Box::pin(self.end(interrupt)).await;
            }
        };
        // From here on no stop changes the ending of the turn.
        self.nested.close();
        let (cx, history, scope) = (self.cx, self.history, self.scope);
        let (turn, steps, usage) = (
            commit.state().number(),
            commit.state().steps(),
            commit.metered(),
        );
        let mut records = self.pending;
        // If the store refuses the commit, it refuses the whole append. Then these records are appended again, with the
        // ending of the stopped turn.
        let before = records.clone();
        records.push(commit.record().clone());
        let mut outcome = TurnOutcome {
            turn,
            stop_reason: StopReason::Completed,
            cause: None,
            output,
            finish: Some(self.finish),
            steps,
            usage,
            receipt: join_receipts(&scope.label(), &self.leftovers),
            denials: all_denials(cx, self.denials),
            error: None,
            conversation: Arc::default(),
            lost: None,
            summary: self.view.into_summary(),
            is_ending_known: true,
            is_ending_written: true,
        };
        let lost = commit.lost_unless_written();
        cx.controls.ending_turn().set_unwritten(lost);
        match write(history, records, &scope).await {
            Ok(()) => {
                outcome.conversation = commit.publish();
                outcome.lost = outcome.conversation.lost_calls_of(turn).cloned();
                history.publish(Arc::clone(&outcome.conversation));
            }
            Err(failed) => {
                outcome.stop_reason = StopReason::Error;
                outcome.output = "".into();
                (outcome.finish, outcome.summary) = (None, None);
                outcome.is_ending_known = failed.is_known();
                outcome.is_ending_written = false;
                let error = TurnError::from(failed);
                outcome.cause = Some(Cause::new(CauseKind::Failure).detail(error.message.clone()));
                outcome.conversation = if outcome.is_ending_known {
                    let mut stopped = commit.fail(error.message.clone(), (cx.parts.now)());
                    // The store has just failed. If this append fails too, the next start of the session writes the
                    // ending.
                    let records = std::mem::take(&mut stopped.records);
                    let ending = before.into_iter().chain(records).collect();
                    match Box::pin(write(history, ending, &scope)).await {
                        Ok(()) => outcome.is_ending_written = true,
                        Err(second) => stopped.not_written(second.is_known()),
                    }
                    outcome.is_ending_known = stopped.effect != ConversationEffect::Unknown;
                    history.publish(Arc::clone(&stopped.conversation));
                    outcome.lost = stopped.lost;
                    stopped.conversation
                } else {
                    outcome.lost = commit.lost_unless_written();
                    commit.leave_unconfirmed()
                };
                if !outcome.is_ending_known {
                    let of_a_call = outcome.receipt.as_deref().cloned();
                    outcome.receipt = of_a_call.map(|receipt| {
                        Arc::new(receipt.with_conversation(ConversationEffect::Unknown))
                    });
                }
                outcome.error = Some(error);
            }
        }
        give_back_unwritten(cx, history);
        cx.controls.end_turn();
        self.work.close();
        scope.close();
        drop(self.engine);
        cx.controls.ending_turn().set_outcome(&outcome);
        if !cx.parts.hooks.is_empty() {
            Box::pin(call_end_hooks(cx, history, &outcome)).await;
        }
        outcome
    }

    /// Ends the turn by a stop: stops the scope, unless it is already stopped, and then the draft (the running turn).
    pub(super) async fn end(mut self, interrupt: TurnInterrupt) -> TurnOutcome {
        self.wait_for_stop(&interrupt).await;
        let (cause, reason, error) = self.why(&interrupt);
        self.cx
            .controls
            .ending_turn()
            .set_interrupt(InterruptReason {
                cause: cause.clone(),
                reason,
                error: error.clone(),
            });
        let is_stop = matches!(interrupt, TurnInterrupt::Inactivity(_)) || self.scope.is_stopped();
        let account = self.begin_account(cause.clone());
        let policy = stop_policy(self.cx, &cause);
        // If no stop of this turn was requested, or an earlier stop has a separate receipt, this receipt is needed only
        // if it lists work.
        let needs_work = !is_stop || self.cx.controls.was_stopped_before();
        let receipt = match account {
            Some(stop) => ending_receipt(self.cx, stop.receipt().await, needs_work, policy),
            None => None,
        };
        self.activity.send_rest();
        self.nested.close();
        let at = self.now();
        let stop = TurnStop {
            cause,
            reason,
            policy,
            at,
            receipt,
            partial: self.activity.partial_step(),
            texts: self.cx.parts.settings.call_texts.clone(),
            path: self.scope.item_path(),
        };
        for (id, note) in self.cx.controls.call_notes() {
            self.draft.set_call_side_data(id, note);
        }
        let of_background = self.take_background();
        self.pending.extend(of_background);
        let stopped = self.draft.stop(stop);
        let lost = stopped.lost_unless_written();
        self.cx.controls.ending_turn().set_unwritten(lost);
        for record in &stopped.records {
            // The receipt of the outermost turn may know more about the other calls.
            if let SessionRecord::CallFinished { id, outcome, .. } = record
                && *outcome != CallOutcome::Unknown
            {
                self.cx.controls.report_end(id, *outcome, &Arc::default());
            }
        }
        let (cx, history, scope) = (self.cx, self.history, self.scope);
        let denials = all_denials(cx, self.denials);
        let mut ended = write_stopped(history, &scope, self.pending, stopped).await;
        give_back_unwritten(cx, history);
        ended.denials = denials;
        ended.error = error.or(ended.error);
        scope.close();
        cx.controls.ending_turn().set_outcome(&ended);
        call_end_hooks(cx, history, &ended).await;
        cx.controls.end_turn();
        self.work.close();
        ended
    }

    /// If a stop of an outer scope has refused a start, but has not reached the scope of the turn yet, waits until it has.
    /// Otherwise the turn would begin a second stop, with another cause and another receipt.
    pub(super) async fn wait_for_stop(&self, interrupt: &TurnInterrupt) {
        if matches!(interrupt, TurnInterrupt::Stopped) && !self.work.is_stopped() {
            // A stop reaches all of its scopes within microseconds. Without a stop, the turn ends by itself.
            let _reached = tokio::time::timeout(STOP_REACHES_MAX, self.scope.stopped()).await;
        }
    }

    /// Stops the turn's scope, or joins the stop that already covers this scope. The first call begins the turn's part
    /// of the receipt, while the work that belongs in the receipt is still registered. The first call also sends the
    /// live event immediately, not after the stop.
    pub(super) fn begin_account(&mut self, cause: Cause) -> Option<Arc<PartReceipt>> {
        if self.account.is_none() {
            self.cx.events.send(|| AgentEvent::StopHeard {
                cause: cause.clone(),
            });
            if !self.scope.is_stopped() {
                let mut order = StopRequest::new(Extent::Turn, cause);
                order.bystanders = bystanders(self.cx);
                let _it_is_the_turns_own = self.scope.stop(order);
            }
            let account = self.scope.account(Extent::Turn, bystanders(self.cx));
            self.account = account.map(Arc::new);
            // The scope is stopped, by this call or by another one. The engine acknowledges now, so that a stop that
            // waits for the engine does not also wait for this receipt.
            self.engine.acknowledge();
        }
        self.account.clone()
    }

    /// Cause, stop reason and failure of an interrupt.
    pub(super) fn why(&self, interrupt: &TurnInterrupt) -> (Cause, StopReason, Option<TurnError>) {
        let of = |cause: Cause| {
            let reason = cause.kind.stop_reason().unwrap_or(StopReason::Error);
            (cause, reason, None)
        };
        match interrupt {
            TurnInterrupt::Stopped => {
                let cause = self.scope.cause().or_else(|| self.work.cause());
                of(cause.unwrap_or_else(|| Cause::new(CauseKind::Parent)))
            }
            TurnInterrupt::Inactivity(cause) => of(cause.clone()),
            TurnInterrupt::Refused(refusal) => (refusal.cause(), refusal.reason(), None),
            TurnInterrupt::Loop(found) => {
                let cause = Cause::new(CauseKind::Guardrail).detail(found.to_string());
                (cause, StopReason::LoopDetected, None)
            }
            TurnInterrupt::Guardrail(reason) => {
                of(Cause::new(CauseKind::Guardrail).detail(reason.clone()))
            }
            TurnInterrupt::Failed(error) => {
                let cause = Cause::new(CauseKind::Failure).detail(error.message.clone());
                (cause, StopReason::Error, Some(error.clone()))
            }
        }
    }
}

/// Denied calls of the turn, followed by those of its sub-agents.
fn all_denials(cx: TurnCx<'_>, mut of_turn: Vec<Denial>) -> Vec<Denial> {
    of_turn.extend(cx.controls.denials_of_sub_agents());
    of_turn
}

/// Policy that determines which part of the turn stays in the conversation after the stop.
fn stop_policy(cx: TurnCx<'_>, cause: &Cause) -> StopPolicy {
    let policy = cx.controls.stop_policy(cause);
    policy.unwrap_or(cx.parts.settings.stop_policy)
}

/// Writes the ending of a turn that was not committed, after `records`. The outcome contains only confirmed facts.
async fn write_stopped(
    history: &mut RunHistory,
    scope: &Scope,
    mut records: Vec<SessionRecord>,
    mut stopped: StoppedTurn,
) -> TurnOutcome {
    if records.is_empty() {
        records = std::mem::take(&mut stopped.records);
    } else {
        records.append(&mut stopped.records);
    }
    let is_lost = stopped.cause.kind == CauseKind::LeaseLost;
    let written = if is_lost {
        // Another process has taken over the session. That process writes the missing ending.
        Ok(())
    } else {
        write(history, records, scope).await
    };
    if let Err(failed) = &written {
        stopped.not_written(failed.is_known());
    }
    history.publish(Arc::clone(&stopped.conversation));
    TurnOutcome {
        turn: stopped.state.number(),
        stop_reason: stopped.reason,
        cause: Some(stopped.cause),
        output: "".into(),
        finish: None,
        steps: stopped.state.steps(),
        usage: stopped.state.metered(),
        receipt: stopped.receipt,
        denials: Vec::new(),
        is_ending_known: written.as_ref().err().is_none_or(NotWritten::is_known)
            && stopped.effect != ConversationEffect::Unknown,
        is_ending_written: written.is_ok() && !is_lost,
        error: written.err().map(|failed| match stopped.effect {
            ConversationEffect::Unchanged if !failed.is_known() => TurnError::stop_unconfirmed(),
            _ => failed.into(),
        }),
        lost: stopped.lost,
        summary: None,
        conversation: stopped.conversation,
    }
}

/// Returns unwritten records of background work to the session's background work, for the next append. The work itself
/// continues.
fn give_back_unwritten(cx: TurnCx<'_>, history: &mut RunHistory) {
    if let Some(background) = cx.background {
        background.give_back(history.take_refused_records());
    }
}

/// Receipt for the ending of the turn, including orphaned work (background work of earlier processes). If `needs_work`
/// is true and the receipt lists no work of the turn, the result depends on the policy. Under the policy `keep`, the
/// result is an empty receipt, which reports the effect on the conversation; otherwise the result is `None`.
fn ending_receipt(
    cx: TurnCx<'_>,
    receipt: Arc<Receipt>,
    needs_work: bool,
    policy: StopPolicy,
) -> Option<Receipt> {
    if needs_work && !receipt.lists_work() {
        let empty = || {
            let request = receipt.request().clone();
            Receipt::empty(request, NothingToStop::AlreadyEnded)
        };
        return (policy == StopPolicy::Keep).then(empty);
    }
    let left = cx.background.map(|background| background.left());
    Some(Arc::unwrap_or_clone(receipt).with_outside_items(left.unwrap_or_default()))
}

fn bystanders(cx: TurnCx<'_>) -> Vec<Scope> {
    cx.background
        .map(|background| background.whole())
        .into_iter()
        .collect()
}

/// Joins several receipts into one receipt, which has the request of the first receipt. `None` if `receipts` is empty.
fn join_receipts(target: &Arc<str>, receipts: &[Arc<Receipt>]) -> Option<Arc<Receipt>> {
    let (first, rest) = receipts.split_first()?;
    if rest.is_empty() {
        return Some(Arc::clone(first));
    }
    let request = StopInfo {
        target: Arc::clone(target),
        extent: Extent::Turn,
        ..first.request().clone()
    };
    Some(Arc::new(Receipt::merge_parts(request, receipts)))
}
