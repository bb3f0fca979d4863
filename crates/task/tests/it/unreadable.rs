//! Stores with tasks that cannot be read: a newer version wrote a record, or a record is damaged.

use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::{AppendIds, Log, MemoryLog, RecordBytes, StreamName, Version};
use allstop_task::{
    CancelError, ExecuteError, ExecutorReturn, ListFilter, ReadTaskError, TaskEvent, TaskManager,
    TaskParts, TaskState, TaskStoreError,
};

use crate::retention::{HOUR, TestClock, older_than, pass, run};
use crate::support::{
    ScriptedExecutor, ended, follow_up, manager_over, request, three_events, user,
};

const NEWER: &str = r#"{"v":900,"type":"dream"}"#;

fn stream(id: &TaskId) -> StreamName {
    StreamName::new(format!("task/{id}"))
}

async fn records(log: &dyn Log, id: &TaskId) -> Vec<RecordBytes> {
    let records = log.read(&stream(id), Version(1), 100).await;
    let records = records.expect("memory").into_iter();
    records.map(|(_, record)| record).collect()
}

/// Asks for input, and completes after a second message.
fn asking() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx| async move {
        let state = match cx.task.history.len() {
            0 | 1 => TaskState::InputRequired,
            _ => TaskState::Completed,
        };
        let written = cx.events.write(TaskEvent::state(state)).await;
        written.expect("it runs");
        Ok(ExecutorReturn::Finished)
    })
}

/// A store after a crash of a newer version.
struct OldStore {
    log: Arc<dyn Log>,
    /// All records can be read.
    whole: TaskId,
    /// Ended, and then a newer version wrote a record.
    ended: TaskId,
    /// Waits for input, then a newer version wrote a record, and then comes the message `later`.
    waiting: TaskId,
    /// The first record is damaged.
    headless: TaskId,
}

impl OldStore {
    async fn new(clock: &TestClock) -> Self {
        let first: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let parts = TaskParts::of(asking());
        let manager = manager_over(Arc::clone(&first), parts, clock.options()).await;
        let mut tasks = Vec::new();
        for name in ["whole", "ended", "waiting", "headless"] {
            tasks.push(run(&manager, request(name)).await);
        }
        let [whole, ended, waiting, headless] = tasks.try_into().expect("four tasks");
        run(&manager, follow_up("end", &ended)).await;
        run(&manager, follow_up("later", &waiting)).await;

        let log = MemoryLog::new();
        let mut ids = AppendIds::new();
        for id in [&whole, &ended, &waiting, &headless] {
            let mut stored = records(&*first, id).await;
            if *id == ended {
                stored.push(NEWER.as_bytes().to_vec().into());
            } else if *id == waiting {
                // The message `later` is the first record after the question.
                let later = stored.iter().position(|record| has_word(record, "later"));
                let newer = NEWER.as_bytes().to_vec().into();
                stored.insert(later.expect("the message"), newer);
            } else if *id == headless {
                stored[0] = b"no JSON".to_vec().into();
            }
            let appended = log.append(&stream(id), Version(0), ids.next_id(), stored);
            appended.await.expect("memory");
        }
        let log = Arc::new(log);
        Self {
            log,
            whole,
            ended,
            waiting,
            headless,
        }
    }

    fn unreadable(&self) -> [&TaskId; 3] {
        [&self.ended, &self.waiting, &self.headless]
    }

    async fn open(&self, clock: &TestClock) -> TaskManager {
        let parts = TaskParts::of(three_events());
        manager_over(Arc::clone(&self.log), parts, clock.options()).await
    }
}

fn has_word(record: &[u8], word: &str) -> bool {
    String::from_utf8_lossy(record).contains(&format!("\"{word}\""))
}

#[track_caller]
fn assert_unreadable(error: &TaskStoreError) {
    assert!(error.is_unreadable(), "{error:?}");
    let text = allstop_core::error_chain(error);
    let has_remedy = text.contains("use the newer version") || text.contains("restore the store");
    assert!(has_remedy, "{text}");
}

#[tokio::test]
async fn unreadable_tasks_do_not_prevent_the_work_on_others() {
    let clock = TestClock::new();
    let store = OldStore::new(&clock).await;
    let manager = store.open(&clock).await;
    let named = manager.unreadable_tasks();
    assert_eq!(named.len(), 3, "{named:?}");
    for (id, error) in &named {
        assert!(store.unreadable().contains(&id));
        assert_unreadable(error);
    }
    let mut continued = manager
        .execute(follow_up("next", &store.whole))
        .await
        .expect("it waits for input");
    let task = ended(&manager, &mut continued).await;
    assert_eq!(task.status.state, TaskState::Completed);
    run(&manager, request("new")).await;
    // Lists contain the state before the record that cannot be read.
    let page = manager.list(&ListFilter::default(), None, 100).await;
    let page = page.expect("a list");
    let state = |id: &TaskId| Some(page.tasks.iter().find(|task| task.id == *id)?.state);
    assert_eq!(page.total, 4);
    assert_eq!(state(&store.ended), Some(TaskState::Completed));
    assert_eq!(state(&store.waiting), Some(TaskState::InputRequired));
    assert_eq!(state(&store.headless), None);
}

#[tokio::test]
async fn requests_for_an_unreadable_task_are_refused() {
    let clock = TestClock::new();
    let store = OldStore::new(&clock).await;
    let manager = store.open(&clock).await;
    let mut before = Vec::new();
    for id in store.unreadable() {
        before.push(records(&*store.log, id).await);
        match manager.get(id).await {
            Err(ReadTaskError::Store(error)) => assert_unreadable(&error),
            other => panic!("{other:?}"),
        }
        match manager.execute(follow_up("another", id)).await {
            Err(ExecuteError::Store(error)) => assert_unreadable(&error),
            other => panic!("{other:?}"),
        }
        match manager.cancel(id, user()).await {
            Err(CancelError::Store(error)) => assert_unreadable(&error),
            other => panic!("{other:?}"),
        }
        assert!(manager.preview(id, user()).await.is_err());
        assert!(manager.subscribe(id, None).await.is_err());
    }
    // Messages that these tasks have received start nothing.
    for message in ["ended", "end", "waiting", "later"] {
        match manager.execute(request(message)).await {
            Err(ExecuteError::Store(error)) => assert_unreadable(&error),
            other => panic!("{message}: {other:?}"),
        }
    }
    // Their records stay, also if they have ended long ago.
    run(&manager, request("new")).await;
    clock.pass(2 * HOUR);
    let report = pass(&manager, &older_than(HOUR)).await;
    assert_eq!((report.removed, report.in_use), (1, 1), "{report:?}");
    let mut after = Vec::new();
    for id in store.unreadable() {
        after.push(records(&*store.log, id).await);
    }
    assert_eq!(before, after);
}
