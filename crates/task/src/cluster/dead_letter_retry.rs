//! Tasks during whose executions too many worker processes ended. A worker gives such a task up, and stores a dead
//! letter. A client can then request a new task that repeats the work.

use std::sync::Arc;

use allstop_core::{MessageId, TaskId};
use allstop_log::Version;

use super::dead_letter::DeadLetter;
use super::node::ClusterNode;
use crate::error::{ExecuteError, TaskStoreError};
use crate::execution::{crashed, last_message};
use crate::manager::{ManagerInner, TaskManager, TaskRequest};
use crate::model::{Task, TaskMessage};
use crate::task_stream::{TaskStream, read_task};

/// Reason why the work of a dead letter is not repeated.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterRetryError {
    /// No dead letter has this id.
    #[error("dead letter `{0}` not found")]
    NotSetAside(TaskId),
    /// A worker could not read the task and has stored a dead letter for it. A worker that can read the task runs it
    /// without a request of a client.
    #[error("the task `{0}` cannot be read; a worker of a newer version may run it")]
    Unreadable(TaskId),
    /// A worker still runs the task.
    #[error("the task `{0}` has not ended: a worker has it")]
    NotEnded(TaskId),
    /// The new task was not accepted.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}

impl TaskManager {
    /// Starts a new task with the last message of a task that was given up. The new task has the same context and
    /// owner. A second call returns the task of the first call, because the id of the new message is derived from the
    /// id of the old task.
    ///
    /// # Cancel safety
    /// If the call is dropped, it may nevertheless have started the new task.
    pub async fn retry_dead_letter(&self, id: &TaskId) -> Result<TaskId, DeadLetterRetryError> {
        let letters = self.dead_letters().await.map_err(ExecuteError::from)?;
        let letter = letters.into_iter().find(|letter| letter.task == *id);
        let letter = letter.ok_or_else(|| DeadLetterRetryError::NotSetAside(id.clone()))?;
        let read = read_task(&*self.inner.log, id).await;
        let message = match (&letter.owner, read) {
            (None, _) | (_, Err(TaskStoreError::Unreadable { .. })) => None,
            (_, Err(error)) => return Err(ExecuteError::from(error).into()),
            (_, Ok(read)) => read.and_then(|(_, task)| Some((last_message(&task)?, task))),
        };
        let Some((message, task)) = message else {
            return Err(DeadLetterRetryError::Unreadable(id.clone()));
        };
        if !task.has_ended() {
            return Err(DeadLetterRetryError::NotEnded(id.clone()));
        }
        let mut message = TaskMessage::clone(&message);
        message.id = MessageId::new(format!("{id}-again"));
        message.reference_task_ids.push(id.clone());
        let request = TaskRequest {
            owner: Arc::clone(&task.owner),
            task_id: None,
            context_id: Some(task.context_id.clone()),
            message,
            metadata: task.metadata.clone(),
            trace: None,
        };
        let again = self.execute(request).await?.task_id;
        let noted = self.inner.coordinator.note_again(&letter, &again).await;
        if let Err(error) = noted {
            tracing::debug!(%error, task = %id, "the letter still looks as if nothing did its work");
        }
        Ok(again)
    }
}

impl ManagerInner {
    /// Fails a task during whose executions too many worker processes ended.
    pub(super) async fn give_up(
        &self,
        node: &ClusterNode,
        version: Version,
        task: &Arc<Task>,
    ) -> Result<(), TaskStoreError> {
        let reason = format!(
            "its execution was taken over {} times, and no worker survived it",
            task.take_overs
        );
        let now = self.now();
        let letter = DeadLetter {
            task: task.id.clone(),
            owner: Some(Arc::clone(&task.owner)),
            reason: reason.as_str().into(),
            at: now,
            again_as: None,
        };
        // The letter is written before the end of the task: after the end, no worker would write the letter.
        node.set_aside(&letter).await?;
        let mut stream = TaskStream::after(Arc::clone(&self.log), version, task);
        let end = crashed(reason.into(), Some(task.epoch), now);
        stream.append(vec![end]).await
    }
}
