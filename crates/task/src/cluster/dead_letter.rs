//! Dead letters: tasks whose executions ended too many worker processes, and unreadable wake-ups.

use std::sync::Arc;

use allstop_core::{TaskId, Timestamp};
use allstop_log::LogError;
use serde::{Deserialize, Serialize};

use super::link::PutError;
use super::node::{ClusterNode, ENDED_TTL};

const DEAD_PREFIX: &str = "dead/";

/// A task or wake-up that was set aside, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Id of the task. If the wake-up is unreadable: the first characters of the wake-up.
    pub task: TaskId,
    /// Principal of the task, if it can be read.
    pub owner: Option<Arc<str>>,
    /// Reason why no worker runs the task.
    pub reason: Arc<str>,
    /// Time at which the task or wake-up was set aside.
    pub at: Timestamp,
    /// The new task that repeats the work ([`TaskManager::retry_dead_letter`](crate::TaskManager::retry_dead_letter)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_as: Option<TaskId>,
}

impl ClusterNode {
    /// Stores a dead letter for a task or a wake-up. A second letter for the same task replaces the first only in one
    /// case: the worker of the first could not read the task, and the worker of the second could.
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
        let key = format!("{DEAD_PREFIX}{}", letter.task);
        let value = serde_json::to_vec(&letter).unwrap_or_default();
        match self.link().put(&key, value, None, Some(ENDED_TTL)).await {
            Ok(_) | Err(PutError::Conflict) => Ok(()),
            Err(PutError::Unknown(error) | PutError::Failed(error)) => Err(error),
        }
    }
}
