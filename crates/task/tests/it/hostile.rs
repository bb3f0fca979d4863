//! Parts of a task (executor, canceler and others) that hang, panic or write forever. A stop must still be answered in
//! time, and the task must end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use allstop_core::TaskId;
use allstop_log::MemoryLog;
use allstop_scope::{RootOptions, Scope};
use allstop_task::model::Artifact;
use allstop_task::{
    CancelCx, CancelError, Canceler, Cleanup, CleanupCx, ExecuteError, ExecutionCx, Executor,
    ExecutorError, ExecutorReturn, ListFilter, Processor, ProcessorDecision, Task, TaskEvent,
    TaskManager, TaskOptions, TaskParts, TaskPartsFactory, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::support::{
    ScriptedExecutor, TestStore, ended, endless, follow_up, manager, manager_of, manager_over,
    request, rest, start, user, wait_until, writes,
};

/// Longest time of a stop in these tests: the grace and the time for force, with a small reserve for the scheduler.
const STOP_MAX: Duration = Duration::from_millis(3_100);

/// Canceler that never returns.
#[derive(Default)]
struct HangingCanceler {
    calls: Arc<AtomicUsize>,
}

impl Canceler for HangingCanceler {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::pending().boxed()
    }
}

/// Processor that takes this time for each event.
struct SlowProcessor(Duration);

impl Processor for SlowProcessor {
    fn process(&self, event: TaskEvent, _task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision> {
        let pause = self.0;
        async move {
            tokio::time::sleep(pause).await;
            ProcessorDecision::Keep(event)
        }
        .boxed()
    }
}

/// Factory that hangs after this number of successful calls.
struct HangingFactory {
    parts: TaskParts,
    calls_left: AtomicUsize,
}

impl HangingFactory {
    fn after(calls: usize, parts: TaskParts) -> Self {
        Self {
            parts,
            calls_left: AtomicUsize::new(calls),
        }
    }
}

impl TaskPartsFactory for HangingFactory {
    fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        let left = self
            .calls_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        match left {
            Ok(_) => std::future::ready(Ok(self.parts.clone())).boxed(),
            Err(_) => std::future::pending().boxed(),
        }
    }
}

async fn manager_with(factory: impl TaskPartsFactory + 'static) -> TaskManager {
    manager_over(Arc::new(MemoryLog::new()), factory, TaskOptions::default()).await
}

