//! Receipts of systems that the work of an execution uses outside its scope.

use std::sync::Arc;

use allstop_core::Receipt;
use parking_lot::Mutex;

/// Collects receipts of stops outside the scope of an execution, such as the receipt of a session. The receipt of the
/// task's stop then includes their items. Clones share one collection.
///
/// Register an item in the scope for such work, and finish the item after [`PartReceipts::add`]. The receipt of the
/// task waits for the items of the scope.
#[derive(Debug, Clone, Default)]
pub struct PartReceipts(Arc<Mutex<Vec<Arc<Receipt>>>>);

impl PartReceipts {
    /// Adds a receipt. A receipt after the end of the execution has no effect.
    pub fn add(&self, receipt: Arc<Receipt>) {
        self.0.lock().push(receipt);
    }

    /// Joins the execution's own receipt with the items of the parts.
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
