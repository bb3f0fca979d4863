//! A store that refuses or delays writes, loses answers, or has a second writer. No task may stay `working`, no
//! execution may start twice, and every stop must get an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_log::{AppendIds, Log, MemoryLog, RecordBytes, StreamName, Version};
use allstop_task::model::Artifact;
use allstop_task::{
    CancelCx, CancelError, Canceler, ExecuteError, ExecutorError, ExecutorReturn, Task, TaskEvent,
    TaskManager, TaskOptions, TaskParts, TaskState, WhenFull,
};
use allstop_testkit::{FaultyLog, LogFault};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::support::{
    ScriptedExecutor, ended, endless, follow_up, manager_over, request, rest, start, three_events,
    user, wait_until, writes,
};

/// The grace, the time for force, and the longest wait for the write of an end.
const STOP_AND_WRITE_MAX: Duration = Duration::from_millis(13_200);

fn faulty() -> Arc<FaultyLog> {
    Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())))
}

async fn over(log: &Arc<FaultyLog>, parts: TaskParts) -> TaskManager {
    manager_over(log.clone(), parts, TaskOptions::default()).await
}

/// Types of the records of a stream.
async fn types_of(log: &dyn Log, id: &allstop_core::TaskId) -> Vec<String> {
    let stream = StreamName::new(format!("task/{id}"));
    let records = log
        .read(&stream, Version(1), 1_000)
        .await
        .expect("it reads");
    let type_of = |bytes: &RecordBytes| {
        let json: serde_json::Value = serde_json::from_slice(bytes).expect("a record");
        json["type"].as_str().expect("a type").to_owned()
    };
    records.iter().map(|(_, bytes)| type_of(bytes)).collect()
}

fn error_of(task: &Task) -> &str {
    task.ending.error.as_deref().unwrap_or("no error")
}

