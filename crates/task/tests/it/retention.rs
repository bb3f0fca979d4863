//! Removal of ended tasks that are old or too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::{ContextId, TaskId, Timestamp};
use allstop_log::{AppendId, Log, MemoryLog, StreamName, Version};
use allstop_task::{
    CancelError, ContextData, ExecuteError, ExecutorError, ExecutorReturn, ListFilter,
    NoContextData, ReadTaskError, RemovalReport, RetentionLimits, TaskAttachment, TaskEvent,
    TaskManager, TaskOptions, TaskParts, TaskRequest, TaskRetention, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::cluster::trap::{Trap, TrapLog};
use crate::support::{
    ScriptedExecutor, endless, follow_up, manager_over, request, rest, three_events, user, writes,
};

pub(crate) const HOUR: Duration = Duration::from_hours(1);

/// Clock that a test sets.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000_000_000)))
    }

    pub(crate) fn pass(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).expect("a short time");
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) fn options(&self) -> TaskOptions {
        let now = Arc::clone(&self.0);
        TaskOptions::default().now(Arc::new(move || {
            Timestamp::from_unix_ms(now.load(Ordering::SeqCst))
        }))
    }
}

/// Contexts whose data a test observes.
#[derive(Clone, Default)]
pub(crate) struct TestContexts {
    pub(crate) forgotten: Arc<Mutex<Vec<ContextId>>>,
    pub(crate) is_in_use: Arc<AtomicBool>,
}

impl ContextData for TestContexts {
    fn forget(&self, context: ContextId) -> BoxFuture<'static, Result<(), ExecutorError>> {
        let this = self.clone();
        async move {
            if this.is_in_use.load(Ordering::SeqCst) {
                return Err(ExecutorError::new("in use"));
            }
            this.forgotten.lock().push(context);
            Ok(())
        }
        .boxed()
    }
}

pub(crate) fn older_than(age_max: Duration) -> TaskRetention {
    with(RetentionLimits::default().age_max(age_max))
}

fn at_most(ended_max: usize) -> TaskRetention {
    with(RetentionLimits::default().ended_max(ended_max))
}

fn with(limits: RetentionLimits) -> TaskRetention {
    TaskRetention {
        limits,
        contexts: Arc::new(NoContextData),
        attachments: Vec::new(),
    }
}

pub(crate) async fn pass(manager: &TaskManager, retention: &TaskRetention) -> RemovalReport {
    let removed = manager.remove_ended(retention).await;
    removed.expect("the store works")
}

/// Runs a task to its end.
pub(crate) async fn run(manager: &TaskManager, request: TaskRequest) -> TaskId {
    let mut accepted = manager.execute(request).await.expect("accepted");
    rest(&mut accepted.subscription).await;
    accepted.task_id
}

async fn stop(manager: &TaskManager, id: &TaskId) {
    let stopped = manager.cancel(id, user()).await.expect("it stops");
    assert!(stopped.receipt.quiet());
}

fn in_context(message: &str, context: &str) -> TaskRequest {
    request(message).context(ContextId::new(context))
}

async fn opened(log: &Arc<dyn Log>, executor: &ScriptedExecutor, clock: &TestClock) -> TaskManager {
    let parts = TaskParts::of(executor.clone());
    manager_over(Arc::clone(log), parts, clock.options()).await
}

fn memory() -> Arc<dyn Log> {
    Arc::new(MemoryLog::new())
}

async fn total(manager: &TaskManager) -> usize {
    let of_alice = ListFilter::default().owner("alice");
    let page = manager.list(&of_alice, None, 100).await.expect("a list");
    assert_eq!(page.tasks.len(), page.total);
    let all = manager.list(&ListFilter::default(), None, 100).await;
    assert_eq!(all.expect("a list").total, page.total);
    page.total
}

