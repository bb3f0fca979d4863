//! Any bytes as the stream of a task, one record per line. A manager opens the store, or refuses it with a reason. If
//! the manager returns a task, the task must match its records, and there must be one end for each start. Each readable
//! record must round-trip.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::{AppendIds, Log, MemoryLog, RecordBytes, StreamName, Version};
use allstop_scope::{RootOptions, Scope};
use allstop_task::{
    ExecutionCx, Executor, ExecutorError, ExecutorReturn, ListFilter, Task, TaskManager,
    TaskOptions, TaskParts, TaskRecord,
};
use futures::future::BoxFuture;
use libfuzzer_sys::fuzz_target;

/// Name of the task's stream.
const STREAM: &str = "task/t";
/// Time after which a call counts as hanging.
const PATIENCE: Duration = Duration::from_hours(1);

struct FailingAgent;

impl Executor for FailingAgent {
    fn execute(
        &self,
        _cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        Box::pin(std::future::ready(Err(ExecutorError::new("no"))))
    }
}

fuzz_target!(|bytes: &[u8]| {
    let records: Vec<RecordBytes> = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| line.to_vec().into())
        .collect();
    if records.is_empty() {
        return;
    }
    for record in &records {
        check_record(record);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let checked = tokio::time::timeout(PATIENCE, check_stream(records)).await;
        checked.expect("nothing hangs");
    });
});

/// Checks that a record round-trips if it is readable.
fn check_record(bytes: &[u8]) {
    let Ok(record) = serde_json::from_slice::<TaskRecord>(bytes) else {
        return;
    };
    let written = serde_json::to_vec(&record).expect("a record can be written");
    let again: TaskRecord = serde_json::from_slice(&written).expect("it can be read");
    assert_eq!(again, record);
}

async fn check_stream(records: Vec<RecordBytes>) {
    let log = Arc::new(MemoryLog::new());
    let stream = StreamName::new(STREAM);
    let append = AppendIds::new().next_id();
    let written = log.append(&stream, Version(0), append, records).await;
    written.expect("the log takes any bytes");
    let root = Scope::root("fuzz", RootOptions::current());
    let parts = Arc::new(TaskParts::of(FailingAgent));
    let opened = TaskManager::open(log.clone(), root, parts, TaskOptions::default()).await;
    let Ok(manager) = opened else {
        return;
    };
    let id = TaskId::from("t");
    let report = manager.shutdown(Duration::from_secs(10), "fuzz").await;
    assert_eq!(report.not_stored, 0);
    let Ok(shown) = manager.get_with_replies(&id).await else {
        return;
    };
    let page = manager.list(&ListFilter::default(), None, 10).await;
    let page = page.expect("a list of one machine");
    assert!(page.tasks.len() <= 1);
    let (mut task, mut starts, mut ends) = (None, 0, 0);
    let records = log.read(&stream, Version(1), 10_000).await;
    for (_, bytes) in records.expect("it reads") {
        let record: TaskRecord = serde_json::from_slice(&bytes).expect("a shown record");
        // If an execution takes another one over, the two have one end together.
        let is_new = !task
            .as_ref()
            .is_some_and(|task: &Arc<Task>| task.is_executing);
        starts += usize::from(is_new && matches!(record, TaskRecord::ExecutionStarted { .. }));
        ends += usize::from(record.ends_execution());
        Task::apply(&mut task, &record).expect("a legal record");
    }
    let task = task.expect("a task");
    assert!(starts == ends || ends == starts + 1, "{starts} {ends}");
    assert!(!task.is_executing, "{task:?}");
    assert_eq!(*shown, *task);
}
