//! The loops of a node: its lease, its view of the others, wake-ups, and questions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, TaskId, WorkerId};
use allstop_log::{LogError, Version};
use allstop_scope::{NotStarted, WorkSpec};
use futures::StreamExt as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use ulid::Ulid;

use super::attend::{Attention, ClaimCapacity, LOOK_AGAIN};
use super::dead_letter::DeadLetter;
use super::lease::{LeaseEntry, OwnLease, WorkerInfo, key_of};
use super::link::{AskedQuestion, HeldWakeUp, PutError};
use super::node::{ClusterNode, ENDED_TTL};
use super::owner_question::{Attended, OwnerQuestion};
use super::wake_up::WakeUp;
use crate::error::TaskStoreError;
use crate::execution::ExecutionResult;
use crate::manager::ManagerInner;
use crate::task_stream::read_task;

/// Pause after a failure of the store.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Renewals without an answer that are remembered: all those of a lease, which has eight, at the pause after a failure.
const UNCONFIRMED_MAX: u64 = 1_024;

/// Pause behind a renewal that conflicts with one that is under way.
const LATE_ANSWER: Duration = Duration::from_millis(50);

/// Wait of a question for the stop of an execution: the owner reads its log for it.
const OBSERVED_MAX: Duration = Duration::from_secs(2);

/// Pause of a wake-up whose task this version cannot read.
const UNREADABLE_PAUSE: Duration = Duration::from_mins(1);

/// Time that work has to end by force when its lease has passed on already.
const FORCED_MAX: Duration = Duration::from_millis(200);

/// Interval of the looks at what a lost lease has left.
const GONE_LOOK: Duration = Duration::from_millis(20);

/// Questions that are answered at the same time.
const QUESTIONS_MAX: usize = 256;

/// Pauses for the record of a wake-up: 10 ms, twice as long each time, at most this. After so many deliveries, and hours
/// ([`WakeUp::awaits_record`]), it is taken away: much later than any write that was sent before can still arrive.
const RECORD_PAUSE_MAX: Duration = Duration::from_mins(1);
const RECORD_DELIVERIES_MAX: u64 = 200;

/// Interval in which a worker without a free place looks at a wake-up that nobody takes: to stop a task, or to give it up,
/// needs none, and all workers may be busy for hours.
const LOOK_WITHOUT_PLACE: Duration = Duration::from_millis(500);

/// Pause of a wake-up that needs a place. Short: another worker may have one.
const PLACE_PAUSE: Duration = Duration::from_millis(250);

/// Shortest pause of a task whose owner has no slot, half of the first one; the longest is 64 times as long.
const SLOT_PAUSE_MIN: Duration = Duration::from_millis(125);

