//! A crash after every append. For each possible log, the next manager must end every task exactly once.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::{AppendIds, Log, MemoryLog, RecordBytes, StreamName, Version};
use allstop_task::model::{Artifact, MessageSender};
use allstop_task::{
    ExecutorReturn, ListFilter, Task, TaskEvent, TaskManager, TaskMessage, TaskOptions, TaskParts,
    TaskRecord, TaskState,
};

use crate::support::{
    ScriptedExecutor, ended, follow_up, manager_over, request, rest, user, wait_until,
};
use futures::FutureExt as _;

/// Executor for two executions. The first execution asks a question. The second execution works until the task is
/// stopped or complete.
fn two_executions() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx| async move {
        let says = |id: &str| TaskMessage::text(id, MessageSender::Agent, "so far");
        let events = if cx.task.epoch == 1 {
            vec![
                TaskEvent::status(TaskState::Working, says("s1")),
                TaskEvent::artifact(Artifact::text("draft", "x")),
                TaskEvent::status(TaskState::InputRequired, says("q")),
            ]
        } else {
            vec![
                TaskEvent::status(TaskState::Working, says("s2")),
                TaskEvent::state(TaskState::AuthRequired),
                TaskEvent::artifact(Artifact::text("answer", "42")),
                TaskEvent::state(TaskState::Completed),
            ]
        };
        for event in events {
            if cx.events.write(event).await.is_err() {
                break;
            }
            // Because of the pause, each event needs a separate append.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(ExecutorReturn::Finished)
    })
}

/// Records of two tasks without a crash: one task completes, and the other task is stopped.
async fn whole_lives() -> Vec<(TaskId, Vec<RecordBytes>)> {
    let log = Arc::new(MemoryLog::new());
    let executor = two_executions();
    let parts = TaskParts::of(executor.clone());
    let manager = manager_over(log.clone(), parts, TaskOptions::default()).await;
    let mut lives = Vec::new();
    for (number, is_stopped) in [(0, false), (1, true)] {
        let message = |step: usize| format!("m{number}{step}");
        let mut first = manager
            .execute(request(&message(0)))
            .await
            .expect("it works");
        let task = ended(&manager, &mut first).await;
        if is_stopped {
            let _outcome = manager.cancel(&task.id, user()).await.expect("it works");
        } else {
            let second = manager.execute(follow_up(&message(1), &task.id)).await;
            ended(&manager, &mut second.expect("it works")).await;
        }
        let stream = StreamName::new(format!("task/{}", task.id));
        let records = log.read(&stream, Version(1), 100).await.expect("it works");
        lives.push((
            task.id.clone(),
            records.into_iter().map(|(_, bytes)| bytes).collect(),
        ));
    }
    lives
}

/// The log of a process that wrote these records of the task and then crashed.
async fn log_after(id: &TaskId, records: &[RecordBytes]) -> Arc<MemoryLog> {
    let log = Arc::new(MemoryLog::new());
    let stream = StreamName::new(format!("task/{id}"));
    let mut ids = AppendIds::new();
    let written = log.append(&stream, Version(0), ids.next_id(), records.to_vec());
    written.await.expect("it is written");
    log
}

pub(crate) async fn fold(log: &dyn Log, id: &TaskId) -> (Arc<Task>, usize, usize) {
    let stream = StreamName::new(format!("task/{id}"));
    let (mut task, mut starts, mut ends) = (None, 0, 0);
    for (_, bytes) in log
        .read(&stream, Version(1), 1_000)
        .await
        .expect("it works")
    {
        let mut json: serde_json::Value = serde_json::from_slice(&bytes).expect("it works");
        drop(json.as_object_mut().expect("it works").shift_remove("v"));
        let record: TaskRecord = serde_json::from_value(json).expect("it works");
        // If an execution takes over another execution, the two have one end together.
        let is_new = !task
            .as_ref()
            .is_some_and(|task: &Arc<Task>| task.is_executing);
        let is_start = matches!(record, TaskRecord::ExecutionStarted { .. });
        starts += usize::from(is_start && is_new);
        ends += usize::from(record.ends_execution());
        Task::apply(&mut task, &record).expect("a legal record");
    }
    (task.expect("a task"), starts, ends)
}

