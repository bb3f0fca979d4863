//! The contract between the manager and the parts of a task: decisions of a processor, errors, clean-ups and factories.

use std::sync::Arc;

use allstop_log::{Log as _, MemoryLog, StreamName, Version};
use allstop_task::model::Artifact;
use allstop_task::{
    CancelCx, CancelError, CancelParts, Canceler, Cleanup, CleanupCx, ExecutionCx, Executor,
    ExecutorError, Processor, ProcessorDecision, SubscriptionItem, Task, TaskEvent, TaskOptions,
    TaskParts, TaskPartsFactory, TaskState,
};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use serde_json::Value;

use crate::support::{
    ExecutorResult, ScriptedExecutor, ended, endless, manager, manager_over, request, rest,
    three_events, user, wait_until, writes,
};

/// Processor that decides with two functions.
struct Deciding<D, E> {
    decide: D,
    on_error: E,
}

impl<D, E> Processor for Deciding<D, E>
where
    D: Fn(TaskEvent) -> ProcessorDecision + Send + Sync,
    E: Fn(ExecutorError) -> BoxFuture<'static, Result<TaskEvent, ExecutorError>> + Send + Sync,
{
    fn process(&self, event: TaskEvent, _task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision> {
        ready((self.decide)(event)).boxed()
    }

    fn process_error(
        &self,
        error: ExecutorError,
        _task: Arc<Task>,
    ) -> BoxFuture<'static, Result<TaskEvent, ExecutorError>> {
        (self.on_error)(error)
    }
}

fn processing(
    executor: &ScriptedExecutor,
    decide: impl Fn(TaskEvent) -> ProcessorDecision + Send + Sync + 'static,
) -> TaskParts {
    let on_error = |error| ready(Err(error)).boxed();
    TaskParts::of(executor.clone()).processor(Deciding { decide, on_error })
}

fn failing_with(
    on_error: impl Fn(ExecutorError) -> BoxFuture<'static, Result<TaskEvent, ExecutorError>>
    + Send
    + Sync
    + 'static,
) -> TaskParts {
    let executor = ScriptedExecutor::new(|_cx| async { Err(ExecutorError::new("refused")) });
    let decide = ProcessorDecision::Keep;
    TaskParts::of(executor).processor(Deciding { decide, on_error })
}

