//! The end of a run: its background work is waited for, detached or stopped, and the session and the store are closed,
//! all within what is left until the exit.

use std::sync::Arc;

use allstop_agent::TurnErrorKind;
use allstop_core::receipt::{ConversationEffect, StopInfo};
use allstop_core::{Cause, CauseKind, Receipt, SessionId, StopReason};
use allstop_runtime::{DetachedWork, Envelope, System};
use allstop_session::StopTarget;

use super::turns::{PromptOutcomes, RunTurns, show};
use crate::display::is_worth_showing;
use crate::shell_quote::quoted;
use crate::shutdown;

impl RunTurns<'_, '_> {
    /// Ends what the turns have left, and says what the run came to.
    pub(super) async fn end(
        mut self,
        id: SessionId,
        run: PromptOutcomes,
        system: &System,
    ) -> Envelope {
        let mut envelope = Envelope::of_run(&id, &run.messages)
            .unwrap_or_else(|| Envelope::of_no_run(Some(id), StopReason::Error, None));
        if let Some(error) = run.error {
            envelope.stop_reason = StopReason::Error;
            envelope.error = Some(error);
        }
        if let Some(reason) = run.stopped {
            envelope.stop_reason = reason;
        }
        let first = envelope.receipt.as_ref();
        let first = first.map(|receipt| receipt.request().clone());
        let effect = run.messages.last().map(|turn| turn.conversation_effect());
        // The turn may have ended before its stop was told.
        while let Some(asked) = self.remote.try_next_stop() {
            self.stopped_from_elsewhere(asked);
        }
        // At the moment of the exit this waits for nothing, and names what is left.
        self.end_background(&mut envelope, effect.unwrap_or_default())
            .await;
        if !run.is_cut {
            self.close(system, &mut envelope).await;
        }
        if let Some(first) = first {
            let whole = envelope.receipt.take();
            envelope.receipt =
                whole.map(|whole| by_first_cause(first, whole, envelope.stop_reason));
        }
        let announcer = self.remote.announcer();
        if let Some(error) = &envelope.error {
            announcer.note(error.to_string());
        }
        let receipt = envelope.receipt.as_ref();
        if let Some(receipt) = receipt.filter(|receipt| is_worth_showing(receipt)) {
            announcer.receipt(receipt);
        }
        if !run.is_cut {
            // Who has asked for a stop from another terminal has its receipt before this process is gone.
            let answered = self.remote.listener.answered();
            let _answered_or_late = self.supervisor.wait_to_exit(answered, |_| {}).await;
        }
        envelope
    }

    async fn end_background(&mut self, envelope: &mut Envelope, effect: ConversationEffect) {
        if let Some(stop) = self.stop_of_background() {
            // From another terminal: what it covers is not detached, and has its grace before the session is closed.
            let stopping = self
                .supervisor
                .wait_to_exit(stop.receipt(), |_| stop.force());
            envelope.receipt = Some(stopping.await.unwrap_or_else(|| stop.account_now()));
        } else if let (Some(stop), Some(receipt)) = (&self.stop, &envelope.receipt)
            && stop.request().stop_id != *receipt.stop_id()
            && stop.covers(receipt.stop_id())
        {
            // The turn's own receipt is of a part of the stop: that covers what it had to wait for, too.
            envelope.receipt = Some(stop.account_now());
        }
        let keeps = self.background.keep_background && self.stop_of_background().is_none();
        if self.background.wait_background
            && !keeps
            && envelope.stop_reason == StopReason::Completed
            && let Some(reason) = self.wait_background().await
        {
            envelope.stop_reason = reason;
        }
        if keeps {
            for said in
                shutdown::detach_background(self.session, &self.flags, self.supervisor).await
            {
                self.view.warn(&said);
            }
        }
        let stopped = self.stop_background().await;
        // Last: what is let go before its stop has been accepted runs on.
        let let_go = self.session.detached_work();
        envelope.background = let_go.iter().filter_map(DetachedWork::of).collect();
        let Some(background) = stopped else {
            if let (None, Some(stop)) = (&envelope.receipt, &self.stop)
                && envelope.stop_reason != StopReason::Completed
            {
                envelope.receipt = Some(stop.account_now());
            }
            return;
        };
        let turn = envelope.receipt.take();
        let whole = match &turn {
            // The turn had a stop of its own before, which has named the background work as outside of its extent.
            Some(turn) if !self.stops_all() => {
                let request = StopInfo {
                    target: Arc::clone(&background.request().target),
                    extent: background.request().extent,
                    ..turn.request().clone()
                };
                Receipt::of_parts(request, &[Arc::clone(turn), background])
            }
            _ => Receipt::clone(&background),
        };
        let conversation = turn.as_deref().map_or(effect, Receipt::conversation);
        let whole = whole
            .with_conversation(conversation)
            .with_usage(envelope.usage);
        envelope.cancel_observed = match &turn {
            Some(turn) => turn.cancel_observed() && whole.cancel_observed(),
            None => whole.cancel_observed() && envelope.stop_reason != StopReason::Completed,
        };
        envelope.receipt = Some(Arc::new(whole));
    }