impl ManagerInner {
    /// Starts the loops of this node in its scope.
    pub(crate) fn start_node(self: &Arc<Self>, node: &Arc<ClusterNode>) -> Result<(), NotStarted> {
        let (scope, spec) = (&node.scope, |name: &str| {
            WorkSpec::new(ItemKind::Future, name)
        });
        let index = Arc::clone(node);
        // The loops belong to the scope; nobody waits for their values.
        drop(scope.spawn(spec("index of tasks"), |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("index") => {}
                _never = index.write_index() => {}
            }
        })?);
        if node.options.concurrency == 0 {
            node.is_closed.send_replace(true);
            return Ok(());
        }
        let (manager, own) = (Arc::clone(self), Arc::clone(node));
        // Beside the executors' code, which may block its threads.
        drop(scope.spawn_control(spec("lease"), |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("lease") => {}
                () = manager.keep_lease(&own) => {}
            }
            own.is_closed.send_replace(true);
        })?);
        let watching = Arc::clone(node);
        drop(scope.spawn(spec("leases of others"), |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("leases") => {}
                _never = watching.keep_watching() => {}
            }
        })?);
        let (manager, own) = (Arc::clone(self), Arc::clone(node));
        drop(scope.spawn(spec("late receipts"), |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("late receipts") => {}
                () = manager.write_late_receipts(&own) => {}
            }
        })?);
        let (manager, own) = (Arc::clone(self), Arc::clone(node));
        drop(scope.spawn(spec("wake-ups"), |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("wake-ups") => {}
                () = manager.take_wake_ups(&own) => {}
            }
        })?);
        Ok(())
    }

    /// Renews the lease of this worker, and gets a new one when it was lost. Ends it when the node closes.
    async fn keep_lease(self: &Arc<Self>, node: &Arc<ClusterNode>) {
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
                // Not again at once: whatever failed may fail again.
                let _closing = timeout(RETRY_EVERY, is_closing.wait_for(|is| *is)).await;
            }
        }
    }

    /// Gets a lease, and renews it until it is lost or given back.
    async fn hold_lease(&self, node: &ClusterNode, worker: WorkerId) {
        let mut is_closing = node.is_closing.subscribe();
        let mut info = WorkerInfo {
            id: worker.clone(),
            name: Arc::clone(&node.options.name),
            lease_ms: u64::try_from(node.times.length.as_millis()).unwrap_or(u64::MAX),
            concurrency: node.options.concurrency,
            running: 0,
            is_draining: false,
            since: (self.options.now)(),
            renewal: 0,
        };
        let key = key_of(&worker);
        let mut revision = 0;
        // Renewals that were sent and not confirmed, with the moments before they were.
        let mut unconfirmed = HashMap::new();
        loop {
            (info.running, info.is_draining) = self.occupancy();
            info.renewal += 1;
            let sent_at = Instant::now();
            let stop_at = match node.own_lease() {
                Some(lease) => lease.stop_at(node.times),
                None => sent_at + node.times.length,
            };
            let value = serde_json::to_vec(&LeaseEntry::Held(info.clone())).unwrap_or_default();
            // Without a store, for as long as there is no lease, this would grow.
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
                        // What is held under its own key is its own: a renewal whose answer was lost.
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
                        // An old answer, or none: the next attempt tells.
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
                () = sleep_until(next) => {}
            }
            if stop_at_of(node).is_some_and(|at| at <= Instant::now()) {
                return;
            }
        }
        if !self.executions_of(&worker).is_empty() {
            return; // Their tasks pass on when the lease expires, and not before.
        }
        let value = serde_json::to_vec(&LeaseEntry::Ended).unwrap_or_default();
        let ended = node
            .link()
            .put(&key, value, Some(revision), Some(ENDED_TTL));
        if !matches!(timeout(OBSERVED_MAX, ended).await, Ok(Ok(_))) {
            tracing::warn!(
                "the lease of this worker is not given back; it passes on when it expires"
            );
        }
    }

    /// Stops what this worker runs: others may take it over soon. Its tasks get no end here.
    async fn lose_lease(&self, node: &ClusterNode, worker: &WorkerId) {
        let Some(lease) = node.own_lease() else {
            return;
        };
        node.set_lease(None);
        let executions = self.executions_of(worker);
        // A worker that closes without work has given it back.
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
            // Its engine waits for the receipt.
            let stop = execution.stop(cause);
            if is_late {
                // This process was paused for longer than its lease.
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
            sleep(GONE_LOOK).await;
        }
        if let Some(on_overdue) = node.options.on_overdue.as_ref().filter(|_| runs()) {
            on_overdue();
        }
    }

    /// Takes wake-ups, as many at a time as the worker runs executions, and now and then one more.
    async fn take_wake_ups(self: &Arc<Self>, node: &Arc<ClusterNode>) {
        let places = Arc::new(Semaphore::new(node.options.concurrency));
        let mut is_closing = node.is_closing.subscribe();
        loop {
            let place = tokio::select! {
                biased;
                place = Arc::clone(&places).acquire_owned() => place.ok(),
                () = sleep(LOOK_WITHOUT_PLACE) => None,
            };
            if *is_closing.borrow() || self.occupancy().1 {
                return;
            }
            if node.worker().is_none() {
                sleep(RETRY_EVERY).await;
                continue;
            }
            let next = tokio::select! {
                biased;
                _closing = is_closing.wait_for(|is| *is) => return,
                () = self.draining() => return,
                next = next_wake_up(node, place.is_some()) => next,
            };
            let held = match next {
                Ok(Some(held)) => held,
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(%error, "no wake-up can be read");
                    sleep(RETRY_EVERY).await;
                    continue;
                }
            };
            let (manager, own) = (Arc::clone(self), Arc::clone(node));
            // One may have become free while it waited for a wake-up.
            let place = place.or_else(|| Arc::clone(&places).try_acquire_owned().ok());
            let capacity = match place {
                Some(_) => ClaimCapacity::Place,
                None => ClaimCapacity::None,
            };
            let spec = WorkSpec::new(ItemKind::Future, "wake-up");
            let handled = node.scope.spawn(spec, move |cx| async move {
                tokio::select! {
                    _stopped = cx.stopped_at("wake-up") => {}
                    () = manager.handle(&own, &*held, capacity) => {}
                }
                drop(place);
            });
            if handled.is_err() {
                return;
            }
        }
    }

    /// Does what a wake-up is about, and takes it away when its task needs nobody.
    async fn handle(
        self: &Arc<Self>,
        node: &ClusterNode,
        held: &dyn HeldWakeUp,
        capacity: ClaimCapacity,
    ) {
        let Some(wake_up) = WakeUp::from_bytes(held.payload()) else {
            let text: String = String::from_utf8_lossy(held.payload())
                .chars()
                .take(64)
                .collect();
            let name = TaskId::new(text);
            let aside = self.set_aside(node, &name, "a wake-up that cannot be read");
            return settle(held, aside.await).await;
        };
        loop {
            let attending = self.attend(node, &wake_up.task, Version(wake_up.version), capacity);
            let attention = match while_held(held, attending).await {
                Ok(attention) => attention,
                Err(
                    error @ (TaskStoreError::Unreadable { .. } | TaskStoreError::Illegal { .. }),
                ) => {
                    let reason = error.to_string();
                    if let Err(error) = self.set_aside(node, &wake_up.task, &reason).await {
                        tracing::debug!(%error, "a dead letter is written later");
                    }
                    // A worker of a newer version may be able to read it.
                    return give_back(held, UNREADABLE_PAUSE).await;
                }
                Err(error) => {
                    tracing::debug!(%error, task = %wake_up.task, "a task is looked at later");
                    return give_back(held, LOOK_AGAIN).await;
                }
            };
            match attention {
                Attention::Done(task) => {
                    let indexed = match &task {
                        Some((version, task)) => node.index_now(*version, task).await,
                        None => Ok(()),
                    };
                    return settle(held, indexed).await;
                }
                Attention::Later(pause) => return give_back(held, pause).await,
                Attention::AwaitPlace => return give_back(held, PLACE_PAUSE).await,
                Attention::AwaitSlot => {
                    return give_back(held, slot_pause(held.deliveries())).await;
                }
                Attention::AwaitRecord => {
                    let is_late = held.deliveries() >= RECORD_DELIVERIES_MAX;
                    if is_late && !wake_up.awaits_record((self.options.now)()) {
                        return settle(held, Ok(())).await;
                    }
                    return give_back(held, record_pause(held.deliveries())).await;
                }
                Attention::Here(execution) => {
                    let permit = execution.await_release();
                    if permit.is_none() && !execution.is_ending() {
                        // A duplicate, which needs no place of this worker.
                        return give_back(held, LOOK_AGAIN).await;
                    }
                    while_held(held, execution.released()).await;
                    let result = execution.present_result();
                    if !matches!(result, Some(ExecutionResult::Ended(_))) {
                        // Whatever kept it from an end may still do so.
                        return give_back(held, LOOK_AGAIN).await;
                    }
                }
                Attention::GiveUp(version, task) => {
                    if let Err(error) = self.give_up(node, version, &task).await {
                        tracing::debug!(%error, task = %task.id, "a dead letter is written later");
                        return give_back(held, LOOK_AGAIN).await;
                    }
                }
            }
        }
    }

    async fn set_aside(
        &self,
        node: &ClusterNode,
        task: &TaskId,
        reason: &str,
    ) -> Result<(), LogError> {
        tracing::warn!(%task, reason, "now a dead letter");
        let letter = DeadLetter {
            task: task.clone(),
            owner: None,
            reason: reason.into(),
            at: (self.options.now)(),
            again_as: None,
        };
        node.set_aside(&letter).await
    }

    /// Answers questions to this worker until the link fails.
    async fn answer_questions(self: &Arc<Self>, node: &Arc<ClusterNode>, worker: &WorkerId) {
        let questions = match node.link().questions(worker).await {
            Ok(questions) => questions,
            Err(error) => {
                tracing::warn!(%error, "this worker cannot be asked");
                return;
            }
        };
        questions
            .for_each_concurrent(QUESTIONS_MAX, |asked| {
                let (manager, own) = (Arc::clone(self), Arc::clone(node));
                async move { manager.answer(&own, asked).await }
            })
            .await;
    }

    async fn answer(self: &Arc<Self>, node: &ClusterNode, asked: AskedQuestion) {
        let answer = match serde_json::from_slice(&asked.question) {
            Ok(OwnerQuestion::Attend { task, stop }) => {
                if let Some(cause) = stop
                    && let Some(execution) = self.execution_here(&task)
                {
                    // Its end has the receipt; its engine waits for it.
                    drop(execution.stop(cause));
                }
                let attended = self.attend_to_question(node, &task).await;
                serde_json::to_vec(&attended)
            }
            Ok(OwnerQuestion::Drain) => {
                self.stop_taking();
                node.is_drained.send_replace(true);
                serde_json::to_vec(&Attended::Observed)
            }
            Ok(OwnerQuestion::StopLeft { task, cause }) => {
                let stopped = match read_task(&*self.log, &task).await {
                    Ok(Some((_, task))) if task.has_ended() => {
                        self.stop_left_here(&task, cause).await
                    }
                    _ => None,
                };
                serde_json::to_vec(&stopped)
            }
            Ok(OwnerQuestion::Preview { task, cause }) => {
                serde_json::to_vec(&self.preview_here(&task, cause))
            }
            Err(_newer) => return,
        };
        (asked.answer)(answer.unwrap_or_default()).await;
    }

    async fn attend_to_question(self: &Arc<Self>, node: &ClusterNode, task: &TaskId) -> Attended {
        let execution = match self.execution_here(task) {
            Some(execution) => execution,
            // A question comes without a place: the worker that asks has one.
            None => match self
                .attend(node, task, Version(0), ClaimCapacity::None)
                .await
            {
                Ok(Attention::Here(execution)) => execution,
                Ok(Attention::Done(Some((_, task)))) if task.has_ended() => {
                    return Attended::Observed;
                }
                _ => return Attended::Nothing,
            },
        };
        // It stops if it finds that somebody wants that.
        let _looked = timeout(OBSERVED_MAX, execution.look()).await;
        if execution.is_stopping() || execution.is_ending() {
            Attended::Observed
        } else {
            Attended::Runs
        }
    }
}

