//! What becomes of the background work when the turns of a run are over: waited for, stopped or kept, as the flags say.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::History;
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_runtime::LeftWork;
use allstop_scope::{Stop, StopOrder};

use super::running::Running;
use crate::control::Effect;

impl Running<'_, '_> {
    /// Ends the background work as the flags say, and records what became of it. The receipt, if anything was stopped:
    /// what is to be kept and cannot be is stopped too, for it would end with this process without an account.
    pub(super) async fn end_background(
        &mut self,
        history: &mut History,
        reason: StopReason,
    ) -> Option<Arc<Receipt>> {
        let was_stopped = matches!(
            reason,
            StopReason::Cancelled | StopReason::Shutdown | StopReason::Timeout
        );
        if self.background.keep_background {
            self.keep_background(history).await;
        } else if self.background.wait_background && !was_stopped {
            self.wait_background().await;
        }
        let receipt = self.stop_background().await;
        let recorded = self
            .supervisor
            .race(self.session.record_background(history), |_| {
                ControlFlow::Continue(())
            });
        if let Ok(Err(error)) = recorded.await {
            self.show.note(&format!(
                "the end of background work is not recorded: {error}"
            ));
        }
        receipt
    }

    async fn wait_background(&mut self) {
        let stops_all = |stop: &Stop| stop.request().extent == Extent::Process;
        if self.stop.as_ref().is_some_and(stops_all) {
            // A signal that came between the commit and this.
            let control = &self.supervisor.control;
            self.wait_cut = Some(control.exit_code(control.stop_reason()));
            return;
        }
        if self.session.background.running().is_empty() {
            return;
        }
        self.show
            .note("waiting for background work · Ctrl-C stops it");
        let (system, stop) = (self.system, &mut self.stop);
        let carry_out = |effect: Effect| {
            if let Effect::Stop(cause) = effect {
                *stop = Some(system.scope().stop(StopOrder::new(Extent::Process, cause)));
            }
            ControlFlow::Break(())
        };
        let deadline = self.deadline;
        let session = self.session;
        let idle_in_time = async {
            tokio::select! {
                () = session.wait_idle() => true,
                () = past(deadline) => false,
            }
        };
        // Cut or not: what still runs is stopped next.
        match self.supervisor.race(idle_in_time, carry_out).await {
            Ok(true) => {}
            Ok(false) => {
                let limit = deadline.map(|(_, limit)| limit).unwrap_or_default();
                let cause =
                    Cause::new(CauseKind::Deadline).detail(format!("run deadline of {limit:?}"));
                self.supervisor.control.stopping(Instant::now());
                let order = StopOrder::new(Extent::Process, cause);
                self.stop = Some(self.system.scope().stop(order));
                self.wait_cut = Some(StopReason::Timeout.exit_code());
            }
            Err(_) => {
                let control = &self.supervisor.control;
                self.wait_cut = Some(control.exit_code(control.stop_reason()));
            }
        }
    }

    /// Stops what still runs. The receipt, if anything did.
    async fn stop_background(&mut self) -> Option<Arc<Receipt>> {
        let stopping_all = self
            .stop
            .clone()
            .filter(|stop| stop.request().extent == Extent::Process);
        let stop = match stopping_all {
            Some(stop) => stop,
            None if self.session.background.running().is_empty() => return None,
            None => {
                self.supervisor.control.stopping(Instant::now());
                let cause = Cause::new(CauseKind::Parent)
                    .detail("the run has ended")
                    .by("cli");
                self.system
                    .scope()
                    .stop(StopOrder::new(Extent::Process, cause))
            }
        };
        let force = |effect: Effect| {
            if effect != Effect::Nothing {
                stop.force();
            }
            ControlFlow::Continue(())
        };
        match self.supervisor.race(stop.receipt(), force).await {
            Ok(receipt) => Some(receipt),
            Err(_) => Some(stop.account_now()),
        }
    }

    /// Lets the background work go, as far as that is possible.
    async fn keep_background(&mut self, history: &mut History) {
        let keeping = self.session.keep_background(history);
        let keeping = self
            .supervisor
            .race(keeping, |_| ControlFlow::Continue(()))
            .await;
        let kept = match keeping {
            Ok(Ok(kept)) => kept,
            Ok(Err(error)) => {
                self.show
                    .warn(&format!("background work is not kept: {error}"));
                return;
            }
            Err(_) => {
                self.show
                    .warn("background work may not be kept: the store does not answer");
                return;
            }
        };
        self.kept = kept.kept.iter().map(LeftWork::from).collect();
        for work in &kept.kept {
            self.show.warn(&format!(
                "{} runs on: {} · end it: kill {} · output: {}",
                work.id,
                work.name,
                work.keeper.pid,
                work.output.display()
            ));
        }
        for work in &kept.not_kept {
            self.show.warn(&format!(
                "{} is not kept: {} · {}",
                work.id, work.name, work.why
            ));
        }
    }
}

async fn past(deadline: Option<(Instant, Duration)>) {
    match deadline {
        Some((at, _)) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
