//! Dead letters: tasks that ended too many workers, and wake-ups that nobody can read.

use std::sync::Arc;

use allstop_core::{Cause, CauseKind, TaskId, Timestamp};
use allstop_log::{LogError, Version};
use serde::{Deserialize, Serialize};

use super::link::PutError;
use super::node::ClusterNode;
use crate::error::TaskStoreError;
use crate::execution::failed;
use crate::feed::TaskFeed;
use crate::manager::ManagerInner;
use crate::model::Task;
use crate::task_stream::TaskStream;

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
}

impl ClusterNode {
    /// Sets something aside. A second time changes nothing.
    pub(super) async fn set_aside(&self, letter: &DeadLetter) -> Result<(), LogError> {
        let key = format!("{DEAD_PREFIX}{}", letter.task);
        let value = serde_json::to_vec(letter).unwrap_or_default();
        match self.link().put(&key, value, Some(0), None).await {
            Ok(_) | Err(PutError::Conflict) => Ok(()),
            Err(PutError::Unknown(error) | PutError::Failed(error)) => Err(error),
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
        };
        // First: a task that has ended is not looked at again.
        node.set_aside(&letter).await?;
        let feed = Arc::new(TaskFeed::default());
        feed.set_read(version, task);
        let mut stream = TaskStream::new(Arc::clone(&self.log), task.id.clone(), feed);
        stream.load().await?;
        let cause = Cause::new(CauseKind::Failure).detail("crash");
        stream.append(vec![failed(cause, reason.into(), now)]).await
    }
}