impl ClusterNode {
    /// Reads all leases, and ends those whose time has passed.
    async fn end_overdue(&self) -> Result<(), LogError> {
        self.watch_leases().await?;
        for (worker, revision) in self.overdue_leases() {
            self.end_lease(&worker, revision).await?;
        }
        Ok(())
    }

    async fn keep_watching(&self) -> ! {
        loop {
            if let Err(error) = self.end_overdue().await {
                tracing::debug!(%error, "the leases are not read");
            }
            sleep(self.times.renew_every().min(LOOK_AGAIN)).await;
        }
    }
}

/// The next wake-up for a worker with a place. Without one, only what nobody else takes: `None` if there is nothing.
async fn next_wake_up(
    node: &ClusterNode,
    has_place: bool,
) -> Result<Option<Box<dyn HeldWakeUp>>, LogError> {
    if has_place {
        node.link().next_wake_up().await.map(Some)
    } else {
        node.link().waiting_wake_up().await
    }
}

/// Pause of a wake-up whose record is not there at this delivery.
fn record_pause(delivery: u64) -> Duration {
    let doublings = u32::try_from(delivery.min(16)).unwrap_or_default();
    let pause = Duration::from_millis(5) * 2_u32.pow(doublings);
    pause.min(RECORD_PAUSE_MAX)
}

