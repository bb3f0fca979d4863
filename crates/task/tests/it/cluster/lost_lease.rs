//! Workers whose lease has expired. A lease is a promise of a worker to stop its work if it can no longer renew the
//! lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::{Extent, WorkerId};
use allstop_scope::{EngineGuard, RootOptions, Scope, StopRequest};
use allstop_task::{
    ClusterLink as _, ClusterOptions, ExecutionCx, ExecutorReturn, LeaseChange, TaskManager,
    TaskOptions, TaskParts,
};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};

use super::line::{Line, LineLink, LineLog, LineState};
use super::support::{Cluster, LEASE};
use crate::support::{ScriptedExecutor, endless, request, start, user, wait_until};

/// Length of a lease for two tests. With this length, the answer to a renewal can be delayed for longer than a worker
/// needs to stop its work.
const LONG_LEASE: Duration = Duration::from_secs(20);

/// Calls of the handlers of a worker.
#[derive(Debug, Clone, Default)]
struct HandlerCalls {
    overdue: Arc<AtomicUsize>,
    lease_changes: Arc<Mutex<Vec<LeaseChange>>>,
    /// Remaining time, as reported at each renewal.
    renewals: Arc<Mutex<Vec<Duration>>>,
}

/// Creates a worker with this line. The worker records the calls of its handlers.
fn noting_worker(
    cluster: &Cluster,
    line: &Line,
    lease: Duration,
    executor: &ScriptedExecutor,
) -> (TaskManager, HandlerCalls) {
    let calls = HandlerCalls::default();
    let HandlerCalls {
        overdue,
        lease_changes,
        renewals,
    } = calls.clone();
    let cluster_link = LineLink {
        link: Arc::new(cluster.link.clone()),
        line: line.clone(),
    };
    let log = LineLog {
        log: Arc::clone(&cluster.log) as _,
        line: line.clone(),
    };
    let options = ClusterOptions::new(Arc::new(cluster_link))
        .concurrency(8)
        .lease(lease)
        .on_renewal(Arc::new(move |left| renewals.lock().push(left)))
        .on_overdue(Arc::new(move || {
            overdue.fetch_add(1, Ordering::SeqCst);
        }))
        .on_lease_change(Arc::new(move |change| lease_changes.lock().push(change)));
    let root = Scope::root("node", RootOptions::single_runtime());
    let parts = Arc::new(TaskParts::of(executor.clone()));
    let manager = TaskManager::join(Arc::new(log), options, root, parts, TaskOptions::default());
    (manager.expect("its scope is open"), calls)
}

#[tokio::test(start_paused = true)]
async fn process_ends_only_if_its_work_cannot_be_stopped_in_time() {
    for is_stuck in [false, true] {
        let (cluster, line) = (Cluster::new(), Line::new(None));
        // The scope waits for the acknowledgement of an engine and cannot force it, so the work never becomes quiet.
        let engines = Arc::new(Mutex::new(Vec::<EngineGuard>::new()));
        let kept = Arc::clone(&engines);
        let executor = ScriptedExecutor::new(move |cx: ExecutionCx| {
            if is_stuck {
                kept.lock().push(cx.scope.attach_engine());
            }
            async move {
                cx.scope.stopped_at("waiting").await;
                Ok(ExecutorReturn::Finished)
            }
        });
        let (manager, calls) = noting_worker(&cluster, &line, LEASE, &executor);
        start(&manager, &executor).await;
        sleep(LEASE).await;
        let overdue = || calls.overdue.load(Ordering::SeqCst);
        assert_eq!(overdue(), 0, "the lease is renewed");
        line.set(LineState::Cut);
        sleep(LEASE).await;
        assert_eq!(overdue(), usize::from(is_stuck), "stuck: {is_stuck}");
        let lost = LeaseChange::Lost { executions: 1 };
        assert_eq!(*calls.lease_changes.lock(), [lost]);
        if !is_stuck {
            line.set(LineState::Open);
            sleep(LEASE).await;
            let changes = calls.lease_changes.lock().clone();
            assert_eq!(changes, [lost, LeaseChange::Renewed]);
        }
    }
}