/// Waits until the task is at rest or has ended. If the task is at rest, ends it.
async fn settle(manager: &TaskManager, executor: &ScriptedExecutor, id: &TaskId) {
    wait_until("it rests", || {
        let page = manager
            .list(&ListFilter::default(), None, 10)
            .now_or_never();
        let page = page.expect("it never waits").expect("one machine");
        let task = page.tasks.iter().find(|task| task.id == *id);
        let is_at_rest = task.is_some_and(|task| {
            task.has_ended() || task.state == TaskState::InputRequired && !task.is_executing
        });
        is_at_rest && executor.live() == 0
    })
    .await;
    drop(manager.cancel(id, user()).await);
}

#[tokio::test(start_paused = true)]
async fn every_prefix_of_a_log_is_ended_once() {
    for (id, records) in whole_lives().await {
        for cut in 1..=records.len() {
            for is_resumable in [false, true] {
                let prefix = records.get(..cut).expect("a prefix");
                let log = log_after(&id, prefix).await;
                let executor = two_executions();
                let executor = if is_resumable {
                    executor.resumable()
                } else {
                    executor
                };
                let parts = TaskParts::of(executor.clone());
                let options = TaskOptions::default();
                let manager = manager_over(log.clone(), parts, options).await;
                // The subscriber starts before the first record, and reads through the crash.
                let mut follower = manager.subscribe(&id, Some(Version(0))).await.unwrap();
                settle(&manager, &executor, &id).await;
                let (task, starts, ends) = fold(&*log, &id).await;
                let what = format!("cut behind {cut} of {}, {is_resumable}", records.len());
                assert!(task.has_ended(), "{what}: {}", task.status.state);
                assert_eq!(starts, ends, "{what}");
                assert_eq!(executor.live(), 0, "{what}");
                assert_eq!(manager.get(&id).await.unwrap(), task, "{what}");
                // The subscriber gets each record once. A subscription ends after each execution, so the test
                // subscribes again.
                let mut last = Version(0);
                while !rest(&mut follower).await.is_empty() {
                    assert!(follower.cursor() > last, "{what}");
                    last = follower.cursor();
                    follower = manager.subscribe(&id, Some(last)).await.unwrap();
                }
                let stream = StreamName::new(format!("task/{id}"));
                let all = log.read(&stream, Version(1), 1_000).await.unwrap();
                assert_eq!(last.0, all.len() as u64, "{what}");
            }
        }
    }
}

/// The process crashes again and again while it recovers from a crash.
#[tokio::test(start_paused = true)]
async fn crashes_during_recovery_end_the_task_once() {
    for (id, records) in whole_lives().await {
        for cut in 1..records.len() {
            let log = log_after(&id, records.get(..cut).expect("a prefix")).await;
            for pause_ms in [0, 1, 6, 11] {
                let (log, id) = (log.clone(), id.clone());
                // Each run of the process has a separate runtime. When the runtime is dropped, all of its work ends.
                let life = move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .start_paused(true)
                        .build()
                        .expect("a runtime");
                    runtime.block_on(async {
                        let parts = TaskParts::of(two_executions().resumable());
                        let _manager = manager_over(log, parts, TaskOptions::default()).await;
                        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                        drop(id);
                    });
                };
                #[expect(clippy::disallowed_methods, reason = "a process that crashes")]
                std::thread::spawn(life).join().expect("a life");
            }
            let executor = two_executions();
            let parts = TaskParts::of(executor.clone());
            let manager = manager_over(log.clone(), parts, TaskOptions::default()).await;
            settle(&manager, &executor, &id).await;
            let (task, starts, ends) = fold(&*log, &id).await;
            assert!(task.has_ended(), "cut behind {cut}: {}", task.status.state);
            assert_eq!(starts, ends, "cut behind {cut}");
        }
    }
}
