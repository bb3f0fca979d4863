//! Receipts of executions that this worker has lost: each is written beside the end of its task as soon as the log takes
//! it, and until the manager shuts down.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::node::ClusterNode;
use crate::error::TaskStoreError;
use crate::manager::ManagerInner;
use crate::model::TaskRecord;
use crate::task_stream::{TaskStream, read_task};

/// Receipts that are kept. A worker with its default places loses 16 with a lease; this is a few megabytes.
const KEPT_MAX: usize = 1_024;

/// Pause after a failed write.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Late receipts that are not written yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct LateReceipts {
    kept: Mutex<VecDeque<(TaskId, TaskRecord)>>,
    has_grown: Notify,
}

impl LateReceipts {
    /// Keeps a late receipt of this task until it is written. Beyond the limit the oldest one is lost.
    pub(crate) fn keep(&self, task: &TaskId, late: TaskRecord) {
        let mut kept = self.kept.lock();
        kept.push_back((task.clone(), late));
        let lost = if kept.len() > KEPT_MAX {
            kept.pop_front()
        } else {
            None
        };
        drop(kept);
        if let Some((task, _)) = lost {
            tracing::warn!(%task, "the receipt of a lost execution is given up: too many wait for the store");
        }
        self.has_grown.notify_one();
    }

    fn next(&self) -> Option<(TaskId, TaskRecord)> {
        self.kept.lock().pop_front()
    }
}

impl ManagerInner {
    /// Writes late receipts for as long as the manager works.
    pub(super) async fn write_late_receipts(&self, node: &ClusterNode) {
        let writing = async {
            loop {
                node.late_receipts.has_grown.notified().await;
                while let Some((task, late)) = node.late_receipts.next() {
                    self.write_or_keep(node, task, late).await;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = self.shut_down() => {}
        }
    }

    async fn write_or_keep(&self, node: &ClusterNode, task: TaskId, late: TaskRecord) {
        match self.write_late_receipt(node, &task, &late).await {
            Ok(()) => {}
            // A write before was in doubt, and the receipt is there.
            Err(TaskStoreError::Illegal { .. }) => {}
            Err(error @ TaskStoreError::Unreadable { .. }) => {
                tracing::warn!(%error, %task, "the receipt of a lost execution is given up");
            }
            Err(error) => {
                tracing::debug!(%error, %task, "the receipt of a lost execution is written later");
                node.late_receipts.keep(&task, late);
                sleep(RETRY_EVERY).await;
            }
        }
    }

    async fn write_late_receipt(
        &self,
        node: &ClusterNode,
        id: &TaskId,
        late: &TaskRecord,
    ) -> Result<(), TaskStoreError> {
        let Some((version, task)) = read_task(&*self.log, id).await? else {
            return Ok(()); // The task was deleted.
        };
        let mut stream = TaskStream::behind(Arc::clone(&self.log), version, &task);
        stream.append(vec![late.clone()]).await?;
        if let Some(task) = stream.task() {
            node.note(stream.version(), task);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_receipt_is_given_up_beyond_the_limit() {
        let receipts = LateReceipts::default();
        let late = || TaskRecord::StopRefused {
            reason: "any record".into(),
            at: allstop_core::Timestamp::from_unix_ms(0),
        };
        for number in 0..=KEPT_MAX {
            receipts.keep(&TaskId::new(number.to_string()), late());
        }
        let (first, _) = receipts.next().unwrap();
        assert_eq!(first.as_str(), "1");
        assert_eq!(receipts.kept.lock().len(), KEPT_MAX - 1);
    }
}