async fn end_of(parts: TaskParts) -> Arc<Task> {
    let manager = manager(parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.expect("accepted");
    ended(&manager, &mut accepted).await
}

/// The processor drops and replaces events. Each update has the number of its record, so a client that has read an
/// update can continue after it.
#[tokio::test(start_paused = true)]
async fn each_processed_event_arrives_with_its_version() {
    let log = Arc::new(MemoryLog::new());
    let parts = processing(&three_events(), |event| match event {
        TaskEvent::Status(status) if status.state == TaskState::Working => ProcessorDecision::Drop,
        event => ProcessorDecision::Keep(event),
    });
    let manager = manager_over(log.clone(), parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let stream = StreamName::new(format!("task/{}", accepted.task_id));
    let mut versions = Vec::new();
    while let Some(item) = accepted.subscription.next().await {
        match item.unwrap() {
            SubscriptionItem::Snapshot(version, _) => versions.push(version),
            SubscriptionItem::Update(update) => {
                let stored = log.read(&stream, update.version, 1).await.unwrap();
                let mut stored: Value = serde_json::from_slice(&stored[0].1).unwrap();
                stored.as_object_mut().unwrap().shift_remove("v");
                assert_eq!(stored, serde_json::to_value(&*update.record).unwrap());
                versions.push(update.version);
            }
        }
    }
    let first = versions[0].0;
    let dense: Vec<_> = (first..).take(versions.len()).map(Version).collect();
    assert_eq!(versions, dense);
    let records = log.read(&stream, Version(1), 100).await.unwrap();
    assert_eq!(versions.last(), records.last().map(|(version, _)| version));
}

#[tokio::test(start_paused = true)]
async fn processor_ends_the_execution_with_another_result_than_the_event() {
    let executor = endless(true);
    let parts = processing(&executor, |_event| ProcessorDecision::End {
        event: Some(TaskEvent::artifact(Artifact::text("answer", "42"))),
        result: TaskEvent::state(TaskState::Completed),
    });
    let manager = manager(parts, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    assert_eq!(
        rest(&mut accepted.subscription).await,
        ["snapshot submitted", "artifact answer", "ended completed"]
    );
    wait_until("the executor is gone", || executor.live() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn result_that_ends_nothing_fails_the_task() {
    let parts = processing(&endless(true), |_event| ProcessorDecision::End {
        event: None,
        result: TaskEvent::state(TaskState::Working),
    });
    let error = end_of(parts).await.ending.error.clone();
    let expected = "the result of the processor does not end the execution";
    assert_eq!(error.as_deref(), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn processor_awaits_and_then_replaces_an_error_with_another() {
    let task = end_of(failing_with(|error| {
        async move {
            tokio::task::yield_now().await;
            Err(ExecutorError::new(format!("the weather service {error}")))
        }
        .boxed()
    }));
    let error = task.await.ending.error.clone();
    assert_eq!(error.as_deref(), Some("the weather service refused"));
}

#[tokio::test(start_paused = true)]
async fn processor_turns_an_error_into_an_artifact_and_the_task_still_fails() {
    let artifact = || TaskEvent::artifact(Artifact::text("partial", "4"));
    let parts = failing_with(move |_error| ready(Ok(artifact())).boxed());
    let task = end_of(parts).await;
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(task.ending.error.as_deref(), Some("refused"));
}

#[tokio::test(start_paused = true)]
async fn panic_handler_chooses_the_error() {
    let options = || {
        TaskOptions::default().on_panic(Arc::new(|place, message| {
            Some(ExecutorError::new(format!("{place} broke: {message}")))
        }))
    };
    let executor = ScriptedExecutor::new(|_cx| async { panic!("boom") });
    let processor = processing(&endless(true), |_event| panic!("boom"));
    for (parts, error) in [
        (TaskParts::of(executor), "executor broke: boom"),
        (processor, "processor broke: boom"),
    ] {
        let manager = manager(parts, options()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        let task = ended(&manager, &mut accepted).await;
        assert_eq!(task.ending.error.as_deref(), Some(error));
    }
}

/// Clean-up that notes the state of the task and the error.
#[derive(Clone, Default)]
struct NotingCleanup(Arc<Mutex<Vec<String>>>);

impl Cleanup for NotingCleanup {
    fn clean_up(&self, cx: CleanupCx) -> BoxFuture<'static, ()> {
        let error = cx.error.map_or("no error".to_owned(), |it| it.to_string());
        let state = cx.task.status.state;
        self.0.lock().push(format!("{state}: {error}"));
        ready(()).boxed()
    }
}

impl NotingCleanup {
    async fn has_noted(&self, expected: &[&str]) {
        let noted = || self.0.lock().len() >= expected.len();
        wait_until("the clean-ups are called", noted).await;
        assert_eq!(*self.0.lock(), expected);
    }
}

/// Canceler that refuses each stop.
struct Refusing;

impl Canceler for Refusing {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        ready(Err(ExecutorError::new("not now"))).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn clean_up_gets_the_result_and_the_error() {
    let noted = NotingCleanup::default();
    let failing = ScriptedExecutor::new(|_cx| async { Err(ExecutorError::new("refused")) });
    drop(end_of(TaskParts::of(failing).cleanup(noted.clone())).await);
    noted.has_noted(&["failed: refused"]).await;

    let noted = NotingCleanup::default();
    let asking = writes(TaskEvent::state(TaskState::InputRequired));
    let parts = TaskParts::of(asking).cleanup(noted.clone());
    let manager = manager(parts.canceler(Refusing), TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    noted.has_noted(&["input_required: no error"]).await;
    let refused = manager.cancel(&task.id, user()).await.unwrap_err();
    assert!(matches!(refused, CancelError::Refused(_)), "{refused}");
    let both = [
        "input_required: no error",
        "input_required: the stop was refused: not now",
    ];
    noted.has_noted(&both).await;
}

/// Factory that creates an executor and its canceler in separate methods, and notes its calls.
#[derive(Clone)]
struct SeparateFactory {
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Executor for SeparateFactory {
    fn execute(&self, cx: ExecutionCx) -> BoxFuture<'static, ExecutorResult> {
        writes(TaskEvent::state(TaskState::InputRequired)).execute(cx)
    }
}

impl Canceler for SeparateFactory {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        self.calls.lock().push("canceler");
        ready(Ok(())).boxed()
    }
}

impl TaskPartsFactory for SeparateFactory {
    fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        self.calls.lock().push("for an execution");
        ready(Ok(TaskParts::of(self.clone()))).boxed()
    }

    fn create_for_cancel(
        &self,
        _task: Arc<Task>,
    ) -> BoxFuture<'static, Result<CancelParts, ExecutorError>> {
        self.calls.lock().push("for a stop");
        ready(Ok(CancelParts::of(self.clone()))).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_task_at_rest_uses_its_own_factory() {
    let calls = Arc::<Mutex<Vec<_>>>::default();
    let factory = SeparateFactory {
        calls: Arc::clone(&calls),
    };
    let manager = manager_over(Arc::new(MemoryLog::new()), factory, TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    let outcome = manager.cancel(&task.id, user()).await.unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let expected = ["for an execution", "for a stop", "canceler"];
    assert_eq!(*calls.lock(), expected);
}

/// Canceler that names its work and then ends the task.
struct EndsInTwoEvents;

impl Canceler for EndsInTwoEvents {
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        async move {
            for event in [
                TaskEvent::artifact(Artifact::text("secret", "")),
                TaskEvent::state(TaskState::Canceled),
            ] {
                cx.events.write(event).await.expect("the stop runs");
            }
            Ok(())
        }
        .boxed()
    }
}

/// Regression: the events of a canceler bypassed the processor if no executor ran.
#[tokio::test(start_paused = true)]
async fn events_of_a_canceler_are_processed_with_and_without_an_execution() {
    for is_at_rest in [true, false] {
        let processed = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&processed);
        let executor = if is_at_rest {
            writes(TaskEvent::state(TaskState::InputRequired))
        } else {
            endless(false)
        };
        let processor = Noting(move |event: &TaskEvent, task: &Task| {
            seen.lock().push(task.artifacts.len());
            match event {
                TaskEvent::Artifact(_) => {
                    ProcessorDecision::Replace(TaskEvent::artifact(Artifact::text("redacted", "")))
                }
                event => ProcessorDecision::Keep(event.clone()),
            }
        });
        let parts = TaskParts::of(executor.clone())
            .canceler(EndsInTwoEvents)
            .processor(processor);
        let manager = manager(parts, TaskOptions::default()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        if is_at_rest {
            ended(&manager, &mut accepted).await;
        } else {
            executor.started().await;
        }
        processed.lock().clear();
        let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
        let names: Vec<_> = outcome.task.artifacts.iter().map(|it| &*it.id).collect();
        assert_eq!(names, ["redacted"], "at rest: {is_at_rest}");
        assert!(processed.lock().ends_with(&[0, 1]), "{processed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn processor_ends_a_stop_at_rest_with_its_result_or_its_error() {
    let end = || ProcessorDecision::End {
        event: None,
        result: TaskEvent::state(TaskState::Rejected),
    };
    let fail = || ProcessorDecision::Fail("no room".into());
    for (decide, state, error) in [
        (&end as &(dyn Fn() -> _ + Sync), TaskState::Rejected, None),
        (&fail, TaskState::Canceled, Some("no room")),
    ] {
        let decision = decide();
        let processor = Noting(move |event: &TaskEvent, task: &Task| {
            if task.epoch == 1 {
                ProcessorDecision::Keep(event.clone())
            } else {
                decision.clone()
            }
        });
        let parts = TaskParts::of(writes(TaskEvent::state(TaskState::InputRequired)))
            .canceler(EndsInTwoEvents)
            .processor(processor);
        let manager = manager(parts, TaskOptions::default()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        ended(&manager, &mut accepted).await;
        let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
        let task = &outcome.task;
        assert_eq!(task.status.state, state);
        assert_eq!(task.ending.error.as_deref(), error);
    }
}

/// Processor that decides with the event and the task.
struct Noting<F>(F);

impl<F: Fn(&TaskEvent, &Task) -> ProcessorDecision + Send + Sync> Processor for Noting<F> {
    fn process(&self, event: TaskEvent, task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision> {
        ready((self.0)(&event, &task)).boxed()
    }
}