/// Executor that writes an artifact every second, forever.
pub(crate) fn ticking() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx| async move {
        let mut number = 0_u32;
        loop {
            tokio::select! {
                _cause = cx.scope.stopped_at("waiting") => return Ok(ExecutorReturn::Finished),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            number += 1;
            let artifact = Artifact::text(format!("a{number}"), "x");
            if cx
                .events
                .write(TaskEvent::artifact(artifact))
                .await
                .is_err()
            {
                return Ok(ExecutorReturn::Finished);
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn stop_answers_while_the_store_holds_an_event() {
    let log = faulty();
    let executor = ticking();
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    let mut accepted = start(&manager, &executor).await;
    log.fail_all(LogFault::Hold);
    log.reached().await;
    let began = Instant::now();
    let stopped = manager.cancel(&accepted.task_id, user()).await;
    assert!(
        began.elapsed() <= STOP_AND_WRITE_MAX,
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(stopped.unwrap_err(), CancelError::Store(_)));
    assert_eq!(executor.live(), 0);
    log.release().await;
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    let receipt = task.ending.receipt.as_ref().unwrap();
    assert!(receipt.quiet(), "{receipt:?}");
    let types = types_of(&*log, &task.id).await;
    assert_eq!(types.iter().filter(|word| *word == "task_ended").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn stop_answers_while_the_store_holds_the_end() {
    let log = faulty();
    let executor = endless(false);
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    let accepted = start(&manager, &executor).await;
    log.fail_at("task_ended", LogFault::Hold);
    let began = Instant::now();
    let stopped = manager.cancel(&accepted.task_id, user()).await;
    assert!(
        began.elapsed() <= STOP_AND_WRITE_MAX,
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(stopped.unwrap_err(), CancelError::Store(_)));
    let began = Instant::now();
    let report = manager.shutdown(Duration::from_secs(1), "test").await;
    assert!(began.elapsed() <= Duration::from_millis(1_100));
    assert_eq!(report.not_stored, 1);
    log.release().await;
    // The late write is the only end in the log.
    let types = types_of(&*log, &accepted.task_id).await;
    assert_eq!(types.iter().filter(|word| *word == "task_ended").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn stop_answers_while_the_store_holds_a_message_or_a_start() {
    let log = faulty();
    let executor = ScriptedExecutor::new(|cx| async move {
        if cx.task.epoch == 1 {
            let event = TaskEvent::state(TaskState::InputRequired);
            cx.events.write(event).await.unwrap();
        } else {
            cx.scope.stopped_at("waiting").await;
        }
        Ok(ExecutorReturn::Finished)
    });
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    log.fail_at("message_received", LogFault::Hold);
    let id = accepted.task_id.clone();
    let mut sending = Box::pin(manager.execute(follow_up("m2", &id)));
    let sent = tokio::time::timeout(Duration::from_secs(1), &mut sending).await;
    assert!(sent.is_err(), "the store holds it");
    let began = Instant::now();
    let stopped = manager.cancel(&id, user()).await;
    assert!(
        began.elapsed() <= STOP_AND_WRITE_MAX,
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(stopped.unwrap_err(), CancelError::Store(_)));
    log.release().await;
    wait_until("it is ended", || {
        let task = manager.get(&id).now_or_never().expect("at once").unwrap();
        task.status.state == TaskState::Canceled
    })
    .await;
    assert_eq!(executor.live(), 0);
    drop(sending);
}

/// Canceler that counts its calls.
#[derive(Clone, Default)]
struct CountingCanceler(Arc<AtomicUsize>);

impl Canceler for CountingCanceler {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn stop_at_rest_is_written_once_whatever_the_store_refuses() {
    for fault in [LogFault::Refuse, LogFault::LoseAnswer] {
        let log = faulty();
        let canceler = CountingCanceler::default();
        let parts = TaskParts::of(writes(TaskEvent::state(TaskState::InputRequired)))
            .canceler(canceler.clone());
        let manager = over(&log, parts).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        ended(&manager, &mut accepted).await;
        log.fail_once(fault);
        let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
        assert_eq!(canceler.0.load(Ordering::SeqCst), 1, "{fault:?}");

        // The failure is permanent, so the stop must report it within the limit.
        let mut second = manager.execute(request("m2")).await.unwrap();
        ended(&manager, &mut second).await;
        log.fail_all(fault);
        let began = Instant::now();
        let stopped = manager.cancel(&second.task_id, user());
        let stopped = tokio::time::timeout(Duration::from_mins(1), stopped).await;
        assert!(
            began.elapsed() <= STOP_AND_WRITE_MAX,
            "{:?}",
            began.elapsed()
        );
        assert!(matches!(
            stopped.unwrap().unwrap_err(),
            CancelError::Store(_)
        ));
        assert_eq!(canceler.0.load(Ordering::SeqCst), 2);
        log.heal();
        let mut follower = manager
            .subscribe(&second.task_id, Some(Version(3)))
            .await
            .unwrap();
        assert_eq!(rest(&mut follower).await, ["ended canceled"]);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_follow_up_can_be_sent_again() {
    let log = faulty();
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    log.fail_once(LogFault::Refuse);
    let refused = manager.execute(follow_up("m2", &accepted.task_id)).await;
    assert!(matches!(refused.unwrap_err(), ExecuteError::Store(_)));
    let mut again = manager
        .execute(follow_up("m2", &accepted.task_id))
        .await
        .unwrap();
    assert!(!again.is_repeated, "it was refused, so it is new");
    assert_eq!(ended(&manager, &mut again).await.epoch, 2);
}

/// The answer to a message is lost, and the client sends the message again. The message must start only one task and
/// one execution, even after a crash.
#[tokio::test(start_paused = true)]
async fn message_with_a_lost_answer_starts_once() {
    let log = faulty();
    let executor = three_events();
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    log.fail_at("task_created", LogFault::LoseAnswer);
    let lost = manager.execute(request("m1")).await.unwrap_err();
    assert!(matches!(lost, ExecuteError::Store(_)), "{lost}");
    log.heal();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut again = manager.execute(request("m1")).await.unwrap();
    assert!(again.is_repeated);
    let task = ended(&manager, &mut again).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(log.list("task/").await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn follow_up_with_a_lost_answer_runs_once() {
    let log = faulty();
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    // This subscriber keeps the task in memory.
    let _follower = manager.subscribe(&accepted.task_id, None).await.unwrap();
    log.fail_at("message_received", LogFault::LoseAnswer);
    let lost = manager.execute(follow_up("m2", &accepted.task_id)).await;
    assert!(matches!(lost.unwrap_err(), ExecuteError::Store(_)));
    log.heal();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let again = manager
        .execute(follow_up("m2", &accepted.task_id))
        .await
        .unwrap();
    assert!(again.is_repeated);
    wait_until("it rests again", || {
        let task = manager.get(&accepted.task_id).now_or_never();
        task.expect("at once").unwrap().epoch == 2 && executor.live() == 0
    })
    .await;
    let mut third = manager
        .execute(follow_up("m3", &accepted.task_id))
        .await
        .unwrap();
    assert_eq!(ended(&manager, &mut third).await.epoch, 3);
}

#[tokio::test(start_paused = true)]
async fn queued_task_whose_start_is_not_stored_ends() {
    for fault in [LogFault::Refuse, LogFault::LoseAnswer, LogFault::Hold] {
        let log = faulty();
        let executor = endless(false);
        let options = TaskOptions::default().running_max(1);
        let parts = TaskParts::of(executor.clone());
        let manager = manager_over(log.clone(), parts, options).await;
        let first = start(&manager, &executor).await;
        let mut second = manager.execute(request("m2")).await.unwrap();
        log.fail_at("execution_started", fault);
        let _outcome = manager.cancel(&first.task_id, user()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // No work of the task runs. The slot of the task must be free at the latest when the end of the task is stored.
        if fault == LogFault::Hold {
            let began = Instant::now();
            let stopped = manager.cancel(&second.task_id, user()).await;
            assert!(
                began.elapsed() <= STOP_AND_WRITE_MAX,
                "{:?}",
                began.elapsed()
            );
            assert!(stopped.is_err());
        }
        log.release().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        if executor.live() == 1 {
            // The append was stored although its answer was lost, so the task runs.
            let _outcome = manager.cancel(&second.task_id, user()).await.unwrap();
        }
        let task = ended(&manager, &mut second).await;
        assert!(task.has_ended(), "{fault:?}: {}", task.status.state);
        let third = manager.execute(request("m3")).await.unwrap();
        wait_until("it runs", || executor.live() == 1).await;
        let _outcome = manager.cancel(&third.task_id, user()).await.unwrap();
    }
}

/// One append contains both the event and the end, and the store always refuses the event.
#[tokio::test(start_paused = true)]
async fn event_that_is_refused_with_its_end_fails_the_task() {
    let log = faulty();
    let executor = three_events();
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    log.fail_at("artifact_updated", LogFault::Refuse);
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let task = ended(&manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Failed);
    let error = error_of(&task);
    assert!(error.starts_with("an event was not stored"), "{error}");

    // The same failure occurs during a stop. The end must still contain the receipt.
    let executor = ScriptedExecutor::new(|cx| async move {
        cx.scope.stopped_at("waiting").await;
        for event in [
            TaskEvent::artifact(Artifact::text("last", "words")),
            TaskEvent::state(TaskState::Completed),
        ] {
            cx.events.write(event).await.unwrap();
        }
        Ok(ExecutorReturn::Finished)
    });
    let log = faulty();
    let manager = over(&log, TaskParts::of(executor.clone())).await;
    let accepted = start(&manager, &executor).await;
    log.fail_at("artifact_updated", LogFault::Refuse);
    let outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    assert_ne!(outcome.task.status.state, TaskState::Completed);
    assert!(outcome.task.ending.receipt.is_some());
    let error = error_of(&outcome.task);
    assert!(error.starts_with("an event was not stored"), "{error}");
}

/// A running executor occupies the slot, but the write of its end does not.
#[tokio::test(start_paused = true)]
async fn slot_is_free_though_the_end_is_not_stored() {
    let log = faulty();
    let executor = three_events();
    let options = TaskOptions::default()
        .running_max(1)
        .when_full(WhenFull::Refuse);
    let parts = TaskParts::of(executor.clone());
    let manager = manager_over(log.clone(), parts, options).await;
    log.fail_at("task_ended", LogFault::Hold);
    let _first = start(&manager, &executor).await;
    log.reached().await;
    wait_until("it is gone", || executor.live() == 0).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    manager.execute(request("m2")).await.expect("a slot");
}

/// Canceler that never returns.
struct HangingCanceler;

impl Canceler for HangingCanceler {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        std::future::pending().boxed()
    }
}

/// A shutdown during four kinds of work: the acceptance of a message, a running task, a waiting task, and a stop of a
/// task at rest.
#[tokio::test(start_paused = true)]
async fn shutdown_is_in_time_whatever_is_under_way() {
    let log = faulty();
    let executor = ScriptedExecutor::new(|cx| async move {
        if cx.message.id.as_str() == "rests" {
            let event = TaskEvent::state(TaskState::InputRequired);
            cx.events.write(event).await.unwrap();
            return Ok(ExecutorReturn::Finished);
        }
        std::future::pending().await
    });
    let parts = TaskParts::of(executor.clone()).canceler(HangingCanceler);
    let options = TaskOptions::default().running_per_owner_max(1);
    let manager = manager_over(log.clone(), parts, options).await;
    let of_owner = |owner: &str, message: &str| request(message).owner(owner);
    let mut at_rest = manager.execute(of_owner("alice", "rests")).await.unwrap();
    ended(&manager, &mut at_rest).await;
    let running = manager.execute(of_owner("bob", "works")).await.unwrap();
    let waiting = manager.execute(of_owner("bob", "waits")).await.unwrap();
    wait_until("one works", || executor.live() == 1).await;
    log.fail_at("task_created", LogFault::Hold);
    let mut accepting = Box::pin(manager.execute(of_owner("carol", "held")));
    assert!(futures::poll!(&mut accepting).is_pending());
    let mut stopping = Box::pin(manager.cancel(&at_rest.task_id, user()));
    assert!(futures::poll!(&mut stopping).is_pending());

    let began = Instant::now();
    let report = manager.shutdown(Duration::from_secs(5), "test").await;
    assert!(
        began.elapsed() <= Duration::from_millis(5_100),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(report.not_stored, 1, "the message that the store holds");
    assert!(
        report.receipts.iter().all(|receipt| receipt.quiet()),
        "{:?}",
        report.receipts
    );
    assert_eq!(executor.live(), 0);
    for id in [&running.task_id, &waiting.task_id] {
        let task = manager.get(id).await.unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
    }
    assert!(matches!(
        stopping.await.unwrap_err(),
        CancelError::Refused(_)
    ));
    let accepting = tokio::time::timeout(Duration::from_secs(20), accepting).await;
    assert!(accepting.expect("it answers").is_err());
}

/// Appends records to the log, without the manager.
async fn intrude(log: &dyn Log, id: &allstop_core::TaskId, types: &[&str]) {
    let stream = StreamName::new(format!("task/{id}"));
    let (_, version) = log
        .list(stream.as_str())
        .await
        .expect("it works")
        .pop()
        .expect("the stream");
    let at = "2026-11-21T20:00:00.000Z";
    let records = types.iter().map(|kind| {
        let json = match *kind {
            "status_changed" => serde_json::json!({
                "v": 1, "type": kind, "status": {"state": "auth_required", "at": at},
            }),
            _ => serde_json::json!({
                "v": 1, "type": kind, "status": {"state": "rejected", "at": at},
            }),
        };
        RecordBytes::from(serde_json::to_vec(&json).expect("it works"))
    });
    let mut ids = AppendIds::new();
    let appended = log
        .append(&stream, version, ids.next_id(), records.collect())
        .await;
    appended.expect("it is appended");
}

#[tokio::test(start_paused = true)]
async fn second_writer_stops_the_executor_and_frees_the_task() {
    for types in [&["status_changed"][..], &["status_changed", "task_ended"]] {
        let log = Arc::new(MemoryLog::new());
        let executor = ticking();
        let parts = TaskParts::of(executor.clone());
        let manager = manager_over(log.clone(), parts, TaskOptions::default()).await;
        let mut accepted = start(&manager, &executor).await;
        let id = accepted.task_id.clone();
        intrude(&*log, &id, types).await;
        wait_until("the executor is gone", || executor.live() == 0).await;
        // A subscriber that started before this append receives the records of the other writer.
        let mut words = Vec::new();
        for _ in 0..=types.len() {
            let item = tokio::time::timeout(Duration::from_secs(9), accepted.subscription.next());
            words.push(item.await.expect("it is woken").expect("more").unwrap());
        }
        let task = manager.get(&id).await.unwrap();
        if types.len() == 1 {
            assert_eq!(task.status.state, TaskState::AuthRequired);
            let refused = manager.execute(follow_up("m2", &id)).await.unwrap_err();
            assert!(
                matches!(refused, ExecuteError::ExecutionInProgress(_)),
                "{refused}"
            );
            let outcome = manager.cancel(&id, user()).await.unwrap();
            assert_eq!(outcome.task.status.state, TaskState::Canceled);
        } else {
            assert_eq!(task.status.state, TaskState::Rejected);
            let refused = manager.execute(follow_up("m2", &id)).await.unwrap_err();
            assert!(matches!(refused, ExecuteError::Ended { .. }), "{refused}");
            let ended = manager.cancel(&id, user()).await.unwrap_err();
            assert!(matches!(ended, CancelError::AlreadyEnded(_)), "{ended}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_after_the_last_record_ends() {
    let log = faulty();
    let executor = three_events();
    let manager = over(&log, TaskParts::of(executor)).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let last = accepted.subscription.cursor();
    for cursor in [last, last.next()] {
        let mut again = manager
            .subscribe(&accepted.task_id, Some(cursor))
            .await
            .unwrap();
        assert!(rest(&mut again).await.is_empty(), "nothing more comes");
    }
}

/// Interrupted tasks wait for a slot like other tasks, even if the limit makes the manager refuse new tasks.
#[tokio::test(start_paused = true)]
async fn recovery_keeps_the_limits() {
    let options = || {
        TaskOptions::default()
            .running_max(2)
            .when_full(WhenFull::Refuse)
    };
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let before = endless(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let parts = TaskParts::of(before.clone());
                let manager = manager_over(Arc::clone(&log), parts, TaskOptions::default()).await;
                for number in 0..6 {
                    let sent = manager.execute(request(&format!("m{number}"))).await;
                    drop(sent.expect("accepted"));
                    before.started().await;
                }
            });
        });
    });
    let executor = endless(false).resumable();
    let parts = TaskParts::of(executor.clone());
    let manager = manager_over(log, parts, options()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(executor.live(), 2);
    let page = manager
        .list(&allstop_task::ListFilter::default(), None, 10)
        .await
        .unwrap();
    for task in &page.tasks {
        let _outcome = manager.cancel(&task.id, user()).await.unwrap();
    }
    assert_eq!(executor.live(), 0);
}
