//! The end of a run: background work is awaited, detached (left running on purpose) or stopped. Then the session and
//! the store are closed. No step lasts beyond the time of the exit.

use std::sync::Arc;

use allstop_agent::TurnErrorKind;
use allstop_core::turn::LostTurn;
use allstop_core::{Cause, CauseKind, SessionId, StopReason};
use allstop_runtime::{DetachedWork, Envelope, SessionCost, System};
use allstop_session::{SessionStop, StopTarget};
use allstop_tools::BackgroundWork;

use super::turns::{PromptOutcomes, RunTurns, show};
use crate::display::{describe_lost, is_worth_showing};
use crate::shell_quote::quoted;
use crate::shutdown;

impl RunTurns<'_, '_> {
    /// Ends the remaining work of the turns, and returns the envelope of the run: the JSON object with its result.
    pub(super) async fn end(
        mut self,
        id: SessionId,
        run: PromptOutcomes,
        system: &System,
    ) -> Envelope {
        let mut envelope = Envelope::of_run(&id, &run.messages)
            .unwrap_or_else(|| Envelope::of_no_run(Some(id), StopReason::Error, None));
        envelope.add_reported(self.unreported);
        if let Some(error) = run.error {
            envelope.stop_reason = StopReason::Error;
            envelope.error = Some(error);
        }
        if let Some(hint) = envelope
            .error
            .as_mut()
            .and_then(|error| error.hint.as_mut())
        {
            *hint = self.flags.complete_hint(hint);
        }
        if let Some(reason) = run.stopped {
            envelope.stop_reason = reason;
            envelope.cause = self.supervisor.control.cause().cloned();
        }
        self.take_stops_from_elsewhere();
        // If the exit time is already reached, this call does not wait. It only adds the remaining work to the
        // envelope.
        self.end_background(&mut envelope).await;
        let of_background = run.works.iter().flat_map(|work| work.denials());
        envelope.denials.extend(of_background);
        for lost in run.messages.iter().filter_map(|turn| turn.lost.as_ref()) {
            self.show_lost(lost.clone(), &run.works, &mut envelope);
        }
        if !run.is_cut {
            self.close(system, &mut envelope).await;
            // Hooks also run while the session is closed, and other terminals can stop these hooks.
            self.take_stops_from_elsewhere();
            self.finish_stop(&mut envelope).await;
        }
        envelope.output_json = self.view.output_json(&envelope);
        envelope.cost = self.view.cost.as_ref().and_then(SessionCost::total);
        let announcer = self.remote.announcer();
        if let Some(error) = &envelope.error {
            announcer.note(error.to_string());
        }
        let error = envelope.error.as_ref();
        let store_failed = error.is_some_and(|error| error.kind == TurnErrorKind::Store);
        let is_unstored = store_failed || self.session.has_unstored_receipt();
        if is_unstored && envelope.receipt.is_some() {
            self.view.is_receipt_stored = false;
            self.view
                .warn("the store may not contain the receipt: keep this output");
        }
        let receipts = envelope.receipts.iter();
        for receipt in receipts.filter(|receipt| is_worth_showing(receipt)) {
            announcer.receipt(receipt);
        }
        if !run.is_cut {
            // If another terminal requested a stop, it gets the receipt of the stop before this process exits.
            let answered = self.remote.listener.answered();
            let _answered_or_late = self.supervisor.wait_to_exit(answered, |_| {}).await;
        }
        envelope
    }

    /// Shows the calls of a turn that are not in the conversation. The end of background work is the outcome of the call
    /// that has started it.
    fn show_lost(
        &self,
        mut lost: LostTurn,
        works: &[Arc<BackgroundWork>],
        envelope: &mut Envelope,
    ) {
        for work in works {
            if let Some(end) = work.end() {
                lost.work_ended(&work.call_id, &end.state);
            }
        }
        envelope.set_lost(&lost);
        self.view.calls(|style| describe_lost(&lost, false, style));
    }

