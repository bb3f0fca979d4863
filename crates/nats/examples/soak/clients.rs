//! Clients that send tasks, stop some of these tasks, and wait for the end of each task.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind, TaskId};
use allstop_log::Version;
use allstop_task::model::MessageSender;
use allstop_task::{
    AcceptedTask, CancelError, SubscriptionItem, TaskManager, TaskMessage, TaskRequest,
};
use allstop_testkit::Random;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::ledger::Ledger;
use super::nodes::FrontEnd;
use super::options::SoakOptions;
use super::plan::SoakPlan;

/// Time in which each task must end, even with the faults.
const TASK_MAX: Duration = Duration::from_mins(4);

/// Pause after a failed request.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// An acknowledged task.
#[derive(Debug, Clone)]
pub(crate) struct SentSoakTask {
    pub id: TaskId,
    pub plan: SoakPlan,
}

/// Counts failed requests, and the answers to stops by kind.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts {
    pub failed_sends: AtomicUsize,
    pub repeated_sends: AtomicUsize,
    pub quiet_stops: AtomicUsize,
    pub other_stops: AtomicUsize,
    pub late_stops: AtomicUsize,
    pub failed_stops: AtomicUsize,
    pub broken_subscriptions: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Clients<'a> {
    options: &'a SoakOptions,
    managers: [TaskManager; 2],
    ledger: &'a Ledger,
    next: AtomicUsize,
    /// Number of tasks that the clients may start so far.
    pub allowed: watch::Sender<usize>,
    pub done: watch::Sender<usize>,
    pub sent: Mutex<Vec<SentSoakTask>>,
    pub counts: ClientCounts,
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl<'a> Clients<'a> {
    pub(crate) fn new(
        options: &'a SoakOptions,
        fronts: &[FrontEnd; 2],
        ledger: &'a Ledger,
    ) -> Self {
        Self {
            options,
            managers: [fronts[0].manager.clone(), fronts[1].manager.clone()],
            ledger,
            next: AtomicUsize::new(0),
            allowed: watch::Sender::new(0),
            done: watch::Sender::new(0),
            sent: Mutex::default(),
            counts: ClientCounts::default(),
        }
    }

    /// Runs until every task has ended.
    pub(crate) async fn run(&self) {
        let clients = (0..self.options.clients).map(|_| self.client());
        let clients: FuturesUnordered<_> = clients.collect();
        clients.collect::<()>().await;
    }

    async fn client(&self) {
        let mut allowed = self.allowed.subscribe();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.options.tasks {
                return;
            }
            let may_begin = allowed.wait_for(|allowed| *allowed > index).await;
            drop(may_begin.expect("the clients hold the sender"));
            let seed = self
                .options
                .seed
                .wrapping_mul(1_000_003)
                .wrapping_add(index as u64);
            self.task(index, &mut Random::new(seed)).await;
            self.done.send_modify(|done| *done += 1);
        }
    }

    async fn task(&self, index: usize, random: &mut Random) {
        let plan = SoakPlan::choose(random, self.options.longest.0);
        let front = random.below(2) as usize;
        let request = TaskRequest::new(
            "soak",
            TaskMessage::text(format!("soak-{index}"), MessageSender::User, "work"),
        )
        .metadata(plan.to_metadata());
        let mut accepted = self.send(&self.managers[front], &request).await;
        let id = accepted.task_id.clone();
        self.sent.lock().push(SentSoakTask {
            id: id.clone(),
            plan: plan.clone(),
        });
        if random.below(20) == 0 {
            let again = self.send(&self.managers[1 - front], &request).await;
            if again.task_id != id {
                self.ledger.violation(format!(
                    "message soak-{index} made two tasks, {id} and {}",
                    again.task_id
                ));
            }
            count(&self.counts.repeated_sends);
        }
        let is_stopped = random.below(100) < self.options.stops;
        let stop_after = random.before(Duration::from_millis(plan.step_ms * u64::from(plan.steps)));
        let ended = async {
            if is_stopped {
                tokio::time::sleep(stop_after).await;
                self.stop(&self.managers[1 - front], &id).await;
            }
            self.wait_for_end(&self.managers[front], &mut accepted)
                .await;
        };
        if tokio::time::timeout(TASK_MAX, ended).await.is_err() {
            self.ledger
                .violation(format!("task {id} has not ended within {TASK_MAX:?}"));
        }
    }

    /// Sends the request, and repeats the request with an unchanged message until it is acknowledged.
    async fn send(&self, manager: &TaskManager, request: &TaskRequest) -> AcceptedTask {
        loop {
            match manager.execute(request.clone()).await {
                Ok(accepted) => return accepted,
                Err(_) => count(&self.counts.failed_sends),
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// Sends the stop, and repeats the stop until the answer is final.
    async fn stop(&self, manager: &TaskManager, id: &TaskId) {
        let until = Instant::now() + TASK_MAX / 2;
        while Instant::now() < until {
            match manager.cancel(id, Cause::new(CauseKind::User)).await {
                Ok(outcome) if outcome.receipt.quiet() => {
                    self.ledger.quiet_receipt(id);
                    return count(&self.counts.quiet_stops);
                }
                Ok(outcome) => {
                    let receipt = serde_json::to_string(&*outcome.receipt).expect("plain data");
                    println!("task {id} has another receipt: {receipt}");
                    return count(&self.counts.other_stops);
                }
                Err(CancelError::AlreadyEnded(_)) => return count(&self.counts.late_stops),
                Err(_) => count(&self.counts.failed_stops),
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
        self.ledger
            .violation(format!("the stop of task {id} has no receipt"));
    }

    async fn wait_for_end(&self, manager: &TaskManager, accepted: &mut AcceptedTask) {
        loop {
            match accepted.subscription.next().await {
                Some(Ok(SubscriptionItem::Snapshot(_, task))) if task.has_ended() => return,
                Some(Ok(_)) => continue,
                None => return,
                Some(Err(_)) => count(&self.counts.broken_subscriptions),
            }
            tokio::time::sleep(RETRY_AFTER).await;
            let cursor = Some(accepted.subscription.cursor()).filter(|cursor| *cursor > Version(0));
            if let Ok(subscription) = manager.subscribe(&accepted.task_id, cursor).await {
                accepted.subscription = subscription;
            }
        }
    }
}
