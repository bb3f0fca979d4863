//! Stops and previews of orphaned work: work that still runs after its task has ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, ReceiptItem, StopInfo};
use allstop_core::{Cause, Receipt};
use allstop_scope::FORCE_MAX;
use futures::FutureExt as _;

use super::ManagerInner;
use crate::execution::{lost_worker, user_code};
use crate::model::Task;

impl ManagerInner {
    /// Asks the canceler in this process (a part of the embedding program) to stop orphaned work of an ended task.
    /// `None` if this process has no such work. If the canceler fails, one item of the receipt stands for possible work.
    pub(crate) async fn stop_orphans_here(
        &self,
        task: &Arc<Task>,
        cause: Cause,
    ) -> Option<Arc<Receipt>> {
        let canceler = self.shared_parts.as_ref()?.canceler.clone()?;
        let (of_task, by) = (Arc::clone(task), cause.clone());
        let stopped = AssertUnwindSafe(async move { canceler.stop_orphans(of_task, by).await });
        let max = self.root.grace() + FORCE_MAX + self.options.ending_write_max;
        match self.root.timeout(max, stopped.catch_unwind()).await {
            Some(Ok(receipt)) => {
                if let (Some(observer), Some(receipt)) = (&self.options.observer, &receipt) {
                    observer.left_work_stopped(receipt);
                }
                return receipt;
            }
            Some(Err(panic)) => {
                user_code::report("canceler", self.options.on_panic.as_ref(), &*panic);
            }
            None => tracing::warn!("a canceler does not stop the left work of a task in time"),
        }
        let info = self.stop_info(&task.id, cause);
        Some(Arc::new(Receipt::already_ended(
            info,
            vec![possible_work(task)],
        )))
    }

    /// Preview of a stop of an ended task without work in this manager: asks the canceler in this process for orphaned
    /// work. If the canceler finds none, the preview lists the work whose end is not confirmed, like a stop does.
    pub(crate) async fn preview_ended(&self, task: &Arc<Task>, info: StopInfo) -> Receipt {
        let left = self.orphans_here(task).await;
        if left.is_empty() {
            return Receipt::already_ended(info, unconfirmed_work(task)).as_preview();
        }
        Receipt::of_preview(info, left)
    }

    /// Orphaned work that the canceler in this process lists. If the canceler fails, one item stands for possible work.
    async fn orphans_here(&self, task: &Arc<Task>) -> Vec<ReceiptItem> {
        let parts = self.shared_parts.as_ref();
        let Some(canceler) = parts.and_then(|parts| parts.canceler.clone()) else {
            return Vec::new();
        };
        let of_task = Arc::clone(task);
        let listed = AssertUnwindSafe(async move { canceler.preview_orphans(of_task).await });
        let max = self.root.grace() + FORCE_MAX;
        match self.root.timeout(max, listed.catch_unwind()).await {
            Some(Ok(items)) => return items,
            Some(Err(panic)) => {
                user_code::report("canceler", self.options.on_panic.as_ref(), &*panic);
            }
            None => tracing::warn!("a canceler does not list the left work of a task in time"),
        }
        vec![possible_work(task)]
    }
}

/// Work of an ended task without a confirmed end: items of its last receipt, and lost workers without a receipt. No
/// process has checked this work since.
pub(super) fn unconfirmed_work(task: &Task) -> Vec<ReceiptItem> {
    let receipts = task.ending.receipt.iter();
    let items = receipts.flat_map(|receipt| receipt.items());
    let mut unconfirmed: Vec<_> = items
        .filter(|it| it.state.breaks_quiet())
        .cloned()
        .collect();
    for lost in task.lost.iter().filter(|lost| lost.receipt.is_none()) {
        let item = lost_worker(lost.worker.as_str());
        let is_known = |known: &ReceiptItem| known.kind == item.kind && known.id == item.id;
        if !unconfirmed.iter().any(is_known) {
            unconfirmed.push(item);
        }
    }
    unconfirmed
}

/// Item for orphaned work that may run, because the canceler did not report it.
fn possible_work(task: &Task) -> ReceiptItem {
    let state = ItemState::Unreachable {
        why: NotStoppedReason::WatcherGone,
    };
    let name = "left work of the task";
    ReceiptItem::new(ItemKind::Background, task.id.as_str(), name, state)
}
