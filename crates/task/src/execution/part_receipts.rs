//! Receipts of stops in other systems, where an execution has work outside its scope.

use std::sync::Arc;

use allstop_core::Receipt;
use parking_lot::Mutex;

/// Collects receipts of stops outside the scope of an execution, for example the receipt of a session. The receipt of
/// the task's stop then includes the items of the collected receipts. Clones share one collection.
///
/// Such work needs an item in the scope of the execution. Register the item before the work starts, and finish the item
/// after the call of [`PartReceipts::add`]. The receipt of the task waits for the items of the scope.
#[derive(Debug, Clone, Default)]
pub struct PartReceipts(Arc<Mutex<Vec<Arc<Receipt>>>>);

impl PartReceipts {
    /// Adds a receipt. After the end of the execution, the call has no effect.
    pub fn add(&self, receipt: Arc<Receipt>) {
        self.0.lock().push(receipt);
    }

    /// Adds the items of the collected receipts to the receipt of the execution.
    pub(crate) fn join(&self, own: Arc<Receipt>) -> Arc<Receipt> {
        let parts = self.0.lock().clone();
        if parts.is_empty() {
            return own;
        }
        let request = own.request().clone();
        let parts: Vec<_> = std::iter::once(own).chain(parts).collect();
        Arc::new(Receipt::merge_parts(request, &parts))
    }
}
