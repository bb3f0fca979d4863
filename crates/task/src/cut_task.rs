//! End of a task that has lost its last records in a repair of the store.

use std::sync::Arc;

use allstop_core::Timestamp;
use allstop_core::process::ProcessIdentity;
use allstop_log::{RecordBytes, StreamName};

use crate::execution::crashed;
use crate::model::{Task, TaskRecord, decode, encode};
use crate::task_stream::STREAM_PREFIX;

/// The records that end a task of which a repair in `process` has kept these records. Without them, the next start would
/// take the task for interrupted, and would repeat work that the lost records have reported. Empty if the stream is not
/// the stream of a task, or if the task has ended.
pub fn end_of_cut_task(
    stream: &StreamName,
    kept: &[RecordBytes],
    process: &ProcessIdentity,
    now: Timestamp,
) -> Vec<RecordBytes> {
    let task = match read(kept) {
        Some(task) if stream.as_str().starts_with(STREAM_PREFIX) && !task.has_ended() => task,
        _ => return Vec::new(),
    };
    let start = TaskRecord::ExecutionStarted {
        epoch: task.epoch + 1,
        process: process.clone(),
        worker: None,
        at: now,
    };
    let reason = "its later records were damaged, and a repair of the store has removed them";
    let end = crashed(reason.into(), None, now);
    vec![encode(&start), encode(&end)]
}

fn read(kept: &[RecordBytes]) -> Option<Arc<Task>> {
    let mut task = None;
    for record in kept {
        Task::apply(&mut task, &decode(record).ok()?).ok()?;
    }
    task
}
