//! Late receipts. A worker that loses its lease must stop its executions, and other workers take the tasks over. Each
//! such stop has a receipt. The worker writes the receipt to the log of the task as soon as the log accepts it, perhaps
//! after the end of the task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::Log;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::error::TaskStoreError;
use crate::model::{IllegalTaskRecord, TaskRecord};
use crate::task_stream::{TaskStream, read_task};

/// Maximum number of kept receipts. With the default concurrency, a worker loses at most 16 executions when it loses a
/// lease. 1,024 receipts need a few megabytes.
const KEPT_MAX: usize = 1_024;

/// Pause after a failed write.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Late receipts that are not written yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct LateReceipts {
    kept: Mutex<VecDeque<(TaskId, TaskRecord)>>,
    has_grown: Notify,
}

impl LateReceipts {
    /// Keeps a late receipt of this task until the receipt is written. If there are too many receipts, the oldest one
    /// is dropped.
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

    /// Writes the kept receipts for as long as the future is polled. Calls `on_written` with the stream of a task after
    /// the receipt of this task is written.
    pub(super) async fn write(&self, log: &Arc<dyn Log>, on_written: impl Fn(&TaskStream)) -> ! {
        loop {
            self.has_grown.notified().await;
            while let Some((id, late)) = self.next() {
                match write(log, &id, &late).await {
                    Ok(stream) => stream.iter().for_each(&on_written),
                    // An earlier attempt with an unknown outcome has stored the receipt.
                    Err(TaskStoreError::Illegal {
                        source: IllegalTaskRecord::NoReceiptAwaited(_),
                        ..
                    }) => {}
                    Err(
                        error
                        @ (TaskStoreError::Unreadable { .. } | TaskStoreError::Illegal { .. }),
                    ) => {
                        tracing::warn!(%error, task = %id, "the receipt of a lost execution is given up");
                    }
                    Err(error) => {
                        tracing::debug!(%error, task = %id, "the receipt of a lost execution is written later");
                        self.keep(&id, late);
                        sleep(RETRY_EVERY).await;
                    }
                }
            }
        }
    }
}

/// Writes a late receipt. `None` if the task was deleted.
async fn write(
    log: &Arc<dyn Log>,
    id: &TaskId,
    late: &TaskRecord,
) -> Result<Option<TaskStream>, TaskStoreError> {
    let Some((version, task)) = read_task(&**log, id).await? else {
        return Ok(None);
    };
    let mut stream = TaskStream::after(Arc::clone(log), version, &task);
    stream.append(vec![late.clone()]).await?;
    Ok(Some(stream))
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
