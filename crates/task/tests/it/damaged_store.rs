//! Stores with damaged records of a task: the other tasks work, and no user gets the context of the damaged task.

use std::path::Path;
use std::sync::Arc;

use allstop_core::{ContextId, TaskId};
use allstop_log::{AppendId, Log, MemoryLog, SqliteLog, StreamName, Version};
use allstop_task::{
    ExecuteError, ListFilter, ReadTaskError, TaskManager, TaskOptions, TaskParts, TaskState,
};

use crate::retention::run;
use crate::support::{SOON, manager_over, request, three_events};

fn stream_of(id: &TaskId) -> StreamName {
    StreamName::new(format!("task/{id}"))
}

async fn open(log: &Arc<dyn Log>) -> TaskManager {
    let parts = TaskParts::of(three_events());
    manager_over(Arc::clone(log), parts, TaskOptions::default()).await
}

async fn assert_unreadable(manager: &TaskManager, id: &TaskId) {
    match manager.get(id).await {
        Err(ReadTaskError::Store(error)) => assert!(error.is_unreadable(), "{error}"),
        read => panic!("{read:?}"),
    }
}

fn damage(path: &Path, change: &str, id: &TaskId) {
    let store = rusqlite::Connection::open(path).expect("a store");
    let sql = format!("{change} AND stream = (SELECT id FROM streams WHERE name = ?1)");
    let changed = store.execute(&sql, [stream_of(id).as_str()]);
    assert_eq!(changed.expect(change), 1);
}

#[tokio::test]
async fn damaged_records_of_a_file_do_not_prevent_the_work_on_other_tasks() {
    for change in [
        "UPDATE records SET checksum = checksum + 1 WHERE number = 4",
        "DELETE FROM records WHERE number = 2",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.db");
        let log: Arc<dyn Log> = Arc::new(SqliteLog::open(&path).await.expect("a store"));
        let manager = open(&log).await;
        let damaged = run(&manager, request("m1")).await;
        let whole = run(&manager, request("m2")).await;
        drop((manager.shutdown(SOON, "restart").await, manager));
        log.close().await;
        drop(log);
        damage(&path, change, &damaged);
        let log: Arc<dyn Log> = Arc::new(SqliteLog::open(&path).await.expect("a store"));
        let manager = open(&log).await;
        assert_unreadable(&manager, &damaged).await;
        assert!(manager.get(&whole).await.is_ok(), "{change}");
        run(&manager, request("m3")).await;
        let page = manager.list(&ListFilter::default(), None, 10).await;
        assert!(page.expect("a page").total >= 2, "{change}");
        let streams = log.list("task/").await.expect("a list");
        assert!(streams.iter().any(|(name, _)| *name == stream_of(&damaged)));
    }
}

/// The damage is in the body of one record. The list has the task as it was before this record, and also the messages
/// after this record start no second task.
#[tokio::test]
async fn task_with_a_damaged_record_is_listed_as_it_was_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let log: Arc<dyn Log> = Arc::new(SqliteLog::open(&path).await.expect("a store"));
    let manager = open(&log).await;
    let mut tasks = Vec::new();
    for number in 1..=5 {
        let id = run(&manager, request(&format!("m{number}"))).await;
        tasks.push((number, id));
    }
    let (_, first) = tasks.first().expect("five tasks");
    let last = manager.last_event(first).await.expect("a task").0;
    assert_eq!(last, 5, "the records of a task");
    drop((manager.shutdown(SOON, "restart").await, manager));
    log.close().await;
    drop(log);
    for (number, id) in &tasks {
        let sql =
            "UPDATE records SET body = CAST(substr(body, 1, length(body) - 1) || x'7e' AS BLOB)";
        damage(&path, &format!("{sql} WHERE number = {number}"), id);
    }
    let log: Arc<dyn Log> = Arc::new(SqliteLog::open(&path).await.expect("a store"));
    let manager = open(&log).await;
    assert_eq!(manager.unreadable_tasks().len(), tasks.len());
    let page = manager.list(&ListFilter::default(), None, 10).await;
    let page = page.expect("a page");
    assert_eq!(page.total, tasks.len() - 1);
    for (number, id) in &tasks {
        assert_unreadable(&manager, id).await;
        let listed = page.tasks.iter().find(|task| task.id == *id);
        let state = match number {
            1 => None,
            2 | 3 => Some(TaskState::Submitted),
            _ => Some(TaskState::Working),
        };
        assert_eq!(listed.map(|task| task.state), state, "record {number}");
    }
}

/// The owner and the context of a task without a readable record are unknown. A context is a conversation, so a new task
/// must not get the context of another owner.
#[tokio::test(start_paused = true)]
async fn context_of_an_unreadable_task_is_not_given_to_another_owner() {
    let in_context = |message, context| request(message).context(ContextId::new(context));
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let manager = open(&log).await;
    run(&manager, in_context("m1", "known")).await;
    drop((manager.shutdown(SOON, "restart").await, manager));
    let damaged = TaskId::new("damaged");
    let record = vec!["no JSON".into()];
    let appended = log.append(&stream_of(&damaged), Version(0), AppendId(1), record);
    appended.await.expect("memory");
    let manager = open(&log).await;
    assert_unreadable(&manager, &damaged).await;
    let refused = manager.execute(in_context("m2", "unknown")).await;
    assert!(
        matches!(refused, Err(ExecuteError::ContextUnreadable(_))),
        "{refused:?}"
    );
    run(&manager, in_context("m3", "known")).await;
    run(&manager, request("m4")).await;
}
