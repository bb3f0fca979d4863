//! Failures of executors, processors, factories, clean-ups and the store. Each failure results in one defined record. A
//! number such as G2 names a known failure of other A2A servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::CauseKind;
use allstop_log::{AppendIds, Log as _, MemoryLog, StreamName, Version};
use allstop_task::model::{Artifact, MessagePart, MessageSender, PartContent};
use allstop_task::{
    CancelError, Cleanup, CleanupCx, ExecuteError, ExecutionCx, Executor, ExecutorError,
    ExecutorReturn, Processor, ProcessorDecision, Task, TaskEvent, TaskMessage, TaskOptions,
    TaskParts, TaskPartsFactory, TaskState,
};
use allstop_testkit::{FaultyLog, LogFault};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::{
    ScriptedExecutor, ended, endless, follow_up, manager, manager_of, manager_over, request, rest,
    start, three_events, user, wait_until, writes,
};

/// Runs one task until it has failed. Returns the task with the error of its executor.
async fn failed(executor: &ScriptedExecutor, options: TaskOptions) -> Arc<Task> {
    let manager = manager(TaskParts::of(executor.clone()), options).await;
    let mut accepted = manager.execute(request("m1")).await.expect("it works");
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Failed);
    wait_until("nothing is left", || executor.live() == 0).await;
    task
}

fn error_of(task: &Task) -> &str {
    task.ending.error.as_deref().unwrap_or("no error")
}

fn cause_of(task: &Task) -> CauseKind {
    task.ending.cause.as_ref().expect("a cause").kind
}

#[tokio::test(start_paused = true)]
async fn error_of_the_executor_fails_the_task() {
    let executor = ScriptedExecutor::new(|_cx| async { Err(ExecutorError::new("no such city")) });
    let task = failed(&executor, TaskOptions::default()).await;
    assert_eq!(error_of(&task), "no such city");
    assert_eq!(cause_of(&task), CauseKind::Failure);
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_executor_fails_the_task_and_is_reported() {
    let panics = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&panics);
    let options = TaskOptions::default().on_panic(Arc::new(move |place, message| {
        seen.lock().push(format!("{place}: {message}"));
        panic!("the handler panics, too");
    }));
    let executor = ScriptedExecutor::new(|_cx| async { panic!("division by zero") });
    let task = failed(&executor, options).await;
    assert_eq!(error_of(&task), "the executor panicked");
    assert_eq!(*panics.lock(), ["executor: division by zero"]);
}