#[tokio::test(start_paused = true)]
async fn hanging_canceler_does_not_delay_a_stop() {
    for is_deaf in [false, true] {
        let executor = endless(is_deaf);
        let parts = TaskParts::of(executor.clone()).canceler(HangingCanceler::default());
        let manager = manager(parts, TaskOptions::default()).await;
        let accepted = start(&manager, &executor).await;
        let began = Instant::now();
        let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
        assert!(began.elapsed() <= STOP_MAX, "{:?}", began.elapsed());
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
        assert!(outcome.receipt.quiet());
        assert_eq!(executor.live(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_canceler_refuses_a_stop_at_rest_in_time() {
    let parts = TaskParts::of(writes(TaskEvent::state(TaskState::InputRequired)))
        .canceler(HangingCanceler::default());
    let manager = manager(parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let began = Instant::now();
    let refused = manager.cancel(&accepted.task_id, user()).await.unwrap_err();
    assert!(matches!(refused, CancelError::Refused(_)), "{refused}");
    assert!(began.elapsed() <= STOP_MAX, "{:?}", began.elapsed());
    // The task has not changed.
    let mut again = manager
        .execute(follow_up("m2", &accepted.task_id))
        .await
        .unwrap();
    ended(&manager, &mut again).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_factory_does_not_delay_a_stop() {
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let manager = manager_with(HangingFactory::after(0, TaskParts::of(executor))).await;
    let accepted = manager.execute(request("m1")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let began = Instant::now();
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert!(began.elapsed() <= STOP_MAX, "{:?}", began.elapsed());
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);

    // The second case is a task at rest: no execution runs.
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let manager = manager_with(HangingFactory::after(1, TaskParts::of(executor))).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let began = Instant::now();
    let refused = manager.cancel(&accepted.task_id, user()).await.unwrap_err();
    assert!(matches!(refused, CancelError::Refused(_)), "{refused}");
    assert!(began.elapsed() <= STOP_MAX, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn slow_processor_does_not_delay_a_stop() {
    for (pause, is_deaf) in [(9, false), (9, true), (100, true)] {
        let executor = ScriptedExecutor::new(move |cx| async move {
            for number in 0..40 {
                let artifact = Artifact::text(format!("a{number}"), "x");
                let _full = cx.events.write(TaskEvent::artifact(artifact)).await;
            }
            if is_deaf {
                std::future::pending::<()>().await;
            }
            cx.scope.stopped_at("waiting").await;
            Ok(ExecutorReturn::Finished)
        });
        let parts =
            TaskParts::of(executor.clone()).processor(SlowProcessor(Duration::from_secs(pause)));
        let manager = manager(parts, TaskOptions::default()).await;
        let accepted = start(&manager, &executor).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
        assert!(began.elapsed() <= STOP_MAX, "{:?}", began.elapsed());
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
        assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);
        assert_eq!(executor.live(), 0);
    }
}

/// The executor passes a clone of its event writer to a scope that no stop covers. There, the clone is used to write as
/// fast as possible.
fn leaking(end: ExecutorReturn, after: Duration) -> ScriptedExecutor {
    ScriptedExecutor::new(move |cx| async move {
        let events = cx.events.clone();
        let foreign = Scope::root("foreign", RootOptions::single_runtime());
        let spec = allstop_scope::WorkSpec::new(allstop_core::receipt::ItemKind::Future, "leak");
        drop(foreign.spawn(spec, |_| async move {
            let event = || TaskEvent::artifact(Artifact::text("leak", "x"));
            while events.write(event()).await.is_ok() {}
        }));
        tokio::time::sleep(after).await;
        Ok(end)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_writer_does_not_keep_an_execution() {
    for has_processor in [false, true] {
        let with_processor = |executor: &ScriptedExecutor| {
            let parts = TaskParts::of(executor.clone());
            if has_processor {
                parts.processor(SlowProcessor(Duration::ZERO))
            } else {
                parts
            }
        };
        let executor = leaking(ExecutorReturn::Finished, Duration::from_millis(50));
        let first = manager(with_processor(&executor), TaskOptions::default()).await;
        let accepted = first.execute(request("m1")).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), async {
            loop {
                let task = first.get(&accepted.task_id).await.unwrap();
                if task.status.state == TaskState::Failed {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the executor returned, so the task ends");

        let executor = leaking(ExecutorReturn::ContinuesElsewhere, Duration::ZERO);
        let second = manager(with_processor(&executor), TaskOptions::default()).await;
        let accepted = second.execute(request("m1")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let stopped = second.cancel(&accepted.task_id, user());
        let outcome = tokio::time::timeout(Duration::from_secs(5), stopped).await;
        let outcome = outcome.expect("the stop answers").unwrap();
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
    }
}

/// The executor drops its event writer immediately and continues to work. The canceler must be called nevertheless.
#[tokio::test(start_paused = true)]
async fn canceler_is_called_though_no_writer_is_left() {
    let executor = ScriptedExecutor::new(|cx| async move {
        let ExecutionCx { scope, events, .. } = cx;
        drop(events);
        scope.stopped_at("waiting").await;
        Ok(ExecutorReturn::Finished)
    });
    let canceler = HangingCanceler::default();
    let calls = Arc::clone(&canceler.calls);
    let parts = TaskParts::of(executor.clone()).canceler(canceler);
    let manager = manager(parts, TaskOptions::default()).await;
    let accepted = start(&manager, &executor).await;
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// The executor writes its end and then more events. These events are not stored, even if the execution is being
/// stopped.
#[tokio::test(start_paused = true)]
async fn events_after_the_end_are_dropped_during_a_stop() {
    let executor = ScriptedExecutor::new(|cx| async move {
        cx.scope.stopped_at("waiting").await;
        for event in [
            TaskEvent::state(TaskState::Completed),
            TaskEvent::artifact(Artifact::text("late", "x")),
        ] {
            let _refused = cx.events.write(event).await;
        }
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let mut accepted = start(&manager, &executor).await;
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(
        rest(&mut accepted.subscription).await,
        ["snapshot submitted", "ended completed"]
    );
}

/// Clean-up that never returns.
struct HangingCleanup;

impl Cleanup for HangingCleanup {
    fn clean_up(&self, _cx: CleanupCx) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_clean_up_does_not_delay_a_stop_or_a_shutdown() {
    let parts = || {
        TaskParts::of(writes(TaskEvent::state(TaskState::InputRequired))).cleanup(HangingCleanup)
    };
    let first = manager(parts(), TaskOptions::default()).await;
    let mut accepted = first.execute(request("m1")).await.unwrap();
    rest(&mut accepted.subscription).await;
    let began = Instant::now();
    let outcome = first.cancel(&accepted.task_id, user()).await.unwrap();
    // The stop may be decided twice: first for the execution that is about to end, and then for the task at rest.
    assert!(began.elapsed() <= 2 * STOP_MAX, "{:?}", began.elapsed());
    assert_eq!(outcome.task.status.state, TaskState::Canceled);

    let second = manager(parts(), TaskOptions::default()).await;
    let mut accepted = second.execute(request("m1")).await.unwrap();
    rest(&mut accepted.subscription).await;
    let report = second.shutdown(Duration::from_secs(1), "test").await;
    assert_eq!(report.not_stored, 0, "the end was durable before");
}

/// Parts that panic when they are dropped. The parts are dropped with the execution, and afterwards the next execution
/// can start.
#[tokio::test(start_paused = true)]
async fn parts_that_panic_in_their_drop_leave_the_task_free() {
    struct Bomb;
    impl Executor for Bomb {
        fn execute(
            &self,
            cx: ExecutionCx,
        ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
            async move {
                let event = TaskEvent::state(TaskState::InputRequired);
                let _refused = cx.events.write(event).await;
                Ok(ExecutorReturn::Finished)
            }
            .boxed()
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "boom");
        }
    }
    struct BombFactory;
    impl TaskPartsFactory for BombFactory {
        fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
            async { Ok(TaskParts::of(Bomb)) }.boxed()
        }
    }
    let manager = manager_with(BombFactory).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    for message in ["m2", "m3"] {
        let again = manager.execute(follow_up(message, &accepted.task_id));
        let again = tokio::time::timeout(Duration::from_mins(1), again).await;
        let mut again = again.expect("the task is free").unwrap();
        ended(&manager, &mut again).await;
    }
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
}

/// The clock and other code of the embedding program may call the manager without a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_may_read_the_manager() {
    let slot = Arc::new(OnceLock::<TaskManager>::new());
    let seen = Arc::clone(&slot);
    let options = TaskOptions::default().now(Arc::new(move || {
        if let Some(manager) = seen.get() {
            drop(manager.list(&ListFilter::default(), None, 1).now_or_never());
        }
        SystemTime::now().into()
    }));
    let executor = writes(TaskEvent::state(TaskState::Completed));
    let manager = manager(TaskParts::of(executor), options).await;
    slot.set(manager.clone()).expect("once");
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
}

/// Two executors: one stops its own task and waits for the receipt, and one sends a message to its own task.
#[tokio::test(start_paused = true)]
async fn executor_may_stop_its_own_task() {
    let slot = Arc::new(OnceLock::<TaskManager>::new());
    let seen = Arc::clone(&slot);
    let executor = ScriptedExecutor::new(move |cx| {
        let manager = seen.get().expect("set").clone();
        async move {
            let refused = manager.execute(follow_up("own", &cx.task.id)).await;
            assert!(matches!(
                refused.unwrap_err(),
                ExecuteError::ExecutionInProgress(_)
            ));
            drop(manager.cancel(&cx.task.id, user()).await);
            Ok(ExecutorReturn::Finished)
        }
    });
    let manager = manager_of(&executor).await;
    slot.set(manager.clone()).expect("once");
    let began = Instant::now();
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    assert!(began.elapsed() <= STOP_MAX);
    assert_eq!(executor.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn event_queue_of_no_length_still_works() {
    let options = TaskOptions::default().event_queue_len_max(0);
    let executor = writes(TaskEvent::state(TaskState::Completed));
    let manager = manager(TaskParts::of(executor), options).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Completed);
}

/// The runtime of the manager ends without a shutdown. Callers that wait on another runtime still get an answer.
#[test]
fn end_of_the_control_runtime_wakes_all_waiters() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let (control, here) = (runtime(), runtime());
    here.block_on(async {
        let options = RootOptions::single_runtime().control(control.handle().clone().into());
        let executor = endless(true);
        let manager = TaskManager::open(
            Arc::new(MemoryLog::new()),
            Scope::root("tasks", options),
            Arc::new(TaskParts::of(executor.clone())),
            TaskOptions::default().running_max(1),
        );
        let manager = manager.await.unwrap();
        let first = start(&manager, &executor).await;
        let second = manager.execute(request("m2")).await.unwrap();
        control.shutdown_background();
        let limit = Duration::from_secs(5);
        for id in [&first.task_id, &second.task_id] {
            let stopped = tokio::time::timeout(limit, manager.cancel(id, user())).await;
            assert!(stopped.expect("it answers").is_err());
        }
        for message in ["m3", "m4", "m5"] {
            let sent = tokio::time::timeout(limit, manager.execute(request(message))).await;
            let refused = sent.expect("it answers").unwrap_err();
            assert!(matches!(refused, ExecuteError::ShuttingDown), "{refused}");
        }
    });
}

/// A resumed execution answers the message of the client, even if a message of the executor follows the client's
/// message.
#[test]
fn resumed_execution_answers_the_message_of_the_client() {
    use allstop_task::model::MessageSender;
    let store = TestStore::over(Arc::new(MemoryLog::new()));
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let says = |id: &str| {
        let message = allstop_task::TaskMessage::text(id, MessageSender::Agent, "at it");
        TaskEvent::status(TaskState::Working, message)
    };
    let id: TaskId = runtime().block_on(async {
        let executor = ScriptedExecutor::new(move |cx| {
            let events = [says("s1"), says("s2")];
            async move {
                for event in events {
                    cx.events.write(event).await.unwrap();
                }
                std::future::pending().await
            }
        });
        let parts = TaskParts::of(executor);
        let manager = store.manager(parts, TaskOptions::default()).await;
        let accepted = manager.execute(request("m1")).await.unwrap();
        while manager.get(&accepted.task_id).await.unwrap().generation < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        accepted.task_id
    });
    runtime().block_on(async {
        let seen = Arc::new(parking_lot::Mutex::new(String::new()));
        let answered = Arc::clone(&seen);
        let executor = ScriptedExecutor::new(move |cx| {
            *answered.lock() = cx.message.id.to_string();
            async move {
                let end = TaskEvent::state(TaskState::Completed);
                cx.events.write(end).await.unwrap();
                Ok(ExecutorReturn::Finished)
            }
        });
        let parts = TaskParts::of(executor.clone().resumable());
        let manager = store.manager(parts, TaskOptions::default()).await;
        wait_until("it ran", || executor.live() == 0 && !seen.lock().is_empty()).await;
        assert_eq!(*seen.lock(), "m1");
        // A client may choose an id that a message of the executor already has.
        let sent = manager.execute(request("s1")).await.unwrap();
        assert!(!sent.is_repeated);
        assert_ne!(sent.task_id, id);
    });
}
