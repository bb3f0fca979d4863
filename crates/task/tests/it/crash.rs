//! Processes that end without a shutdown, and the next process that opens the store.

use std::sync::Arc;

use allstop_core::{CauseKind, TaskId};
use allstop_log::{Log, MemoryLog};
use allstop_task::model::{MessagePart, MessageSender};
use allstop_task::{
    CancelCx, Canceler, ExecutorError, ExecutorReturn, TaskEvent, TaskManager, TaskMessage,
    TaskOptions, TaskParts, TaskState, TaskStoreError,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::support::{
    ScriptedExecutor, ended, endless, follow_up, manager_over, request, root, three_events, user,
    writes,
};

/// Runs a future in a separate runtime. Then drops the runtime with all remaining work. The resulting log looks like
/// the log of a crashed process.
fn crash_after<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(life)
}

fn one_slot() -> TaskOptions {
    TaskOptions::default().running_max(1)
}

/// Tasks of a process that has crashed: one task was running, and the other was waiting for a slot.
fn crashed(log: &Arc<dyn Log>) -> [TaskId; 2] {
    let log = Arc::clone(log);
    crash_after(async move {
        let executor = endless(false);
        let manager = manager_over(log, TaskParts::of(executor.clone()), one_slot()).await;
        let mut first = manager.execute(request("m1")).await.expect("it works");
        executor.started().await;
        // After the snapshot and `working`, both records are durable.
        first
            .subscription
            .next()
            .await
            .expect("it works")
            .expect("it works");
        first
            .subscription
            .next()
            .await
            .expect("it works")
            .expect("it works");
        let second = manager.execute(request("m2")).await.expect("it works");
        [first.task_id, second.task_id]
    })
}

#[test]
fn interrupted_task_ends_and_waiting_task_runs() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let [interrupted, waiting] = crashed(&log);
    crash_after(async {
        let parts = TaskParts::of(three_events());
        let manager = manager_over(Arc::clone(&log), parts, TaskOptions::default()).await;
        for (id, state) in [
            (&interrupted, TaskState::Failed),
            (&waiting, TaskState::Completed),
        ] {
            let mut subscription = manager.subscribe(id, None).await.unwrap();
            while subscription.next().await.is_some() {}
            let task = manager.get(id).await.unwrap();
            assert_eq!(task.status.state, state);
            if state == TaskState::Failed {
                let cause = task.ending.cause.as_ref().unwrap();
                assert_eq!(cause.kind, CauseKind::Failure);
                assert_eq!(cause.detail.as_deref(), Some("crash"));
            }
        }
        // The message was accepted before the crash, so a repetition starts no execution.
        assert!(manager.execute(request("m1")).await.unwrap().is_repeated);
    });
}

#[test]
fn resumable_task_continues() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let [interrupted, _waiting] = crashed(&log);
    crash_after(async {
        let executor = ScriptedExecutor::new(|cx| async move {
            let state = if cx.is_resumed {
                TaskState::Completed
            } else {
                TaskState::Rejected
            };
            cx.events.write(TaskEvent::state(state)).await.unwrap();
            Ok(ExecutorReturn::Finished)
        });
        let parts = TaskParts::of(executor.resumable());
        let manager = manager_over(Arc::clone(&log), parts, TaskOptions::default()).await;
        let mut subscription = manager.subscribe(&interrupted, None).await.unwrap();
        while subscription.next().await.is_some() {}
        let task = manager.get(&interrupted).await.unwrap();
        assert_eq!(task.status.state, TaskState::Completed);
        assert_eq!((task.epoch, task.take_overs), (2, 1));
    });
}

/// A canceler that knows the work of an interrupted execution.
struct NamesWork;

impl Canceler for NamesWork {
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        let text = format!("interrupted: {}", cx.is_interrupted);
        async move {
            let message = TaskMessage::text("named", MessageSender::Agent, text);
            let event = TaskEvent::status(TaskState::Canceled, message);
            cx.events.write(event).await.expect("it is running");
            Ok(())
        }
        .boxed()
    }
}

/// Regression: the end claimed that the task was stopped before its start, although an earlier process had executed it.
#[test]
fn stop_of_an_interrupted_task_names_its_work() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let ids = crash_after({
        let log = Arc::clone(&log);
        async move {
            let executor = endless(false);
            let parts = TaskParts::of(executor.clone());
            let manager = manager_over(log, parts, TaskOptions::default()).await;
            let mut ids = Vec::new();
            for id in ["m1", "m2"] {
                let mut accepted = manager.execute(request(id)).await.expect("it works");
                executor.started().await;
                for _ in 0..2 {
                    let item = accepted.subscription.next().await;
                    item.expect("it works").expect("it works");
                }
                ids.push(accepted.task_id);
            }
            // The recovery begins with the smaller id. Ids of one millisecond have a random order.
            ids.sort();
            ids
        }
    });
    crash_after(async {
        // One of the two tasks waits until the other one has ended.
        let executor = endless(false).resumable();
        let parts = TaskParts::of(executor.clone()).canceler(NamesWork);
        let manager = manager_over(log, parts, one_slot()).await;
        executor.started().await;
        let outcome = manager.cancel(&ids[1], user()).await.unwrap();
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
        let message = outcome.task.status.message.as_ref().expect("a message");
        assert_eq!(message.parts, [MessagePart::text("interrupted: true")]);
    });
}

#[test]
fn task_at_rest_is_as_it_was() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let parts = || TaskParts::of(writes(TaskEvent::state(TaskState::InputRequired)));
    let before = crash_after(async {
        let manager = manager_over(Arc::clone(&log), parts(), TaskOptions::default()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        ended(&manager, &mut accepted).await
    });
    crash_after(async {
        let manager = manager_over(Arc::clone(&log), parts(), TaskOptions::default()).await;
        assert_eq!(manager.get(&before.id).await.unwrap(), before);
        let mut second = manager.execute(follow_up("m2", &before.id)).await.unwrap();
        assert_eq!(ended(&manager, &mut second).await.epoch, 2);
    });
}

#[tokio::test(start_paused = true)]
async fn second_manager_of_a_store_is_refused() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let parts = TaskParts::of(three_events());
    let _first = manager_over(Arc::clone(&log), parts.clone(), TaskOptions::default()).await;
    let second = TaskManager::open(log, root(), Arc::new(parts), TaskOptions::default()).await;
    assert!(matches!(second.unwrap_err(), TaskStoreError::InUse(_)));
}