#[tokio::test]
async fn removed_task_is_not_found_anywhere() {
    let (log, clock) = (memory(), TestClock::new());
    let executor = three_events();
    let manager = opened(&log, &executor, &clock).await;
    let old = run(&manager, request("m1")).await;
    clock.pass(HOUR);
    let recent = run(&manager, request("m2")).await;
    let none = pass(&manager, &older_than(HOUR)).await;
    assert_eq!(none, RemovalReport::default());
    clock.pass(Duration::from_millis(1));
    let report = pass(&manager, &older_than(HOUR)).await;
    assert_eq!((report.removed, report.in_use), (1, 0));

    for manager in [&manager, &opened(&memory_of(&log), &executor, &clock).await] {
        let read = manager.get_with_replies(&old).await;
        assert!(matches!(read, Err(ReadTaskError::NotFound(_))), "{read:?}");
        let events = manager.subscribe(&old, Some(Version(1))).await;
        assert!(matches!(events, Err(ReadTaskError::NotFound(_))));
        let stopped = manager.cancel(&old, user()).await;
        assert!(matches!(stopped, Err(CancelError::NotFound(_))));
        let preview = manager.preview(&old, user()).await;
        assert!(matches!(preview, Err(CancelError::NotFound(_))));
        let more = manager.execute(follow_up("m3", &old)).await;
        assert!(matches!(more, Err(ExecuteError::NotFound(_))));
        assert!(manager.get(&recent).await.is_ok());
        assert_eq!(total(manager).await, 1);
    }
    let streams = log.list("task/").await.expect("a list");
    assert_eq!(streams.len(), 1, "{streams:?}");
    // The message of the removed task is no longer known, and the message of the other task is.
    let again = manager.execute(request("m1")).await.expect("accepted");
    assert!(!again.is_repeated && again.task_id != old);
    let repeated = manager.execute(request("m2")).await.expect("accepted");
    assert!(repeated.is_repeated && repeated.task_id == recent);
}

/// The lock of the first manager is held, so the second manager opens a copy of the store.
fn memory_of(log: &Arc<dyn Log>) -> Arc<dyn Log> {
    let copied = MemoryLog::new();
    let streams = log.list("").now_or_never().expect("memory").expect("works");
    for (stream, _) in streams {
        let records = log.read(&stream, Version(1), 100).now_or_never();
        let records = records.expect("memory").expect("works");
        let bytes = records.into_iter().map(|(_, record)| record).collect();
        let copy = copied.append(&stream, Version(0), AppendId(1), bytes);
        copy.now_or_never().expect("memory").expect("works");
    }
    Arc::new(copied)
}

#[tokio::test]
async fn only_ended_tasks_are_removed() {
    let (log, clock) = (memory(), TestClock::new());
    let asks = ScriptedExecutor::new(|cx| async move {
        let text = cx.message.id.as_str().to_owned();
        let state = match text.as_str() {
            "asks" => TaskState::InputRequired,
            "runs" => {
                let working = TaskEvent::state(TaskState::Working);
                cx.events.write(working).await.expect("it runs");
                cx.scope.stopped_at("waiting").await;
                return Ok(ExecutorReturn::Finished);
            }
            _ => TaskState::Completed,
        };
        cx.events
            .write(TaskEvent::state(state))
            .await
            .expect("it runs");
        Ok(ExecutorReturn::Finished)
    });
    let options = clock.options().running_max(1);
    let manager = manager_over(log, TaskParts::of(asks.clone()), options).await;
    let asking = run(&manager, request("asks")).await;
    let ended = run(&manager, request("ends")).await;
    let running = manager
        .execute(request("runs"))
        .await
        .expect("accepted")
        .task_id;
    let queued = manager
        .execute(request("waits"))
        .await
        .expect("accepted")
        .task_id;
    clock.pass(1_000 * HOUR);
    for retention in [older_than(Duration::ZERO), at_most(0)] {
        pass(&manager, &retention).await;
        for id in [&asking, &running, &queued] {
            assert!(manager.get(id).await.is_ok(), "{id}");
        }
        assert!(manager.get(&ended).await.is_err());
    }
    assert_eq!(total(&manager).await, 3);
    stop(&manager, &running).await;
}