    async fn end_background(&mut self, envelope: &mut Envelope) {
        let keeps = self.background.keep_background && !self.stops_background();
        let waits = self.background.wait_background
            && !keeps
            && envelope.stop_reason == StopReason::Completed;
        // The first wait for a receipt fixes the time of the exit. If the run waits for background work, the receipts
        // of stopped calls are therefore awaited after this work.
        if !waits || self.stop.is_some() {
            self.finish_stop(envelope).await;
        }
        if waits {
            let mut reason = self.wait_background(envelope).await;
            // A stop from another terminal can end the work before it is read from the queue of stops.
            self.take_stops_from_elsewhere();
            self.finish_stop(envelope).await;
            reason = reason.or_else(|| self.reason_of_stop(envelope));
            if let Some(reason) = reason {
                envelope.stop_reason = reason;
                envelope.cause = self.supervisor.control.cause().cloned();
            }
        }
        if keeps {
            for said in
                shutdown::detach_background(self.session, &self.flags, self.supervisor).await
            {
                self.view.warn(&said);
            }
        }
        if !self.stops_all() {
            self.stop_background(envelope).await;
        }
        // The detached work is read last: a stop does not end work that was detached before the stop was accepted.
        let let_go = self.session.detached_work();
        envelope.background = let_go.iter().filter_map(DetachedWork::of).collect();
    }

    /// Takes the stops of other terminals from the queue. A turn can end before its stop is read from this queue.
    fn take_stops_from_elsewhere(&mut self) {
        while let Some(asked) = self.remote.try_next_stop() {
            self.stopped_from_elsewhere(asked);
        }
    }

    /// Waits for the receipts of all stops, and adds them to the envelope.
    async fn finish_stop(&mut self, envelope: &mut Envelope) {
        let others = std::mem::take(&mut self.other_stops);
        for stop in self.stop.iter().cloned().chain(others).collect::<Vec<_>>() {
            self.finish(&stop, envelope).await;
        }
    }

    async fn finish(&mut self, stop: &SessionStop, envelope: &mut Envelope) {
        let receipt = self
            .supervisor
            .wait_to_exit(stop.receipt(), |_| stop.force())
            .await;
        envelope.add_receipt(receipt.unwrap_or_else(|| stop.account_now()));
    }

    /// Stops the remaining background work. The cause of this stop is the cause that ended the run.
    async fn stop_background(&mut self, envelope: &mut Envelope) {
        let works = self.session.background();
        if works.iter().any(|work| work.is_running()) {
            let has_ended = || {
                Cause::new(CauseKind::Parent)
                    .detail("the run has ended")
                    .by("cli")
            };
            let cause = envelope.cause.clone().unwrap_or_else(has_ended);
            self.servers.end_with_stopped_calls();
            let stop = self.session.stop(&StopTarget::Process, cause);
            if self.supervisor.control.is_forced() {
                stop.force();
            }
            self.finish(&stop, envelope).await;
        }
    }

    /// Closes the session, saves the recording and closes the store. A failed store is neither closed nor awaited.
    async fn close(&mut self, system: &System, envelope: &mut Envelope) {
        let error = envelope.error.as_ref();
        let mut receipts = envelope.receipts.iter();
        let closing = shutdown::SessionClosing {
            session: self.session,
            system,
            store_failed: error.is_some_and(|error| error.kind == TurnErrorKind::Store),
            writes_back: false,
            // If work still runs after a stop, it is forced at once, without another request to end.
            force: receipts.any(|receipt| !receipt.quiet()),
        };
        let (events, view, remote) = (&mut self.events, &mut *self.view, &self.remote);
        let mut is_idle = self.owner_idle;
        let idle = async {
            while !is_idle && let Some(event) = events.next().await {
                is_idle = show(view, remote, &event);
            }
        };
        let closed = closing.close(self.supervisor, idle).await;
        for late in closed.receipts {
            envelope.add_receipt(late);
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
