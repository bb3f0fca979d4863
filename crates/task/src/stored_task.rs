//! Tasks as they are in the store, including tasks with records that this process cannot read. A newer version of Allstop
//! may have written such a record, or the record is damaged.

use std::sync::Arc;

use allstop_core::{MessageId, TaskId};
use allstop_log::{Log, Version};

use crate::error::TaskStoreError;
use crate::model::{MessageSender, Task, TaskMessage, TaskRecord, decode};
use crate::task_stream::{READ_LEN_MAX, read_task, stream_of};

/// Task in the store.
#[derive(Debug)]
pub(crate) enum StoredTask {
    /// All records can be read.
    Whole(Version, Arc<Task>),
    /// A record cannot be read.
    Unreadable(UnreadableTask),
}

/// Readable part of a task with a record that cannot be read.
#[derive(Debug)]
pub(crate) struct UnreadableTask {
    pub(crate) id: TaskId,
    /// The task before that record, and the number of the last record before it. `None` if it is the first record.
    pub(crate) before: Option<(Version, Arc<Task>)>,
    /// Ids of the accepted messages after that record, as far as they can be read.
    pub(crate) later_messages: Vec<MessageId>,
    pub(crate) error: TaskStoreError,
}

/// Reads a task of the store. `None` if it has no records.
///
/// # Errors
/// If the store fails. A record that cannot be read is no failure of the store.
pub(crate) async fn read_stored(
    log: &dyn Log,
    id: &TaskId,
) -> Result<Option<StoredTask>, TaskStoreError> {
    match read_task(log, id).await {
        Ok(read) => Ok(read.map(|(version, task)| StoredTask::Whole(version, task))),
        Err(error) if error.is_unreadable() => {
            let part = read_part(log, id, error).await?;
            Ok(Some(StoredTask::Unreadable(part)))
        }
        Err(error) => Err(error),
    }
}

/// Reads what can be read of a task. If the store refuses a read because of a damaged record, the records are read one by
/// one up to that record. A second damage ends the reading, so that a damaged store needs only a few reads.
async fn read_part(
    log: &dyn Log,
    id: &TaskId,
    error: TaskStoreError,
) -> Result<UnreadableTask, TaskStoreError> {
    let (mut task, mut before, mut version) = (None, Version(0), Version(0));
    let (mut is_before, mut later_messages) = (true, Vec::new());
    let (mut limit, mut is_damaged) = (READ_LEN_MAX, false);
    loop {
        let read = log.read(&stream_of(id), version.next(), limit).await;
        let read = match read.map_err(TaskStoreError::from) {
            Ok(read) => read,
            Err(error) if !error.is_unreadable() => return Err(error),
            Err(_damage) if is_damaged => break,
            Err(_damage) if limit > 1 => {
                limit = 1;
                continue;
            }
            Err(_damage) => {
                (is_before, is_damaged) = (false, true);
                (version, limit) = (version.next(), READ_LEN_MAX);
                continue;
            }
        };
        let Some((last, _)) = read.last() else {
            break;
        };
        version = *last;
        for (number, bytes) in read {
            let record = decode(&bytes).ok();
            is_before = is_before
                && record
                    .as_ref()
                    .is_some_and(|record| Task::apply(&mut task, record).is_ok());
            match record {
                _ if is_before => before = number,
                Some(TaskRecord::MessageReceived { message, .. }) if is_of_client(&message) => {
                    later_messages.push(message.id.clone());
                }
                _ => {}
            }
        }
    }
    Ok(UnreadableTask {
        id: id.clone(),
        before: task.map(|task| (before, task)),
        later_messages,
        error,
    })
}

/// True if a client has sent the message.
pub(crate) fn is_of_client(message: &TaskMessage) -> bool {
    message.role == MessageSender::User
}
