//! The keeper of leases renews the lease of this worker. A lease is a promise of a worker to stop its work if it can no
//! longer renew the lease. If the lease is lost, the keeper stops the work and gets a new lease. The keeper also ends
//! expired leases of other workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, WorkerId};
use allstop_log::LogError;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use ulid::Ulid;

use super::attend::ATTEND_PAUSE;
use super::lease::{LeaseEntry, OwnLease, WorkerInfo, key_of};
use super::link::PutError;
use super::node::{ClusterNode, ENDED_TTL, RETRY_EVERY};
use crate::manager::ManagerInner;

/// Maximum number of unconfirmed renewals that are remembered. A valid lease never has more unconfirmed renewals,
/// because each failed renewal is followed by a pause.
const UNCONFIRMED_MAX: u64 = 1_024;

/// Pause after the store refused a renewal because of a conflict with an earlier renewal of this worker.
const LATE_ANSWER: Duration = Duration::from_millis(50);

/// Longest time that a closing worker waits until the store confirms the return of its lease.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(2);

/// Minimum time that forced work gets to end. This minimum also applies if the lease has already expired.
const FORCED_MAX: Duration = Duration::from_millis(200);

/// Interval of the checks whether work still runs after the loss of a lease.
const STOP_CHECK_EVERY: Duration = Duration::from_millis(20);

impl ManagerInner {
    /// Renews the lease of this worker, and gets a new lease after a loss. Returns when the node closes.
    pub(super) async fn keep_lease(self: &Arc<Self>, node: &Arc<ClusterNode>) {
        let mut is_closing = node.is_closing.subscribe();
        loop {
            if *is_closing.borrow() {
                node.is_closed.send_replace(true);
                return;
            }
            let id = WorkerId::new(Ulid::generate().to_string());
            let listening = self.answer_questions(node, &id);
            let kept = self.hold_lease(node, id.clone());
            tokio::select! {
                () = kept => {}
                () = listening => {}
            }
            self.lose_lease(node, &id).await;
            if !*is_closing.borrow() {
                // The pause avoids a busy loop: the cause of the failure may persist.
                let _closing = timeout(RETRY_EVERY, is_closing.wait_for(|is| *is)).await;
            }
        }
    }

    /// Gets a lease, and renews it until it is lost or returned.
    async fn hold_lease(&self, node: &ClusterNode, worker: WorkerId) {
        let mut is_closing = node.is_closing.subscribe();
        let mut info = WorkerInfo {
            id: worker.clone(),
            name: Arc::clone(&node.options.name),
            lease_ms: u64::try_from(node.times.length.as_millis()).unwrap_or(u64::MAX),
            concurrency: node.options.concurrency,
            running: 0,
            is_draining: false,
            since: self.now(),
            renewal: 0,
            renewed_at: None,
        };
        let key = key_of(&worker);
        let mut revision = 0;
        // Renewals that were sent and not confirmed, each with the moment before it was sent.
        let mut unconfirmed = HashMap::new();
        loop {
            (info.running, info.is_draining) = self.occupancy();
            info.renewal += 1;
            info.renewed_at = Some(self.now());
            let sent_at = Instant::now();
            let stop_at = match node.own_lease() {
                Some(lease) => lease.stop_at(node.times),
                None => sent_at + node.times.length,
            };
            let value = serde_json::to_vec(&LeaseEntry::Held(info.clone())).unwrap_or_default();
            // Without this limit, the map would grow for as long as the store does not answer and this worker has no
            // lease.
            unconfirmed.retain(|renewal, _| renewal + UNCONFIRMED_MAX > info.renewal);
            unconfirmed.insert(info.renewal, sent_at);
            let put = node
                .link()
                .put(&key, value, Some(revision), Some(ENDED_TTL));
            let pause = match timeout_at(stop_at, put).await {
                Err(_elapsed) => return,
                Ok(Ok(renewed)) => {
                    revision = renewed;
                    unconfirmed.clear();
                    node.set_lease(Some(OwnLease {
                        worker: worker.clone(),
                        sent_at,
                    }));
                    node.times.renew_every()
                }
                Ok(Err(PutError::Conflict)) => {
                    match timeout_at(stop_at, node.link().entry(&key)).await {
                        Err(_elapsed) => return,
                        // The key contains the id of this worker, so no other worker renewed the lease. The answer to
                        // an earlier renewal was lost.
                        Ok(Ok(Some(found))) => match serde_json::from_slice(&found.value) {
                            Ok(LeaseEntry::Held(held)) => {
                                revision = found.revision;
                                if let Some(sent_at) = unconfirmed.remove(&held.renewal) {
                                    let worker = worker.clone();
                                    node.set_lease(Some(OwnLease { worker, sent_at }));
                                }
                                LATE_ANSWER
                            }
                            _ => return,
                        },
                        // The read failed or returned an old state. The next attempt decides.
                        Ok(_) => LATE_ANSWER,
                    }
                }
                Ok(Err(PutError::Unknown(error) | PutError::Failed(error))) => {
                    tracing::warn!(%error, "the lease of this worker is not renewed");
                    RETRY_EVERY
                }
            };
            let next = (Instant::now() + pause).min(stop_at_of(node).unwrap_or(stop_at));
            tokio::select! {
                biased;
                _closing = is_closing.wait_for(|is| *is) => break,
                // The list of workers shows a drain as soon as it begins.
                () = self.draining(), if !info.is_draining => {}
                () = sleep_until(next) => {}
            }
            if stop_at_of(node).is_some_and(|at| at <= Instant::now()) {
                return;
            }
        }
        if !self.executions_of(&worker).is_empty() {
            return; // Keep the lease: other workers may take these tasks over only after the lease has expired.
        }
        // Left work ends after this, so another process must not take the end of the lease as a proof.
        let is_returned = !self.has_left_work();
        let returned = LeaseEntry::Ended { is_returned };
        let value = serde_json::to_vec(&returned).unwrap_or_default();
        let ended = node
            .link()
            .put(&key, value, Some(revision), Some(ENDED_TTL));
        if !matches!(timeout(GIVEN_BACK_MAX, ended).await, Ok(Ok(_))) {
            tracing::warn!(
                "the lease of this worker is not released; other workers take over after it expires"
            );
        }
    }