#[tokio::test]
async fn count_keeps_the_newest_tasks_and_the_pages_stay_right() {
    let (log, clock) = (memory(), TestClock::new());
    let manager = opened(&log, &three_events(), &clock).await;
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(run(&manager, request(&format!("m{number}"))).await);
        clock.pass(Duration::from_mins(2));
    }
    ids.reverse();
    let of_alice = ListFilter::default().owner("alice");
    let page = manager.list(&of_alice, None, 3).await.expect("a list");
    let report = pass(&manager, &at_most(4)).await;
    assert_eq!(report.removed, 2);
    let next = manager.list(&of_alice, page.next.as_ref(), 3).await;
    let next = next.expect("a list");
    assert_eq!((next.total, next.next), (4, None));
    let listed = page.tasks.iter().chain(&next.tasks);
    let listed: Vec<_> = listed.map(|task| task.id.clone()).collect();
    assert_eq!(listed, ids[..4]);
    // A position of a removed task is still a position.
    let removed = (Timestamp::from_unix_ms(0), ids[5].clone());
    let after = manager.list(&of_alice, Some(&removed), 3).await;
    assert_eq!(after.expect("a list").tasks, []);
    assert_eq!(pass(&manager, &at_most(0)).await.removed, 4);
    assert_eq!(total(&manager).await, 0);
}

#[tokio::test]
async fn task_stays_while_a_client_reads_it() {
    let (log, clock) = (memory(), TestClock::new());
    let manager = opened(&log, &three_events(), &clock).await;
    let id = run(&manager, request("m1")).await;
    let mut subscription = manager
        .subscribe(&id, Some(Version(1)))
        .await
        .expect("it exists");
    clock.pass(HOUR);
    let report = pass(&manager, &older_than(Duration::ZERO)).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    assert_eq!(rest(&mut subscription).await.len(), 3);
    drop(subscription);
    let report = pass(&manager, &older_than(Duration::ZERO)).await;
    assert_eq!((report.removed, report.in_use), (1, 0));
}

#[tokio::test]
async fn context_belongs_to_its_owner_until_its_data_is_deleted() {
    let (log, clock) = (memory(), TestClock::new());
    let manager = opened(&log, &three_events(), &clock).await;
    let contexts = TestContexts::default();
    let retention = TaskRetention {
        contexts: Arc::new(contexts.clone()),
        ..older_than(HOUR)
    };
    run(&manager, in_context("m1", "c")).await;
    run(&manager, in_context("m2", "c")).await;
    clock.pass(2 * HOUR);
    let newest = run(&manager, in_context("m3", "c")).await;
    assert_eq!(pass(&manager, &retention).await.removed, 2);
    assert_eq!(*contexts.forgotten.lock(), []);

    let of_bob = |message: &str| in_context(message, "c").owner("bob");
    clock.pass(2 * HOUR);
    contexts.is_in_use.store(true, Ordering::SeqCst);
    let report = pass(&manager, &retention).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    assert!(manager.get(&newest).await.is_ok());
    let refused = manager.execute(of_bob("b1")).await;
    assert!(matches!(refused, Err(ExecuteError::ContextOfOther(_))));

    contexts.is_in_use.store(false, Ordering::SeqCst);
    assert_eq!(pass(&manager, &retention).await.removed, 1);
    assert_eq!(*contexts.forgotten.lock(), [ContextId::new("c")]);
    run(&manager, of_bob("b2")).await;
    let refused = manager.execute(in_context("m4", "c")).await;
    assert!(matches!(refused, Err(ExecuteError::ContextOfOther(_))));
}

