//! Stops of running tasks, of tasks at rest (no execution runs), and of executions that are about to end. A number such
//! as G3 names a known failure of other A2A servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use allstop_core::receipt::{ItemKind, NothingToStop};
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::{ScopeOptions, StopRequest, WorkSpec};
use allstop_task::model::{Artifact, JsonMap, MessageSender};
use allstop_task::{
    CancelCx, CancelError, Canceler, ExecutorError, ExecutorReturn, SubscriptionItem, Task,
    TaskEvent, TaskMessage, TaskOptions, TaskParts, TaskRecord, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::support::{
    ScriptedExecutor, ended, endless, follow_up, manager, manager_of, request, rest, start,
    three_events, user, wait_until, writes,
};

/// Canceler that counts its calls and writes an event. The canceler can also refuse.
#[derive(Clone, Default)]
struct ScriptedCanceler {
    calls: Arc<AtomicUsize>,
    refusals: Arc<AtomicUsize>,
    event: Option<TaskEvent>,
}

impl Canceler for ScriptedCanceler {
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let refuses = self
            .refusals
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_ok();
        let event = self.event.clone();
        async move {
            if refuses {
                return Err(ExecutorError::new("not now"));
            }
            if let Some(event) = event {
                cx.events.write(event).await.expect("the execution runs");
            }
            Ok(())
        }
        .boxed()
    }
}

fn with_canceler(executor: &ScriptedExecutor, canceler: &ScriptedCanceler) -> TaskParts {
    TaskParts::of(executor.clone()).canceler(canceler.clone())
}

#[tokio::test(start_paused = true)]
async fn running_execution_is_stopped_with_a_receipt() {
    let executor = endless(false);
    let manager = manager_of(&executor).await;
    let mut accepted = start(&manager, &executor).await;
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(executor.live(), 0, "the work has ended, not only the state");
    assert!(outcome.receipt.quiet());
    assert!(outcome.receipt.cancel_observed());
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let ending = &outcome.task.ending;
    assert_eq!(ending.cause.as_ref().unwrap().kind, CauseKind::User);
    assert_eq!(ending.receipt.as_ref().unwrap(), &outcome.receipt);
    let items: Vec<_> = outcome
        .receipt
        .items()
        .iter()
        .map(|item| (&*item.name, item.state.as_str()))
        .collect();
    assert_eq!(items, [("executor", "stopped")]);
    assert_eq!(
        rest(&mut accepted.subscription).await,
        ["snapshot submitted", "working", "ended canceled"]
    );
}

