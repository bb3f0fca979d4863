//! Sessions of the tasks that run or have left background work. A preview of a stop needs them, and a stop after the
//! end of a task.

use std::collections::HashMap;

use allstop_core::receipt::ReceiptItem;
use allstop_core::{MessageId, TaskId};
use allstop_session::{Session, StopTarget};
use parking_lot::Mutex;

/// The session of each task that runs, or that has left background work.
#[derive(Debug, Default)]
pub(super) struct TaskSessions(Mutex<HashMap<TaskId, TaskSession>>);

#[derive(Debug)]
struct TaskSession {
    session: Session,
    has_ended: bool,
}

/// Id of the message of a task in its session. A task has one turn, and therefore one message.
pub(super) fn message_id_of(task: &TaskId) -> MessageId {
    MessageId::new(task.as_str())
}

/// All work of a task in its session.
pub(super) fn work_of(task: &TaskId) -> StopTarget {
    StopTarget::MessageWork(message_id_of(task))
}

impl TaskSessions {
    /// Adds a task at the start of its turn.
    pub(super) fn put(&self, task: TaskId, session: &Session) {
        let entry = TaskSession {
            session: session.clone(),
            has_ended: false,
        };
        let mut sessions = self.0.lock();
        sessions.retain(|task, entry| !entry.has_ended || entry.runs(task));
        sessions.insert(task, entry);
    }

    /// True if the turn of the task has begun in this process.
    pub(super) fn has(&self, task: &TaskId) -> bool {
        self.0.lock().contains_key(task)
    }

    /// Marks the end of a task. A task with running work stays in the list.
    pub(super) fn end(&self, task: &TaskId) {
        let mut sessions = self.0.lock();
        if let Some(entry) = sessions.get_mut(task) {
            entry.has_ended = true;
            if !entry.runs(task) {
                sessions.remove(task);
            }
        }
    }

    /// Returns the session of an ended task, while work of the task runs in it.
    pub(super) fn ended_session(&self, task: &TaskId) -> Option<Session> {
        let sessions = self.0.lock();
        let entry = sessions.get(task)?;
        (entry.has_ended && entry.runs(task)).then(|| entry.session.clone())
    }

    /// True if background work of a task runs.
    pub(super) fn has_background_work(&self) -> bool {
        let sessions = self.0.lock();
        sessions.iter().any(|(task, entry)| entry.runs(task))
    }

    /// Lists the receipt items that a stop of the task would find in the session now.
    pub(super) fn preview(&self, task: &TaskId) -> Vec<ReceiptItem> {
        let session = self.0.lock().get(task).map(|entry| entry.session.clone());
        session.map_or_else(Vec::new, |session| {
            session.preview(&work_of(task)).items().to_vec()
        })
    }
}

impl TaskSession {
    fn runs(&self, task: &TaskId) -> bool {
        !self.session.background_of(&message_id_of(task)).is_empty()
    }
}