/// A context whose only task is not durable yet belongs to the owner of this task.
#[tokio::test]
async fn context_of_a_task_in_progress_stays_with_its_owner() {
    let (log, clock) = (memory(), TestClock::new());
    let executor = endless(false);
    let manager = opened(&log, &executor, &clock).await;
    let first = manager
        .execute(in_context("m1", "c"))
        .await
        .expect("accepted");
    stop(&manager, &first.task_id).await;
    drop(first);
    clock.pass(HOUR);
    let second = manager
        .execute(in_context("m2", "c"))
        .await
        .expect("accepted");
    let contexts = TestContexts::default();
    let retention = TaskRetention {
        contexts: Arc::new(contexts.clone()),
        ..older_than(Duration::from_mins(1))
    };
    assert_eq!(pass(&manager, &retention).await.removed, 1);
    assert_eq!(*contexts.forgotten.lock(), []);
    let of_bob = in_context("b1", "c").owner("bob");
    let refused = manager.execute(of_bob).await;
    assert!(matches!(refused, Err(ExecuteError::ContextOfOther(_))));
    stop(&manager, &second.task_id).await;
}

#[tokio::test]
async fn task_that_the_store_does_not_delete_still_exists() {
    let clock = TestClock::new();
    let trap = Trap::default();
    let log: Arc<dyn Log> = Arc::new(TrapLog {
        log: memory(),
        trap: trap.clone(),
    });
    let manager = opened(&log, &three_events(), &clock).await;
    let id = run(&manager, in_context("m1", "c")).await;
    clock.pass(HOUR);
    trap.failing_deletions.store(1, Ordering::SeqCst);
    let failed = manager.remove_ended(&older_than(Duration::ZERO)).await;
    failed.expect_err("the store fails");
    assert!(manager.get(&id).await.is_ok());
    assert_eq!(total(&manager).await, 1);
    let repeated = manager
        .execute(in_context("m1", "c"))
        .await
        .expect("accepted");
    assert!(repeated.is_repeated && repeated.task_id == id);
    drop(repeated);

    // Another process has written to the task, against the rules of such a store.
    let stream = StreamName::new(format!("task/{id}"));
    let version = manager.last_event(&id).await.expect("it exists");
    let foreign = log.append(&stream, version, AppendId(7), vec!["{}".into()]);
    foreign.await.expect("it is at this version");
    let report = pass(&manager, &older_than(Duration::ZERO)).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    assert_eq!(log.list("task/").await.expect("a list").len(), 1);
}

/// Data about tasks in other streams.
#[derive(Default)]
struct Beside {
    is_needed: AtomicBool,
    deleted: Mutex<Vec<TaskId>>,
}

impl TaskAttachment for Beside {
    fn streams(&self, task: &TaskId) -> Option<Vec<(StreamName, Version)>> {
        let streams = vec![(StreamName::new(format!("beside/{task}")), Version(1))];
        (!self.is_needed.load(Ordering::SeqCst)).then_some(streams)
    }

    fn deleted(&self, task: &TaskId) {
        self.deleted.lock().push(task.clone());
    }
}

#[tokio::test]
async fn attachments_go_with_their_task() {
    let (log, clock) = (memory(), TestClock::new());
    let manager = opened(&log, &three_events(), &clock).await;
    let id = run(&manager, request("m1")).await;
    let stream = StreamName::new(format!("beside/{id}"));
    let written = log.append(&stream, Version(0), AppendId(1), vec!["x".into()]);
    written.await.expect("a new stream");
    let beside = Arc::new(Beside::default());
    beside.is_needed.store(true, Ordering::SeqCst);
    let retention = TaskRetention {
        attachments: vec![Arc::clone(&beside) as Arc<dyn TaskAttachment>],
        ..older_than(Duration::ZERO)
    };
    clock.pass(HOUR);
    let report = pass(&manager, &retention).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    beside.is_needed.store(false, Ordering::SeqCst);
    assert_eq!(pass(&manager, &retention).await.removed, 1);
    assert_eq!(*beside.deleted.lock(), [id]);
    assert_eq!(log.list("").await.expect("a list"), []);
}

/// Tries to use a context of another owner while a task is being deleted.
struct Intruder {
    manager: TaskManager,
    calls: AtomicUsize,
    is_refused: AtomicBool,
}

