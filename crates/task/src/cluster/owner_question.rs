//! Questions to the worker that owns a task.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, Receipt, TaskId, WorkerId};
use allstop_log::LogError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::node::ClusterNode;

/// Longest wait for an answer: the owner reads its log for it.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A question to a worker, mostly about a task that it owns.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub(super) enum OwnerQuestion {
    /// Look at the task: its log has something for you.
    Attend {
        task: TaskId,
        /// A stop whose request could not be written between the records of the owner.
        stop: Option<Cause>,
    },
    /// Take no more tasks, and end when none is left.
    Drain,
    /// Name the items that a stop would find.
    Preview { task: TaskId, cause: Cause },
    /// Stop the work that the ended task has left running.
    StopLeft { task: TaskId, cause: Cause },
}

/// Answer to [`OwnerQuestion::Attend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Attended {
    /// It is being stopped, or has ended.
    Observed,
    /// It runs, or will.
    Runs,
    /// This worker does nothing for it.
    Nothing,
}

/// Answer to [`OwnerQuestion::Preview`]; `None`: this worker has no work of the task.
pub(super) type Previewed = Option<Receipt>;

/// Answer to [`OwnerQuestion::StopLeft`]; `None`: no work is left.
pub(super) type LeftStopped = Option<Arc<Receipt>>;

impl ClusterNode {
    /// Asks the owner of a task. `None`: it does not answer.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        worker: &WorkerId,
        question: &OwnerQuestion,
    ) -> Result<Option<A>, LogError> {
        let question = serde_json::to_vec(question).unwrap_or_default();
        let answer = self.link().ask(worker, question, ANSWER_MAX).await?;
        Ok(answer.and_then(|answer| serde_json::from_slice(&answer).ok()))
    }
}
