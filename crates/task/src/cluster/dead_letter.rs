//! Dead letters: tasks that no worker runs any more, because too many worker processes ended during their executions,
//! and wake-ups that cannot be read. A wake-up is a stored hint that a task needs a worker.

use std::sync::Arc;

use allstop_core::{TaskId, Timestamp};
use allstop_log::LogError;
use serde::{Deserialize, Serialize};

use super::link::PutError;
use super::node::{ClusterNode, ENDED_TTL};

const DEAD_PREFIX: &str = "dead/";

/// A task or wake-up that no worker handles any more, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Id of the task. If the wake-up is unreadable: the first characters of the wake-up.
    pub task: TaskId,
    /// Principal of the task, if it can be read.
    pub owner: Option<Arc<str>>,
    /// Reason why no worker runs the task.
    pub reason: Arc<str>,
    /// Time at which the dead letter was created.
    pub at: Timestamp,
    /// The new task that repeats the work ([`TaskManager::retry_dead_letter`](crate::TaskManager::retry_dead_letter)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_as: Option<TaskId>,
}

/// Key of the dead letter of a task.
pub(super) fn dead_letter_key(task: &TaskId) -> String {
    format!("{DEAD_PREFIX}{task}")
}

impl ClusterNode {
    /// Stores a dead letter for a task or a wake-up. The letter replaces an older letter for the task only in one case:
    /// the worker that wrote the older letter could not read the task, and this worker could.
    pub(super) async fn set_aside(&self, letter: &DeadLetter) -> Result<(), LogError> {
        let key = dead_letter_key(&letter.task);
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

    /// Returns all dead letters.
    pub(crate) async fn dead_letters(&self) -> Result<Vec<DeadLetter>, LogError> {
        let entries = self.link().entries(DEAD_PREFIX).await?;
        let letters = entries.iter();
        Ok(letters
            .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
            .collect())
    }

    /// Adds the id of the new task to the letter. The letter then expires after a day.
    pub(crate) async fn note_again(
        &self,
        letter: &DeadLetter,
        again: &TaskId,
    ) -> Result<(), LogError> {
        let letter = DeadLetter {
            again_as: Some(again.clone()),
            ..letter.clone()
        };
        let key = dead_letter_key(&letter.task);
        let value = serde_json::to_vec(&letter).unwrap_or_default();
        match self.link().put(&key, value, None, Some(ENDED_TTL)).await {
            Ok(_) | Err(PutError::Conflict) => Ok(()),
            Err(PutError::Unknown(error) | PutError::Failed(error)) => Err(error),
        }
    }
}