/// G3: the executor ignores the stop.
#[tokio::test(start_paused = true)]
async fn g3_deaf_executor_is_dropped_after_the_grace() {
    let executor = endless(true);
    let manager = manager_of(&executor).await;
    let accepted = start(&manager, &executor).await;
    let began = Instant::now();
    let (first, second) = tokio::join!(
        manager.cancel(&accepted.task_id, user()),
        manager.cancel(&accepted.task_id, user())
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(began.elapsed() <= Duration::from_secs(3));
    assert_eq!(executor.live(), 0);
    assert_eq!(
        first.receipt, second.receipt,
        "a second stop joins the first"
    );
    assert!(first.receipt.quiet());
    assert_eq!(first.task.status.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn execution_that_completes_within_the_grace_is_completed() {
    let executor = ScriptedExecutor::new(|cx| async move {
        cx.scope.stopped_at("waiting").await;
        let artifact = Artifact::text("last", "words");
        cx.events
            .write(TaskEvent::artifact(artifact))
            .await
            .unwrap();
        cx.events
            .write(TaskEvent::state(TaskState::Completed))
            .await
            .unwrap();
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let mut accepted = start(&manager, &executor).await;
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Completed);
    assert_eq!(outcome.task.ending.cause, None);
    assert!(outcome.task.ending.receipt.is_some());
    assert_eq!(
        rest(&mut accepted.subscription).await,
        ["snapshot submitted", "artifact last", "ended completed"]
    );
}

/// Names and states of the items of a receipt.
fn items(receipt: &Receipt) -> Vec<(&str, &str)> {
    let items = receipt.items().iter();
    items
        .map(|item| (&*item.name, item.state.as_str()))
        .collect()
}

/// The executor stops a part of its work, and then a stop of the task comes.
#[tokio::test(start_paused = true)]
async fn stop_of_a_task_lists_the_work_of_an_earlier_stop_of_a_part() {
    let executor = ScriptedExecutor::new(|cx| async move {
        let part = cx.scope.child("part", ScopeOptions::default()).unwrap();
        let spec = WorkSpec::new(ItemKind::Future, "part");
        let work = part.spawn(spec, |_cx| std::future::pending::<()>());
        let parent = Cause::new(CauseKind::Parent);
        let stop = part.stop(StopRequest::new(Extent::Call, parent));
        cx.receipts.add_stop(stop.clone());
        drop((work.unwrap().await, stop.receipt().await));
        cx.events
            .write(TaskEvent::artifact(Artifact::text("part", "stopped")))
            .await
            .unwrap();
        cx.scope.stopped().await;
        cx.events
            .write(TaskEvent::state(TaskState::Completed))
            .await
            .unwrap();
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let mut accepted = start(&manager, &executor).await;
    let is_artifact = |item: &SubscriptionItem| {
        matches!(item, SubscriptionItem::Update(update)
            if matches!(*update.record, TaskRecord::ArtifactUpdated { .. }))
    };
    while !is_artifact(&accepted.subscription.next().await.unwrap().unwrap()) {}
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(outcome.receipt.cause().kind, CauseKind::User);
    assert_eq!(
        items(&outcome.receipt),
        [("part", "stopped"), ("executor", "finished")]
    );
}

#[tokio::test(start_paused = true)]
async fn executor_stops_its_execution() {
    let executor = ScriptedExecutor::new(|cx| async move {
        cx.stop(Cause::new(CauseKind::Deadline).detail("limit of the executor"));
        // The task has one stop, and the first cause remains.
        cx.stop(Cause::new(CauseKind::User));
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let mut accepted = start(&manager, &executor).await;
    rest(&mut accepted.subscription).await;
    let task = manager.get(&accepted.task_id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    let receipt = task.ending.receipt.as_ref().unwrap();
    assert_eq!(receipt.cause().kind, CauseKind::Deadline);
    assert_eq!(task.ending.cause.as_ref(), Some(receipt.cause()));
    assert_eq!(items(receipt), [("executor", "finished")]);
}

#[tokio::test(start_paused = true)]
async fn stop_of_an_ended_task_answers_at_once() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let refused = manager.cancel(&accepted.task_id, user()).await.unwrap_err();
    let CancelError::AlreadyEnded(task) = refused else {
        panic!("{refused}");
    };
    assert_eq!(task.status.state, TaskState::Completed);
    let refused = manager.cancel(&"nothing".into(), user()).await.unwrap_err();
    assert!(matches!(refused, CancelError::NotFound(_)));
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_stopped_task_names_the_first_stop() {
    let executor = endless(false);
    let manager = manager_of(&executor).await;
    let accepted = start(&manager, &executor).await;
    let first = manager.cancel(&accepted.task_id, user()).await.unwrap();
    let again = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(again.receipt.outcome(), Some(NothingToStop::AlreadyEnded));
    assert_eq!(again.receipt.stop_id(), first.receipt.stop_id());
    assert_eq!(again.task, first.task);
}

#[tokio::test(start_paused = true)]
async fn task_at_rest_is_ended_by_a_stop() {
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let canceler = ScriptedCanceler {
        event: Some(TaskEvent::status(
            TaskState::Canceled,
            TaskMessage::text("bye", MessageSender::Agent, "given up"),
        )),
        ..ScriptedCanceler::default()
    };
    let manager = manager(with_canceler(&executor, &canceler), TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert_eq!(
        outcome.task.status.message.as_ref().unwrap().id.as_str(),
        "bye"
    );
    assert!(outcome.receipt.quiet());
    assert_eq!(canceler.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_stops_of_a_task_at_rest_share_their_result() {
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let canceler = ScriptedCanceler::default();
    let manager = manager(with_canceler(&executor, &canceler), TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let stops = (0..8).map(|_| manager.cancel(&accepted.task_id, user()));
    let outcomes = futures::future::join_all(stops).await;
    let first = outcomes[0].as_ref().unwrap();
    for outcome in &outcomes {
        assert_eq!(outcome.as_ref().unwrap().task, first.task);
        assert_eq!(
            outcome.as_ref().unwrap().receipt.stop_id(),
            first.receipt.stop_id()
        );
    }
    assert_eq!(canceler.calls.load(Ordering::SeqCst), 1);
}

/// In a cluster, two nodes can each store a stop request for one task.
#[test]
fn second_stop_request_keeps_the_first_cause() {
    let at = SystemTime::now().into();
    let message = TaskMessage::text("m1", MessageSender::User, "do it");
    let created = TaskRecord::TaskCreated {
        task_id: "t1".into(),
        context_id: "c1".into(),
        owner: "alice".into(),
        message: Arc::new(message),
        metadata: JsonMap::new(),
        trace: None,
        at,
    };
    let requested = |by: &'static str| TaskRecord::StopRequested {
        cause: Cause::new(CauseKind::User).by(by),
        at,
    };
    let mut task = None;
    for record in [created, requested("first"), requested("second")] {
        Task::apply(&mut task, &record).unwrap();
    }
    let cause = task.unwrap().stop_requested.clone();
    assert_eq!(cause, Some(Cause::new(CauseKind::User).by("first")));
}

#[tokio::test(start_paused = true)]
async fn refused_stop_leaves_the_task_as_it_was() {
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let canceler = ScriptedCanceler {
        refusals: Arc::new(AtomicUsize::new(2)),
        ..ScriptedCanceler::default()
    };
    let manager = manager(with_canceler(&executor, &canceler), TaskOptions::default()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let before = ended(&manager, &mut accepted).await;
    // After the first refusal, a message is accepted.
    let refused = manager.cancel(&accepted.task_id, user()).await.unwrap_err();
    assert!(matches!(refused, CancelError::Refused(_)));
    let mut after = Task::clone(&*manager.get(&accepted.task_id).await.unwrap());
    // In a cluster, the stop and its refusal are records. They change only the update time of the task.
    after.updated_at = before.updated_at;
    assert_eq!(after, *before);
    let mut second = manager
        .execute(follow_up("m2", &accepted.task_id))
        .await
        .unwrap();
    ended(&manager, &mut second).await;
    // After the second refusal, a stop succeeds.
    let refused = manager.cancel(&accepted.task_id, user()).await.unwrap_err();
    assert!(matches!(refused, CancelError::Refused(_)));
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
}

/// The executor asks for input at the moment of the stop. The stop still ends the task.
#[tokio::test(start_paused = true)]
async fn stop_that_loses_against_input_required_is_decided_again() {
    let executor = ScriptedExecutor::new(|cx| async move {
        cx.events
            .write(TaskEvent::state(TaskState::InputRequired))
            .await
            .unwrap();
        // The executor returns only after its task is at rest. So the stop finds an execution that is about to end.
        cx.events.closed().await;
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    rest(&mut accepted.subscription).await;
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(outcome.receipt.quiet());
    assert_eq!(executor.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn canceler_writes_the_end_of_a_running_execution() {
    let executor = endless(false);
    let canceler = ScriptedCanceler {
        event: Some(TaskEvent::status(
            TaskState::Canceled,
            TaskMessage::text("bye", MessageSender::Agent, "stopped half way"),
        )),
        ..ScriptedCanceler::default()
    };
    let manager = manager(with_canceler(&executor, &canceler), TaskOptions::default()).await;
    let accepted = start(&manager, &executor).await;
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_eq!(
        outcome.task.status.message.as_ref().unwrap().id.as_str(),
        "bye"
    );
    assert!(outcome.task.ending.receipt.is_some());
    assert_eq!(executor.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn preview_stops_nothing() {
    let executor = endless(false);
    let manager = manager_of(&executor).await;
    let accepted = start(&manager, &executor).await;
    let preview = manager.preview(&accepted.task_id, user()).await.unwrap();
    assert!(preview.is_preview());
    assert_eq!(preview.items().len(), 1);
    assert_eq!(executor.live(), 1);
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
}

/// A stop at every moment of a short execution. Either the stop or the execution wins, and in both cases the task has
/// one end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_races_the_end() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    let mut endings = [0_usize; 2];
    for number in 0..500 {
        let mut accepted = manager
            .execute(request(&format!("m{number}")))
            .await
            .unwrap();
        for _ in 0..number % 17 {
            tokio::task::yield_now().await;
        }
        let stopped = manager.cancel(&accepted.task_id, user()).await;
        let words = rest(&mut accepted.subscription).await;
        let ends = words
            .iter()
            .filter(|word| word.starts_with("ended"))
            .count();
        assert_eq!(ends, 1, "{words:?}");
        match stopped {
            Ok(outcome) => {
                assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);
                endings[0] += 1;
            }
            Err(CancelError::AlreadyEnded(task)) => {
                assert_eq!(task.status.state, TaskState::Completed);
                endings[1] += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    wait_until("no executor is left", || executor.live() == 0).await;
    assert_eq!(endings.iter().sum::<usize>(), 500);
}
