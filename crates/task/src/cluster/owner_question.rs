//! Questions to the worker that owns a task.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, Receipt, TaskId, WorkerId};
use allstop_log::{LogError, Version};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::node::ClusterNode;
use crate::live_text::{LiveCursor, LivePiece};

/// Longest wait for an answer. The wait includes the time in which the owner reads the log of the task.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A question to a worker, usually about a task that the worker owns.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub(super) enum OwnerQuestion {
    /// Attend to the task: the log has a new record that the owner of the task must read.
    Attend {
        task: TaskId,
        /// Cause of a stop. The owner stops the task even if the asking process cannot write the stop request to the
        /// log.
        stop: Option<Cause>,
    },
    /// Accept no more tasks, and end after the last running task.
    Drain,
    /// List the items that a stop would find.
    Preview { task: TaskId, cause: Cause },
    /// Stop the orphaned work: work that still runs after the end of the task.
    StopLeft { task: TaskId, cause: Cause },
    /// Send the live text of the task after a position, to a subscriber that has received the records until a version.
    LiveText {
        task: TaskId,
        records_until: Version,
        cursor: LiveCursor,
    },
}

/// Answer to [`OwnerQuestion::Attend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AttendReply {
    /// The task is being stopped, or has ended.
    Observed,
    /// The task runs, or will run.
    Runs,
    /// This worker runs nothing for the task.
    Nothing,
}

/// Answer to [`OwnerQuestion::Preview`]; `None` if this worker has no work of the task.
pub(super) type Previewed = Option<Receipt>;

/// Answer to [`OwnerQuestion::StopLeft`]; `None` if no work remains.
pub(super) type LeftStopped = Option<Arc<Receipt>>;

/// Answer to [`OwnerQuestion::LiveText`]; `None` if there is no more text now.
pub(super) type LiveTextAnswer = Option<(LivePiece, LiveCursor)>;

impl ClusterNode {
    /// Asks a worker. `None` if the worker does not answer.
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
