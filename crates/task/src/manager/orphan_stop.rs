//! Stops and previews of orphaned work: work that still runs after its task has ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_core::receipt::{
    ItemKind, ItemState, NotStoppedReason, NothingToStop, ReceiptItem, StopInfo,
};
use allstop_core::{Cause, Receipt};
use allstop_scope::FORCE_MAX;
use futures::FutureExt as _;

use super::ManagerInner;
use crate::execution::user_code;
use crate::model::Task;

impl ManagerInner {
    /// Asks the canceler in this process (a part of the embedding program) to stop orphaned work of an ended task.
    /// `None` if this process has no such work.
    pub(crate) async fn stop_orphans_here(
        &self,
        task: &Arc<Task>,
        cause: Cause,
    ) -> Option<Arc<Receipt>> {
        let canceler = self.shared_parts.as_ref()?.canceler.clone()?;
        let task = Arc::clone(task);
        let stopped = AssertUnwindSafe(async move { canceler.stop_orphans(task, cause).await });
        let max = self.root.grace() + FORCE_MAX + self.options.ending_write_max;
        match self.root.timeout(max, stopped.catch_unwind()).await {
            Some(Ok(receipt)) => {
                if let (Some(observer), Some(receipt)) = (&self.options.observer, &receipt) {
                    observer.left_work_stopped(receipt);
                }
                receipt
            }
            Some(Err(panic)) => {
                user_code::report("canceler", self.options.on_panic.as_ref(), &*panic);
                None
            }
            None => {
                tracing::warn!("a canceler does not stop the left work of a task in time");
                None
            }
        }
    }

    /// Preview of a stop of an ended task without work in this manager: asks the canceler in this process for orphaned
    /// work.
    pub(crate) async fn preview_ended(&self, task: &Arc<Task>, info: StopInfo) -> Receipt {
        let left = self.orphans_here(task).await;
        if left.is_empty() {
            return Receipt::empty(info, NothingToStop::AlreadyEnded);
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
        let state = ItemState::Unreachable {
            why: NotStoppedReason::WatcherGone,
        };
        let name = "left work of the task";
        let unknown = ReceiptItem::new(ItemKind::Background, task.id.as_str(), name, state);
        vec![unknown]
    }
}