    /// Stops the executions of this worker, because other workers may soon take their tasks over. This worker does not
    /// write the ends of these tasks.
    async fn lose_lease(&self, node: &ClusterNode, worker: &WorkerId) {
        let Some(lease) = node.own_lease() else {
            return;
        };
        node.set_lease(None);
        let executions = self.executions_of(worker);
        // A closing worker without executions has returned its lease, so the lease is not lost.
        if !(executions.is_empty() && *node.is_closing.borrow()) {
            node.lost_lease(executions.len());
        }
        if executions.is_empty() {
            return;
        }
        tracing::warn!(%worker, tasks = executions.len(), "the lease is lost: the tasks of this worker are stopped");
        let gone_at = lease.sent_at + node.times.gone_after();
        let is_late = gone_at <= Instant::now();
        for execution in &executions {
            let cause = Cause::new(CauseKind::LeaseLost).detail("the lease was not renewed");
            // The engine of the execution waits for the receipt, so the handle is not needed.
            let stop = execution.stop(cause);
            if is_late {
                // The lease expired long ago, for example because this process was suspended.
                stop.force();
            }
        }
        let until = gone_at.max(Instant::now() + FORCED_MAX);
        let runs = || {
            executions
                .iter()
                .any(|execution| !execution.scope().is_quiet())
        };
        while runs() && Instant::now() < until {
            sleep(STOP_CHECK_EVERY).await;
        }
        if let Some(on_overdue) = node.options.on_overdue.as_ref().filter(|_| runs()) {
            on_overdue();
        }
    }
}

impl ClusterNode {
    /// Reads all leases, and ends overdue leases.
    async fn end_overdue(&self) -> Result<(), LogError> {
        self.watch_leases().await?;
        for (worker, revision) in self.overdue_leases() {
            self.end_lease(&worker, revision).await?;
        }
        Ok(())
    }

    pub(super) async fn keep_watching(&self) -> ! {
        loop {
            if let Err(error) = self.end_overdue().await {
                tracing::debug!(%error, "the leases are not read");
            }
            sleep(self.times.renew_every().min(ATTEND_PAUSE)).await;
        }
    }
}

fn stop_at_of(node: &ClusterNode) -> Option<Instant> {
    node.own_lease().map(|lease| lease.stop_at(node.times))
}
