//! Dead letters: tasks that ended too many workers, and wake-ups that nobody can read.

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
    /// The task; for a wake-up that cannot be read, its first characters.
    pub task: TaskId,
    /// Principal of the task, if it can be read.
    pub owner: Option<Arc<str>>,
    /// Reason why nobody works at it.
    pub reason: Arc<str>,
    /// Time at which it was set aside.
    pub at: Timestamp,
    /// The task that does its work anew ([`TaskManager::redrive`](crate::TaskManager::redrive)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_as: Option<TaskId>,
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