/// Pause of a wake-up whose owner has no slot: with the deliveries so far it grows, so that many that wait cost little.
fn slot_pause(delivery: u64) -> Duration {
    let doublings = u32::try_from(delivery.min(6)).unwrap_or_default();
    SLOT_PAUSE_MIN * 2_u32.pow(doublings)
}

fn stop_at_of(node: &ClusterNode) -> Option<Instant> {
    node.own_lease().map(|lease| lease.stop_at(node.times))
}

/// Keeps a wake-up from others while something is done about it.
async fn while_held<T>(held: &dyn HeldWakeUp, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(held.hold_every()) => {
                if let Err(error) = held.hold().await {
                    tracing::debug!(%error, "a wake-up may come to others");
                }
            }
        }
    }
}

/// Takes a wake-up away if what had to come first is done.
async fn settle(held: &dyn HeldWakeUp, done: Result<(), LogError>) {
    let taken = match done {
        Ok(()) => held.take_away().await,
        Err(error) => Err(error),
    };
    if let Err(error) = taken {
        tracing::debug!(%error, "a wake-up comes again");
    }
}

async fn give_back(held: &dyn HeldWakeUp, pause: Duration) {
    if let Err(error) = held.later(pause).await {
        tracing::debug!(%error, "a wake-up comes again when it is held no longer");
    }
}
