//! A stop at every moment of a task: at every millisecond of its work, and at every turn of the runtime (one poll of
//! all ready work) within this millisecond.
//!
//! The explorer of the test kit cannot test a manager: the explorer runs agents and sessions, and its checkers read the
//! records of sessions. This test applies the same idea to the records of a manager. A run is deterministic, because it
//! has one thread and a paused clock. The test repeats the run, and each time the stop comes one turn later, until the
//! stop comes after the end.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ItemState};
use allstop_core::{CauseKind, Receipt};
use allstop_log::MemoryLog;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_task::model::Artifact;
use allstop_task::{
    CancelCx, CancelError, Canceler, ExecutorError, ExecutorReturn, TaskEvent, TaskManager,
    TaskOptions, TaskParts, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::crash_everywhere::fold;
use crate::support::{ScriptedExecutor, request, user, wait_until};

/// Duration of the longest work in these tests and of a short time after its end, in milliseconds.
const TIMES_MS: u64 = 6;
/// Number of runtime turns that are tried at each millisecond. No work in these tests needs more turns to become idle.
const TURNS: usize = 24;
/// The grace and the time for force, plus the time of the writes that follow.
const ANSWER_MAX: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopKind {
    Cancel,
    /// Two cancels at the same time.
    CancelTwice,
    Shutdown,
    /// A cancel, and one turn later a shutdown.
    CancelThenShutdown,
}

const STOPS: [StopKind; 4] = [
    StopKind::Cancel,
    StopKind::CancelTwice,
    StopKind::Shutdown,
    StopKind::CancelThenShutdown,
];

/// An executor that writes three events, one after each millisecond, and starts a helper in its scope. If the executor
/// is deaf, it ignores the stop and never ends.
fn three_steps(is_deaf: bool) -> ScriptedExecutor {
    ScriptedExecutor::new(move |cx| async move {
        let spec = WorkSpec::new(ItemKind::Future, "helper");
        let helper = cx.scope.spawn(spec, |helper| async move {
            let _cause = helper.stopped_at("helping").await;
        });
        drop(helper);
        for event in [
            TaskEvent::state(TaskState::Working),
            TaskEvent::artifact(Artifact::text("answer", "42")),
            TaskEvent::state(TaskState::Completed),
        ] {
            let is_last = event.ends_execution();
            tokio::select! {
                _cause = cx.scope.stopped_at("a step"), if !is_deaf => return Ok(ExecutorReturn::Finished),
                () = sleep(Duration::from_millis(1)) => {}
            }
            if is_deaf && is_last {
                std::future::pending::<()>().await;
            }
            let _ended = cx.events.write(event).await;
        }
        Ok(ExecutorReturn::Finished)
    })
}

/// The log, the scope, the executor and the manager of one run.
struct Stage {
    log: Arc<MemoryLog>,
    root: Scope,
    executor: ScriptedExecutor,
    manager: TaskManager,
}

impl Stage {
    async fn open(
        executor: ScriptedExecutor,
        canceler: Option<Arc<dyn Canceler>>,
        options: TaskOptions,
    ) -> Self {
        let log = Arc::new(MemoryLog::new());
        let root = Scope::root("tasks", RootOptions::single_runtime());
        let mut parts = TaskParts::of(executor.clone());
        parts.canceler = canceler;
        let opened = TaskManager::open(log.clone(), root.clone(), Arc::new(parts), options);
        Self {
            log,
            root,
            executor,
            manager: opened.await.expect("it opens"),
        }
    }

    fn check_receipt(&self, receipt: &Receipt, case: &str) {
        let is_live = |state: &ItemState| {
            matches!(
                state,
                ItemState::StillRunning { .. } | ItemState::Unreachable { .. }
            )
        };
        let live = receipt.items().iter().any(|item| is_live(&item.state));
        assert!(!(receipt.quiet() && live), "{case}: {receipt:?}");
        if receipt.quiet() {
            assert_eq!(
                self.executor.live(),
                0,
                "{case}: quiet, and an executor is live"
            );
        }
    }

    async fn cancel(&self, case: &str) {
        let began = Instant::now();
        let id = self.id();
        let stopped = timeout(ANSWER_MAX, self.manager.cancel(&id, user())).await;
        let took = began.elapsed();
        match stopped.unwrap_or_else(|_| panic!("{case}: no answer")) {
            Ok(outcome) => {
                assert!(
                    outcome.task.has_ended(),
                    "{case}: {:?}",
                    outcome.task.status
                );
                self.check_receipt(&outcome.receipt, case);
                assert!(
                    outcome.receipt.quiet(),
                    "{case}, {took:?}: {:?}",
                    outcome.receipt
                );
            }
            Err(CancelError::AlreadyEnded(task)) => {
                assert_eq!(task.status.state, TaskState::Completed, "{case}");
            }
            Err(CancelError::ShuttingDown | CancelError::Refused(_)) => {}
            Err(other) => panic!("{case}: {other}"),
        }
    }

    async fn shut_down(&self, case: &str) {
        let report = self.manager.shutdown(ANSWER_MAX, "test").await;
        assert_eq!(report.not_stored, 0, "{case}");
        for receipt in &report.receipts {
            self.check_receipt(receipt, case);
        }
    }

    fn id(&self) -> allstop_core::TaskId {
        let page = self
            .manager
            .list(&allstop_task::ListFilter::default(), None, 2)
            .now_or_never()
            .expect("it never waits")
            .expect("one machine");
        page.tasks.first().expect("a task").id.clone()
    }

    async fn stop(&self, kind: StopKind, case: &str) {
        match kind {
            StopKind::Cancel => self.cancel(case).await,
            StopKind::CancelTwice => {
                tokio::join!(self.cancel(case), self.cancel(case));
            }
            StopKind::Shutdown => self.shut_down(case).await,
            StopKind::CancelThenShutdown => {
                tokio::join!(self.cancel(case), async {
                    yield_now().await;
                    self.shut_down(case).await;
                });
            }
        }
    }

    /// Checks that no work runs any more, and that there is one end for each start. Returns the end.
    async fn check_end(self, case: &str) -> (TaskState, Option<CauseKind>) {
        let id = self.id();
        self.shut_down(case).await;
        wait_until("nothing works", || {
            self.executor.live() == 0 && self.root.is_quiet()
        })
        .await;
        let (task, starts, ends) = fold(&*self.log, &id).await;
        assert_eq!(starts, ends, "{case}: {task:?}");
        assert!(!task.is_executing, "{case}: {task:?}");
        let ending = &task.ending;
        (
            task.status.state,
            ending.cause.as_ref().map(|known| known.kind),
        )
    }
}

#[tokio::test(start_paused = true)]
async fn stop_at_every_moment_has_one_end_and_a_true_receipt() {
    let (mut completed, mut stopped) = (0, 0);
    for (kind, is_deaf) in STOPS
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        for (at_ms, turns) in (0..TIMES_MS).flat_map(|at| (0..TURNS).map(move |turns| (at, turns)))
        {
            let case = format!("{kind:?}, deaf {is_deaf}, {at_ms} ms and {turns} turns");
            let run = Stage::open(three_steps(is_deaf), None, TaskOptions::default()).await;
            let accepted = run.manager.execute(request("m")).await.expect("accepted");
            sleep(Duration::from_millis(at_ms)).await;
            for _ in 0..turns {
                yield_now().await;
            }
            run.stop(kind, &case).await;
            drop(accepted);
            match run.check_end(&case).await {
                (TaskState::Completed, None) if !is_deaf => completed += 1,
                (TaskState::Canceled, Some(CauseKind::User)) if kind != StopKind::Shutdown => {
                    stopped += 1;
                }
                (TaskState::Canceled, Some(CauseKind::Shutdown))
                    if !matches!(kind, StopKind::Cancel | StopKind::CancelTwice) =>
                {
                    stopped += 1;
                }
                other => panic!("{case}: {other:?}"),
            }
        }
    }
    // There must be many stops before or during the work, and many after it.
    assert!(
        completed > 100 && stopped > 100,
        "{completed} and {stopped}"
    );
}

