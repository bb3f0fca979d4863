//! Tasks and records for unit tests.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::{Receipt, Timestamp, WorkerId};

use super::{
    IllegalTaskRecord, JsonMap, MessageSender, Task, TaskEnding, TaskMessage, TaskRecord,
    TaskState, TaskStatus, decode, encode,
};

pub(crate) fn at() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

/// Creates a task and applies these records to the task (a fold). Each record is encoded and decoded first.
pub(crate) fn fold(records: &[TaskRecord]) -> Result<Task, IllegalTaskRecord> {
    let created = TaskRecord::TaskCreated {
        task_id: "t".into(),
        context_id: "c".into(),
        owner: "alice".into(),
        message: Arc::new(TaskMessage::text("m", MessageSender::User, "do it")),
        metadata: JsonMap::new(),
        trace: None,
        at: at(),
    };
    let mut task = None;
    for record in [&created].into_iter().chain(records) {
        Task::apply(&mut task, &decode(&encode(record)).unwrap())?;
    }
    Ok(Arc::unwrap_or_clone(task.unwrap()))
}

pub(crate) fn task_of(records: impl IntoIterator<Item = TaskRecord>) -> Task {
    fold(&records.into_iter().collect::<Vec<_>>()).unwrap()
}

pub(crate) fn started(epoch: u64, worker: &str) -> TaskRecord {
    TaskRecord::ExecutionStarted {
        epoch,
        process: ProcessIdentity {
            pid: 1,
            start_ticks: 1,
            boot_id: "b".into(),
            pid_namespace: None,
        },
        worker: Some(WorkerId::new(worker)),
        at: at(),
    }
}

fn status(state: TaskState) -> TaskStatus {
    TaskStatus {
        state,
        message: None,
        at: at(),
    }
}

pub(crate) fn rested() -> TaskRecord {
    TaskRecord::StatusChanged {
        status: status(TaskState::InputRequired),
        metadata: JsonMap::new(),
    }
}

pub(crate) fn ended(lost_execution: Option<u64>, receipt: Option<Arc<Receipt>>) -> TaskRecord {
    TaskRecord::TaskEnded {
        status: status(TaskState::Failed),
        metadata: JsonMap::new(),
        ending: TaskEnding {
            receipt,
            lost_execution,
            ..TaskEnding::default()
        },
    }
}
