//! Live text of a task that another process may run. A subscriber asks the owner of the task (the worker that runs it)
//! for the text after its position, and the owner answers as soon as there is more text. So a worker sends text only to
//! subscribers, keeps nothing for them, and never waits for them: a subscriber that is slow asks less often, and gets
//! longer pieces. The servers do not store the questions and the answers.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{TaskId, WorkerId};
use allstop_log::{LogError, Version};
use tokio::time::sleep;

use super::node::ClusterNode;
use super::owner_question::{LiveTextAnswer, OwnerQuestion};
use crate::live_text::{LiveCursor, LivePiece};
use crate::model::{Task, TaskRecord};

/// Pause of a subscriber after an answer without text. An owner answers immediately if too many subscribers wait.
const EMPTY_PAUSE: Duration = Duration::from_millis(200);

/// Pause of a subscriber whose owner does not answer.
const NO_ANSWER_PAUSE: Duration = Duration::from_secs(1);

/// Source of the live text for one subscriber.
#[derive(Debug)]
pub(crate) struct RemoteLiveText {
    node: Arc<ClusterNode>,
    task: TaskId,
    /// Worker of the running execution, as far as the subscriber has received the records.
    owner: Option<WorkerId>,
}

impl RemoteLiveText {
    /// Creates the source for a subscriber that has received the records until this state of the task.
    pub(crate) fn new(node: Arc<ClusterNode>, task: &Task) -> Self {
        let owner = task.worker.clone().filter(|_| task.is_executing);
        Self {
            node,
            task: task.id.clone(),
            owner,
        }
    }

    /// Updates the owner. Returns true if another execution has started: its text has new positions.
    pub(crate) fn note(&mut self, record: &TaskRecord) -> bool {
        if let TaskRecord::ExecutionStarted { worker, .. } = record {
            self.owner.clone_from(worker);
            return true;
        }
        if record.ends_execution() {
            self.owner = None;
        }
        false
    }

    /// The text after a position, for a subscriber that has received the records up to this version. Waits until there
    /// is text, perhaps forever.
    ///
    /// # Cancel safety
    /// Cancel safe: the subscriber asks again with the same position.
    pub(crate) async fn after(
        &self,
        records_until: Version,
        cursor: LiveCursor,
    ) -> (LivePiece, LiveCursor) {
        let Some(owner) = &self.owner else {
            return std::future::pending().await;
        };
        let question = OwnerQuestion::LiveText {
            task: self.task.clone(),
            records_until,
            cursor,
        };
        loop {
            let answer: Result<Option<LiveTextAnswer>, LogError> =
                self.node.ask(owner, &question).await;
            match answer {
                Ok(Some(Some(text))) => return text,
                Ok(Some(None)) => sleep(EMPTY_PAUSE).await,
                Ok(None) => sleep(NO_ANSWER_PAUSE).await,
                Err(error) => {
                    tracing::debug!(%error, task = %self.task, "live text is not read");
                    sleep(NO_ANSWER_PAUSE).await;
                }
            }
        }
    }
}