    /// Stops the background work that still runs. The receipt, if anything did.
    async fn stop_background(&mut self) -> Option<Arc<Receipt>> {
        let mut works = self.session.background().into_iter();
        let stop = match &self.stop {
            Some(stop) if self.stops_all() => stop.clone(),
            _ if !works.any(|work| work.is_running()) => return None,
            _ => {
                let cause = Cause::new(CauseKind::Parent)
                    .detail("the run has ended")
                    .by("cli");
                self.session.stop(&StopTarget::Process, cause)
            }
        };
        let receipt = self
            .supervisor
            .wait_to_exit(stop.receipt(), |_| stop.force())
            .await;
        Some(receipt.unwrap_or_else(|| stop.account_now()))
    }

    /// Closes the session, saves the recording and closes the store, unless that has failed: then there is nothing to
    /// wait for.
    async fn close(&mut self, system: &System, envelope: &mut Envelope) {
        let error = envelope.error.as_ref();
        let is_quiet = envelope
            .receipt
            .as_ref()
            .is_none_or(|receipt| receipt.quiet());
        let closing = shutdown::SessionClosing {
            session: self.session,
            system,
            store_failed: error.is_some_and(|error| error.kind == TurnErrorKind::Store),
            // What a ladder has not ended need not be asked again.
            force: !is_quiet,
        };
        let (events, view, remote) = (&mut self.events, &mut *self.view, &self.remote);
        let mut is_idle = self.owner_idle;
        let idle = async {
            while !is_idle && let Some(event) = events.next().await {
                is_idle = show(view, remote, &event);
            }
        };
        let closed = closing.close(self.supervisor, idle).await;
        if let Some(late) = closed.receipt {
            envelope.cancel_observed &= late.cancel_observed();
            envelope.receipt = Some(match envelope.receipt.take() {
                Some(first) if first.stop_id() != late.stop_id() => {
                    let request = first.request().clone();
                    let effect = first.conversation();
                    let whole = Receipt::of_parts(request, &[first, late]);
                    Arc::new(whole.with_conversation(effect).with_usage(envelope.usage))
                }
                _ => late,
            });
        }
        match closed.recording {
            Some(Ok(path)) => {
                let script = format!("script:{}", path.display());
                let said = format!("recorded: allstop run --model {} \"…\"", quoted(&script));
                self.view.note(&said);
            }
            Some(Err(why)) => self.view.warn(&why),
            None => {}
        }
    }
}

/// The receipt of the whole run under the cause that its stop reason is of: the turn may have been stopped for another one,
/// just before the stop of everything.
fn by_first_cause(first: StopInfo, whole: Arc<Receipt>, reason: StopReason) -> Arc<Receipt> {
    let is_of = |cause: &Cause| cause.kind.stop_reason() == Some(reason);
    if !is_of(&first.cause) || is_of(whole.cause()) {
        return whole;
    }
    let request = StopInfo {
        target: Arc::clone(&whole.request().target),
        extent: whole.request().extent,
        ..first
    };
    Arc::new(Receipt::of_parts(request, &[whole]))
}

#[cfg(test)]
mod tests {
    use allstop_core::receipt::StopFindings;
    use allstop_core::{Extent, StopId, Timestamp};

    use super::*;

    fn stop(id: &str, kind: CauseKind, at: i64) -> StopInfo {
        StopInfo {
            stop_id: StopId::new(id),
            target: "session/s".into(),
            extent: Extent::Process,
            cause: Cause::new(kind),
            requested_at: Timestamp::from_unix_ms(at),
        }
    }

    #[test]
    fn the_receipt_of_a_run_has_the_cause_that_its_stop_reason_is_of() {
        let (deadline, term) = (
            stop("1", CauseKind::Deadline, 10),
            stop("2", CauseKind::Shutdown, 15),
        );
        let receipt = |request: &StopInfo| {
            Arc::new(Receipt::of_stop(request.clone(), StopFindings::default()))
        };
        let whole = by_first_cause(deadline.clone(), receipt(&term), StopReason::Timeout);
        assert_eq!(whole.request(), &deadline);
        assert!(whole.quiet() && whole.quiet_after_ms().is_some());
        // A turn that completed, and left something that its end had to stop.
        let leftover = stop("3", CauseKind::Parent, 5);
        let whole = by_first_cause(leftover, receipt(&term), StopReason::Shutdown);
        assert_eq!(whole.request(), &term);
        let whole = by_first_cause(term.clone(), receipt(&term), StopReason::Shutdown);
        assert_eq!(whole.request(), &term);
    }
}