/// The executor panics in `execute`, before it returns a future.
#[tokio::test(start_paused = true)]
async fn panic_before_the_first_poll_fails_the_task() {
    struct Panicking;
    impl Executor for Panicking {
        fn execute(
            &self,
            _cx: allstop_task::ExecutionCx,
        ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
            panic!("at once")
        }
    }
    let manager = manager(TaskParts::of(Panicking), TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(error_of(&task), "the executor panicked");
}

/// G2: the executor returns and has written no event that ends the task.
#[tokio::test(start_paused = true)]
async fn g2_executor_that_returns_early_fails_the_task() {
    let executor = writes(TaskEvent::state(TaskState::Working));
    let options = TaskOptions::default().running_max(1);
    let manager = manager(TaskParts::of(executor.clone()), options).await;
    for number in 0..3 {
        let mut accepted = manager
            .execute(request(&format!("m{number}")))
            .await
            .unwrap();
        let task = ended(&manager, &mut accepted).await;
        assert_eq!(
            error_of(&task),
            "the executor returned without ending the task"
        );
        let refused = manager
            .execute(follow_up(&format!("f{number}"), &task.id))
            .await;
        assert!(matches!(refused.unwrap_err(), ExecuteError::Ended { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn execution_ends_with_its_last_event_writer() {
    let executor = ScriptedExecutor::new(|cx| async move {
        let events = cx.events.clone();
        let spec = allstop_scope::WorkSpec::new(allstop_core::receipt::ItemKind::Future, "heir");
        let heir = cx.scope.spawn(spec, move |_| async move {
            for state in [TaskState::Working, TaskState::Completed] {
                tokio::time::sleep(Duration::from_secs(1)).await;
                events.write(TaskEvent::state(state)).await.unwrap();
            }
        });
        drop(heir);
        Ok(ExecutorReturn::ContinuesElsewhere)
    });
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Completed);

    let executor = ScriptedExecutor::new(|_cx| async { Ok(ExecutorReturn::ContinuesElsewhere) });
    let task = failed(&executor, TaskOptions::default()).await;
    assert_eq!(
        error_of(&task),
        "the executor returned without ending the task"
    );
}

#[tokio::test(start_paused = true)]
async fn silent_executor_is_stopped_for_inactivity() {
    let options = TaskOptions::default().inactivity_max(Duration::from_secs(5));
    // An executor that ignores the stop still ends within the grace and the time for force.
    let executor = endless(true);
    let began = Instant::now();
    let task = failed(&executor, options).await;
    assert!(began.elapsed() <= Duration::from_secs(8));
    assert_eq!(cause_of(&task), CauseKind::Inactivity);
    assert!(task.ending.receipt.as_ref().unwrap().quiet());
}

#[tokio::test(start_paused = true)]
async fn every_event_resets_the_inactivity_limit() {
    let executor = ScriptedExecutor::new(|cx| async move {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(4)).await;
            cx.events
                .write(TaskEvent::state(TaskState::Working))
                .await
                .unwrap();
        }
        cx.events
            .write(TaskEvent::state(TaskState::Completed))
            .await
            .unwrap();
        Ok(ExecutorReturn::Finished)
    });
    let options = TaskOptions::default().inactivity_max(Duration::from_secs(5));
    let manager = manager(TaskParts::of(executor), options).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    assert_eq!(rest(&mut accepted.subscription).await.len(), 12);
    let task = manager.get(&accepted.task_id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_is_inactive() {
    let executor = ScriptedExecutor::new(|cx| async move {
        tokio::time::sleep(Duration::from_hours(10)).await;
        cx.events
            .write(TaskEvent::state(TaskState::Completed))
            .await
            .unwrap();
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    while accepted.subscription.next().await.is_some() {}
    let task = manager.get(&accepted.task_id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn deadline_of_an_execution_ends_it() {
    let options = TaskOptions::default().execution_max(Duration::from_secs(5));
    let executor = endless(false);
    let task = failed(&executor, options).await;
    assert_eq!(cause_of(&task), CauseKind::Deadline);
    assert!(task.ending.receipt.as_ref().unwrap().cancel_observed());
}

/// Processor that calls a closure.
struct ScriptedProcessor<D, E> {
    decide: D,
    on_error: E,
}

impl<D, E> Processor for ScriptedProcessor<D, E>
where
    D: Fn(TaskEvent) -> BoxFuture<'static, ProcessorDecision> + Send + Sync,
    E: Fn(ExecutorError) -> Result<TaskEvent, ExecutorError> + Send + Sync,
{
    fn process(&self, event: TaskEvent, _task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision> {
        (self.decide)(event)
    }

    fn process_error(
        &self,
        error: ExecutorError,
        _task: Arc<Task>,
    ) -> BoxFuture<'static, Result<TaskEvent, ExecutorError>> {
        std::future::ready((self.on_error)(error)).boxed()
    }
}

fn processing(
    executor: &ScriptedExecutor,
    decide: impl Fn(TaskEvent) -> BoxFuture<'static, ProcessorDecision> + Send + Sync + 'static,
) -> TaskParts {
    TaskParts::of(executor.clone()).processor(ScriptedProcessor {
        decide,
        on_error: Err,
    })
}

fn decided(decision: ProcessorDecision) -> BoxFuture<'static, ProcessorDecision> {
    std::future::ready(decision).boxed()
}

#[tokio::test(start_paused = true)]
async fn failing_processor_stops_the_executor_and_fails_the_task() {
    let executor = endless(true);
    let parts = processing(&executor, |_| {
        decided(ProcessorDecision::Fail("no room".into()))
    });
    let manager = manager(parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(error_of(&task), "no room");
    wait_until("the executor is gone", || executor.live() == 0).await;
}

/// Regression: the cause of the executor's stop was the same for all failures.
#[tokio::test(start_paused = true)]
async fn executor_gets_the_reason_of_a_processor() {
    let causes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&causes);
    let executor = ScriptedExecutor::new(move |cx: ExecutionCx| {
        let noted = Arc::clone(&noted);
        async move {
            let working = TaskEvent::state(TaskState::Working);
            cx.events.write(working).await.expect("it runs");
            cx.scope.stopped_at("waiting").await;
            noted.lock().extend(cx.scope.cause());
            Ok(ExecutorReturn::Finished)
        }
    });
    let parts = processing(&executor, |_| {
        decided(ProcessorDecision::Fail("no room".into()))
    });
    let manager = manager(parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    wait_until("the executor is gone", || executor.live() == 0).await;
    let causes = causes.lock().clone();
    assert_eq!(causes.len(), 1);
    assert_eq!(causes[0].to_string(), "failure (no room)");
}

#[tokio::test(start_paused = true)]
async fn panicking_and_hanging_processors_fail_the_task() {
    let executor = endless(true);
    let panicking = processing(&executor, |_| async { panic!("broken") }.boxed());
    let hanging = processing(&executor, |_| std::future::pending().boxed());
    for (parts, error) in [
        (panicking, "the processor panicked"),
        (hanging, "the processor took too long"),
    ] {
        let manager = manager(parts, TaskOptions::default()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        let task = ended(&manager, &mut accepted).await;
        assert_eq!(error_of(&task), error);
        wait_until("the executor is gone", || executor.live() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn processor_changes_drops_and_ends() {
    let executor = three_events();
    let parts = processing(&executor, |event| {
        decided(match event {
            TaskEvent::Artifact(_) => {
                ProcessorDecision::Replace(TaskEvent::artifact(Artifact::text("redacted", "")))
            }
            TaskEvent::Status(status) if status.state == TaskState::Working => {
                ProcessorDecision::Drop
            }
            event => ProcessorDecision::Keep(event),
        })
    });
    let manager = manager(parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    assert_eq!(
        rest(&mut accepted.subscription).await,
        ["snapshot submitted", "artifact redacted", "ended completed"]
    );

    // The processor replaces an event with a final event. The executor still works when this event ends the execution.
    let executor = endless(true);
    let parts = processing(&executor, |_| {
        decided(ProcessorDecision::Replace(TaskEvent::state(
            TaskState::Rejected,
        )))
    });
    let manager = manager_over(Arc::new(MemoryLog::new()), parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Rejected);
    wait_until("the executor is gone", || executor.live() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn processor_turns_an_error_into_a_result() {
    let executor = ScriptedExecutor::new(|_cx| async { Err(ExecutorError::new("refused")) });
    let parts = TaskParts::of(executor).processor(ScriptedProcessor {
        decide: |event| decided(ProcessorDecision::Keep(event)),
        on_error: |_| Ok(TaskEvent::state(TaskState::Rejected)),
    });
    let manager = manager(parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Rejected);
    assert_eq!(task.ending.error, None);
}

/// Factory that fails in a chosen way.
enum FailingFactory {
    Error,
    Panic,
    Hang,
}

impl TaskPartsFactory for FailingFactory {
    fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        match self {
            Self::Error => std::future::ready(Err(ExecutorError::new("no parts"))).boxed(),
            Self::Panic => panic!("broken"),
            Self::Hang => std::future::pending().boxed(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failing_factory_fails_the_task() {
    for (factory, error) in [
        (FailingFactory::Error, "no parts"),
        (FailingFactory::Panic, "the factory panicked"),
        (FailingFactory::Hang, "the factory took too long"),
    ] {
        let log = Arc::new(MemoryLog::new());
        let manager = manager_over(log, factory, TaskOptions::default()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        let task = ended(&manager, &mut accepted).await;
        assert_eq!(error_of(&task), error);
    }
}

/// G10: a clean-up that panics or hangs affects nothing else.
struct ScriptedCleanup {
    calls: Arc<AtomicUsize>,
    hangs: bool,
}

impl Cleanup for ScriptedCleanup {
    fn clean_up(&self, cx: CleanupCx) -> BoxFuture<'static, ()> {
        assert!(!cx.task.is_executing, "it comes behind the end");
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            return std::future::pending().boxed();
        }
        async { panic!("broken") }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn g10_failing_clean_up_leaves_the_result_and_the_manager() {
    for hangs in [false, true] {
        let calls = Arc::<AtomicUsize>::default();
        let executor = writes(TaskEvent::state(TaskState::InputRequired));
        let parts = TaskParts::of(executor).cleanup(ScriptedCleanup {
            calls: Arc::clone(&calls),
            hangs,
        });
        let manager = manager(parts, TaskOptions::default()).await;
        let mut first = manager.execute(request("m1")).await.unwrap();
        let task = ended(&manager, &mut first).await;
        // The message waits for the clean-up, and is then accepted.
        let mut second = manager.execute(follow_up("m2", &task.id)).await.unwrap();
        ended(&manager, &mut second).await;
        let _outcome = manager.cancel(&task.id, user()).await.unwrap();
        wait_until("each execution and the stop was cleaned up", || {
            calls.load(Ordering::SeqCst) == 3
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_refuses_the_first_record_refuses_the_message() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let executor = three_events();
    let manager = manager_over(
        log.clone(),
        TaskParts::of(executor.clone()),
        TaskOptions::default(),
    )
    .await;
    log.fail_at("task_created", LogFault::Refuse);
    let refused = manager.execute(request("m1")).await.unwrap_err();
    assert!(matches!(refused, ExecuteError::Store(_)), "{refused}");
    assert_eq!(
        manager
            .list(&allstop_task::ListFilter::default(), None, 9)
            .await
            .unwrap()
            .total,
        0
    );
    log.heal();
    // The refused message is not remembered, so it counts as a new message.
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    assert!(!accepted.is_repeated);
    assert_eq!(
        ended(&manager, &mut accepted).await.status.state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn store_that_refuses_an_event_fails_the_task() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let executor = endless(true);
    let manager = manager_over(
        log.clone(),
        TaskParts::of(executor.clone()),
        TaskOptions::default(),
    )
    .await;
    log.fail_at("status_changed", LogFault::Refuse);
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert!(
        error_of(&task).starts_with("an event was not stored"),
        "{}",
        error_of(&task)
    );
    wait_until("the executor is gone", || executor.live() == 0).await;
}

/// G4: the write of the end fails for a while. The task must not stay `working` forever.
#[tokio::test(start_paused = true)]
async fn g4_end_is_written_when_the_store_is_back() {
    for fault in [LogFault::Refuse, LogFault::LoseAnswer] {
        let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
        let executor = endless(false);
        let parts = TaskParts::of(executor.clone());
        let manager = manager_over(log.clone(), parts, TaskOptions::default()).await;
        let mut accepted = start(&manager, &executor).await;
        log.fail_at("task_ended", fault);
        let began = Instant::now();
        let stopped = manager.cancel(&accepted.task_id, user()).await;
        assert!(began.elapsed() < Duration::from_secs(15));
        assert!(matches!(stopped.unwrap_err(), CancelError::Store(_)));
        assert_eq!(executor.live(), 0);
        log.heal();
        let task = ended(&manager, &mut accepted).await;
        assert_eq!(task.status.state, TaskState::Canceled);
        assert!(task.ending.receipt.as_ref().unwrap().quiet());
    }
}

/// The executor returns data of its client. If a record were nested more deeply than the parser allows, the next
/// manager could not open the store.
#[tokio::test(start_paused = true)]
async fn event_that_could_not_be_read_again_fails_the_task() {
    for (levels, state) in [(100, TaskState::Completed), (101, TaskState::Failed)] {
        let data = (0..levels).fold(Value::Null, |value, _| Value::Array(vec![value]));
        let part = MessagePart {
            content: PartContent::Data(data),
            ..MessagePart::text("")
        };
        let message = TaskMessage {
            parts: vec![part],
            ..TaskMessage::text("done", MessageSender::Agent, "")
        };
        let log = Arc::new(MemoryLog::new());
        let executor = writes(TaskEvent::status(TaskState::Completed, message));
        let parts = TaskParts::of(executor);
        let manager = manager_over(log.clone(), parts.clone(), TaskOptions::default()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        let task = ended(&manager, &mut accepted).await;
        assert_eq!(task.status.state, state, "{levels} levels");
        // A second manager opens a copy of the store, as another process would.
        let (copy, stream) = (
            MemoryLog::new(),
            StreamName::new(format!("task/{}", task.id)),
        );
        let records = log.read(&stream, Version(1), 100).await.unwrap();
        let records = records.into_iter().map(|(_, bytes)| bytes).collect();
        let append = AppendIds::new().next_id();
        copy.append(&stream, Version(0), append, records)
            .await
            .unwrap();
        let again = manager_over(Arc::new(copy), parts, TaskOptions::default()).await;
        assert_eq!(*again.get(&task.id).await.unwrap(), *task);
    }
}
