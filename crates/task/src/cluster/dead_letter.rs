//! Dead letters: tasks that ended too many workers, and wake-ups that nobody can read.

use std::sync::Arc;

use allstop_core::{MessageId, TaskId, Timestamp};
use allstop_log::{LogError, Version};
use serde::{Deserialize, Serialize};

use super::link::PutError;
use super::node::{ClusterNode, ENDED_TTL};
use crate::error::{ExecuteError, TaskStoreError};
use crate::execution::{crashed, last_message};
use crate::manager::{ManagerInner, TaskManager, TaskRequest};
use crate::model::{Task, TaskMessage};
use crate::task_stream::{TaskStream, read_task};

const DEAD_PREFIX: &str = "dead/";

/// A task or wake-up that was set aside, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The task; for a wake-up that cannot be read, its first characters.
    pub task: TaskId,
    /// Principal of the task, if it can be read.
    pub owner: Option<Arc<str>>,
    /// Reason why nobody works at it.
    pub reason: Arc<str>,
    /// Time at which it was set aside.
    pub at: Timestamp,
    /// The task that does its work anew ([`TaskManager::redrive`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_as: Option<TaskId>,
}

/// Reason why nothing does the work of a dead letter anew.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RedriveError {
    /// Nothing of this id was set aside.
    #[error("there is no dead letter `{0}`")]
    NotSetAside(TaskId),
    /// It was set aside because it cannot be read; a worker that can read it takes it by itself.
    #[error("the task `{0}` cannot be read; a worker of a newer version may take it by itself")]
    Unreadable(TaskId),
    /// A worker still has it.
    #[error("the task `{0}` has not ended: a worker has it")]
    NotEnded(TaskId),
    /// The new task was not accepted.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}

impl ClusterNode {
    /// Sets something aside. A second time changes nothing, unless the letter before is of a worker that could not read
    /// the task, and this one could.
    pub(super) async fn set_aside(&self, letter: &DeadLetter) -> Result<(), LogError> {
        let key = format!("{DEAD_PREFIX}{}", letter.task);
        let value = serde_json::to_vec(letter).unwrap_or_default();
        let mut revision = 0;
        loop {
            match self
                .link()
                .put(&key, value.clone(), Some(revision), None)
                .await
            {
                Ok(_) => return Ok(()),
                Err(PutError::Conflict) => {}
                Err(PutError::Unknown(error) | PutError::Failed(error)) => return Err(error),
            }
            let Some(known) = self.link().entry(&key).await? else {
                revision = 0;
                continue;
            };
            let is_unreadable = serde_json::from_slice::<DeadLetter>(&known.value)
                .is_ok_and(|known| known.owner.is_none());
            if letter.owner.is_none() || !is_unreadable {
                return Ok(());
            }
            revision = known.revision;
        }
    }

    /// Everything that was set aside.
    pub(crate) async fn dead_letters(&self) -> Result<Vec<DeadLetter>, LogError> {
        let entries = self.link().entries(DEAD_PREFIX).await?;
        let letters = entries.iter();
        Ok(letters
            .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
            .collect())
    }

    /// Notes the task that does its work anew. The letter goes after a day.
    async fn note_again(&self, letter: &DeadLetter, again: &TaskId) -> Result<(), LogError> {
        let letter = DeadLetter {
            again_as: Some(again.clone()),
            ..letter.clone()
        };
        let key = format!("{DEAD_PREFIX}{}", letter.task);
        let value = serde_json::to_vec(&letter).unwrap_or_default();
        match self.link().put(&key, value, None, Some(ENDED_TTL)).await {
            Ok(_) | Err(PutError::Conflict) => Ok(()),
            Err(PutError::Unknown(error) | PutError::Failed(error)) => Err(error),
        }
    }
}

impl TaskManager {
    /// Starts a new task with the last message of a task that was given up, in its context and for its owner. A second
    /// time it answers with the same task: the new message's id is made from the old task's.
    ///
    /// # Cancel safety
    /// A dropped call may have started it.
    pub async fn redrive(&self, id: &TaskId) -> Result<TaskId, RedriveError> {
        let letters = self.dead_letters().await.map_err(ExecuteError::from)?;
        let letter = letters.into_iter().find(|letter| letter.task == *id);
        let letter = letter.ok_or_else(|| RedriveError::NotSetAside(id.clone()))?;
        let read = read_task(&*self.inner.log, id).await;
        let message = match (&letter.owner, read) {
            (None, _) | (_, Err(TaskStoreError::Unreadable { .. })) => None,
            (_, Err(error)) => return Err(ExecuteError::from(error).into()),
            (_, Ok(read)) => read.and_then(|(_, task)| Some((last_message(&task)?, task))),
        };
        let Some((message, task)) = message else {
            return Err(RedriveError::Unreadable(id.clone()));
        };
        if !task.has_ended() {
            return Err(RedriveError::NotEnded(id.clone()));
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
        if let Some(node) = &self.inner.cluster
            && let Err(error) = node.note_again(&letter, &again).await
        {
            tracing::debug!(%error, task = %id, "the letter still looks as if nothing did its work");
        }
        Ok(again)
    }
}

impl ManagerInner {
    /// Fails a task whose executions have ended too many workers.
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
        let now = (self.options.now)();
        let letter = DeadLetter {
            task: task.id.clone(),
            owner: Some(Arc::clone(&task.owner)),
            reason: reason.as_str().into(),
            at: now,
            again_as: None,
        };
        // First: a task that has ended is not looked at again.
        node.set_aside(&letter).await?;
        let mut stream = TaskStream::behind(Arc::clone(&self.log), version, task);
        let end = crashed(reason.into(), Some(task.epoch), now);
        stream.append(vec![end]).await
    }
}