impl TaskAttachment for Intruder {
    fn streams(&self, _task: &TaskId) -> Option<Vec<(StreamName, Version)>> {
        // The second call comes after the task has left the table, and before the store deletes it.
        if self.calls.fetch_add(1, Ordering::SeqCst) == 1 {
            let of_bob = in_context("b1", "c").owner("bob");
            let answer = self.manager.execute(of_bob).now_or_never();
            let is_refused = matches!(answer, Some(Err(ExecuteError::ContextOfOther(_))));
            self.is_refused.store(is_refused, Ordering::SeqCst);
        }
        Some(Vec::new())
    }

    fn deleted(&self, _task: &TaskId) {}
}

/// After a crash, the task may still be in the store, and would give the context to its owner.
#[tokio::test]
async fn context_is_free_only_after_the_store_has_deleted_its_last_task() {
    let (log, clock) = (memory(), TestClock::new());
    let manager = opened(&log, &three_events(), &clock).await;
    let id = run(&manager, in_context("m1", "c")).await;
    clock.pass(HOUR);
    let intruder = Arc::new(Intruder {
        manager: manager.clone(),
        calls: AtomicUsize::new(0),
        is_refused: AtomicBool::new(false),
    });
    let retention = TaskRetention {
        attachments: vec![Arc::clone(&intruder) as Arc<dyn TaskAttachment>],
        ..older_than(Duration::ZERO)
    };
    assert_eq!(pass(&manager, &retention).await.removed, 1);
    assert!(manager.get(&id).await.is_err());
    assert!(intruder.is_refused.load(Ordering::SeqCst));
}

#[tokio::test]
async fn answer_with_a_message_is_removed_too() {
    let (log, clock) = (memory(), TestClock::new());
    let message =
        allstop_task::TaskMessage::text("r1", allstop_task::model::MessageSender::Agent, "hello");
    let replies = writes(TaskEvent::Reply(Arc::new(message)));
    let manager = opened(&log, &replies, &clock).await;
    let id = run(&manager, request("m1")).await;
    assert!(manager.get_with_replies(&id).await.is_ok());
    clock.pass(HOUR);
    assert_eq!(pass(&manager, &older_than(Duration::ZERO)).await.removed, 1);
    assert!(manager.get_with_replies(&id).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn passes_repeat_until_the_manager_closes() {
    let (log, clock) = (memory(), TestClock::new());
    let manager = opened(&log, &three_events(), &clock).await;
    run(&manager, request("m1")).await;
    clock.pass(HOUR);
    let passes = Mutex::new(Vec::new());
    let (retention, own) = (older_than(Duration::from_mins(1)), manager.clone());
    let removing = own.keep_removing_ended(&retention, |report| passes.lock().push(report.removed));
    let test = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*passes.lock(), [1], "the first pass begins at once");
        run(&manager, request("m2")).await;
        clock.pass(HOUR);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(*passes.lock(), [1, 1]);
        let _report = manager.shutdown(Duration::from_secs(1), "test").await;
    };
    tokio::join!(removing, test);
}

#[tokio::test]
async fn hundreds_of_tasks_are_removed_in_one_pass() {
    let (log, clock) = (memory(), TestClock::new());
    let manager = opened(&log, &three_events(), &clock).await;
    for number in 0..300 {
        run(
            &manager,
            in_context(&format!("m{number}"), &format!("c{}", number / 2)),
        )
        .await;
        clock.pass(Duration::from_millis(1));
    }
    clock.pass(HOUR);
    let contexts = TestContexts::default();
    let retention = TaskRetention {
        contexts: Arc::new(contexts.clone()),
        ..at_most(3)
    };
    assert_eq!(pass(&manager, &retention).await.removed, 297);
    assert_eq!(total(&manager).await, 3);
    let mut forgotten = contexts.forgotten.lock().clone();
    forgotten.sort();
    forgotten.dedup();
    assert_eq!(forgotten.len(), 148);
    assert_eq!(log.list("task/").await.expect("a list").len(), 3);
}