/// The process is suspended at each moment of a claim, for longer than its lease, and then continues.
#[tokio::test(start_paused = true)]
async fn nothing_starts_under_a_lease_that_ran_out_during_a_pause() {
    let line_delay = Duration::from_millis(20);
    for moment in 0..60 {
        let cluster = Cluster::new();
        let started = Arc::new(Mutex::new(Vec::<Option<WorkerId>>::new()));
        let noted = Arc::clone(&started);
        let executor = ScriptedExecutor::new(move |cx: ExecutionCx| {
            noted.lock().push(cx.task.worker.clone());
            async move {
                cx.scope.stopped_at("waiting").await;
                Ok(ExecutorReturn::Finished)
            }
        })
        .resumable();
        let line = Line::new(None).slowed(line_delay);
        let parts = TaskParts::of(executor.clone());
        let worker = cluster.node_at(line, parts, 8, TaskOptions::default());
        let front = cluster.front_end();
        // By this time, the worker has its lease.
        sleep(Duration::from_secs(1)).await;
        let before = front.manager.workers().await.unwrap();
        front.manager.execute(request("m1")).await.unwrap();
        sleep(line_delay * moment / 6).await;
        let is_started = !started.lock().is_empty();
        advance(2 * LEASE).await;
        wait_until("a worker has it", || !started.lock().is_empty()).await;
        let by = started.lock().first().cloned().flatten();
        assert_eq!(
            by.as_ref() == Some(&before[0].id),
            is_started,
            "started by {by:?} after {moment}"
        );
        worker.kill().await;
    }
}

/// After the loss of a lease, the work stops before the lease expires. Therefore the same process can take the task
/// over again.
#[tokio::test(start_paused = true)]
async fn worker_that_lost_its_lease_gets_another_one() {
    let (cluster, line) = (Cluster::new(), Line::new(None));
    let executor = endless(false).resumable();
    let parts = TaskParts::of(executor.clone());
    let worker = cluster.node_at(line.clone(), parts, 8, TaskOptions::default());
    let front = cluster.front_end();
    start(&front.manager, &executor).await;
    let before = front.manager.workers().await.unwrap();
    line.set(LineState::Cut);
    wait_until("its work is stopped", || executor.live() == 0).await;
    line.set(LineState::Open);
    executor.started().await;
    let after = front.manager.workers().await.unwrap();
    let ids: Vec<_> = after.iter().map(|worker| &worker.id).collect();
    assert!(!ids.contains(&&before[0].id), "{ids:?}");
    let all = Extent::Process;
    drop(worker.root.stop(StopRequest::new(all, user())).await);
    assert_eq!(executor.live(), 0);
}

/// A worker whose renewal has reached the servers. The answer to the renewal is late or lost.
struct LateWorker {
    cluster: Cluster,
    line: Line,
    executor: ScriptedExecutor,
    calls: HandlerCalls,
    /// Moment at which the worker has sent the renewal.
    sent_at: Instant,
}

impl LateWorker {
    /// Starts a task on the worker. Then sets the state of the line, and waits for the next renewal.
    async fn start(state: LineState) -> Self {
        let (cluster, line) = (Cluster::new(), Line::new(None));
        // Only force can end this executor, so it ends as late as possible.
        let executor = endless(true).resumable();
        let (manager, calls) = noting_worker(&cluster, &line, LONG_LEASE, &executor);
        start(&manager, &executor).await;
        let before = revisions(&cluster);
        line.set(state);
        wait_until("a renewal", || revisions(&cluster) != before).await;
        Self {
            cluster,
            line,
            executor,
            calls,
            sent_at: Instant::now(),
        }
    }

    /// Cuts the line after the worker has learned that its renewal was successful. The work must end before another
    /// worker takes the task over.
    async fn check(self) {
        let renewals = || self.calls.renewals.lock().clone();
        let known = renewals().len();
        self.line.set(LineState::Open);
        wait_until("the renewal is confirmed", || renewals().len() > known).await;
        let (left, passed) = (renewals()[known], self.sent_at.elapsed());
        self.line.set(LineState::Cut);
        self.executor.started().await;
        assert!(
            self.sent_at.elapsed() >= LONG_LEASE,
            "its lease has not expired"
        );
        assert_eq!(self.executor.live(), 1, "two workers run the task");
        assert!(left + passed < LONG_LEASE, "{left:?} after {passed:?}");
    }
}

/// Revisions of all leases in the store.
fn revisions(cluster: &Cluster) -> Vec<u64> {
    let leases = cluster.link.entries("worker/").now_or_never();
    let leases = leases.expect("it never waits").expect("memory");
    leases.iter().map(|lease| lease.revision).collect()
}

/// If the worker measured its lease from the answer, the lease would last longer than the time that other workers wait.
#[tokio::test(start_paused = true)]
async fn lease_counts_from_the_request_of_its_renewal() {
    let worker = LateWorker::start(LineState::LateAnswers).await;
    let _other = worker.cluster.worker(&worker.executor);
    sleep(LONG_LEASE / 2).await;
    worker.check().await;
}

/// The next renewal conflicts with the stored renewal. Then the worker reads the entry, and finds its own renewal
/// there.
#[tokio::test(start_paused = true)]
async fn lease_counts_from_the_request_of_a_renewal_without_an_answer() {
    let worker = LateWorker::start(LineState::Unheard).await;
    let _other = worker.cluster.worker(&worker.executor);
    sleep(LONG_LEASE / 2).await;
    worker.check().await;
}