#[tokio::test(start_paused = true)]
async fn deadline_at_every_moment_has_one_end() {
    for (is_deaf, at_us) in [false, true]
        .into_iter()
        .flat_map(|is_deaf| (0..=6_000).step_by(250).map(move |at| (is_deaf, at)))
    {
        let case = format!("deadline of {at_us} µs, deaf {is_deaf}");
        let options = TaskOptions::default().execution_max(Duration::from_micros(at_us));
        let run = Stage::open(three_steps(is_deaf), None, options).await;
        let _accepted = run.manager.execute(request("m")).await.expect("accepted");
        sleep(ANSWER_MAX).await;
        let end = run.check_end(&case).await;
        let is_timeout = end == (TaskState::Failed, Some(CauseKind::Deadline));
        let is_completed = end == (TaskState::Completed, None);
        assert!(
            is_timeout || (is_completed && !is_deaf && at_us > 2_000),
            "{case}: {end:?}"
        );
    }
}

/// Canceler for a task at rest.
#[derive(Debug, Clone, Copy)]
enum RestCanceler {
    Agrees,
    WritesTheEnd,
    Refuses,
    Hangs,
}

impl Canceler for RestCanceler {
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        let canceler = *self;
        async move {
            sleep(Duration::from_millis(1)).await;
            match canceler {
                Self::Agrees => {}
                Self::WritesTheEnd => {
                    let _ended = cx.events.write(TaskEvent::state(TaskState::Canceled)).await;
                }
                Self::Refuses => return Err(ExecutorError::new("not now")),
                Self::Hangs => std::future::pending().await,
            }
            Ok(())
        }
        .boxed()
    }
}

/// A second stop comes at every moment of the first stop. The task waits for its client.
#[tokio::test(start_paused = true)]
async fn stop_of_a_task_at_rest_is_joined_at_every_moment() {
    use RestCanceler::{Agrees, Hangs, Refuses, WritesTheEnd};
    for canceler in [Agrees, WritesTheEnd, Refuses, Hangs] {
        for (kind, turns) in STOPS
            .into_iter()
            .flat_map(|kind| (0..TURNS).map(move |t| (kind, t)))
        {
            let case = format!("{canceler:?}, {kind:?} behind {turns} turns");
            let asks = crate::support::writes(TaskEvent::state(TaskState::InputRequired));
            let canceler = Some(Arc::new(canceler) as Arc<dyn Canceler>);
            let run = Stage::open(asks, canceler, TaskOptions::default()).await;
            let _accepted = run.manager.execute(request("m")).await.expect("accepted");
            sleep(Duration::from_millis(1)).await;
            tokio::join!(run.cancel(&case), async {
                for _ in 0..turns {
                    yield_now().await;
                }
                run.stop(kind, &case).await;
            });
            let (state, _) = run.check_end(&case).await;
            let is_kept = state == TaskState::InputRequired;
            assert!(is_kept || state == TaskState::Canceled, "{case}: {state}");
        }
    }
}
