//! Receipts of other stops that the receipt of a task's stop includes.

use std::sync::Arc;

use allstop_core::Receipt;
use allstop_scope::Stop;
use parking_lot::Mutex;

/// Collects receipts of other stops: stops outside the scope of an execution, for example the receipt of a session, and
/// stops of a part of the execution. The receipt of the task's stop then includes the items of the collected receipts.
/// Clones share one collection.
///
/// Work outside the scope needs an item in the scope of the execution. Register the item before the work starts, and
/// finish the item after the call of [`PartReceipts::add`]. The receipt of the task waits for the items of the scope.
#[derive(Debug, Clone, Default)]
pub struct PartReceipts(Arc<Mutex<Vec<StoppedPart>>>);

#[derive(Debug, Clone)]
enum StoppedPart {
    Answered(Arc<Receipt>),
    /// A stop of a scope of the execution.
    Stop(Stop),
}

impl PartReceipts {
    /// Adds a receipt. After the end of the execution, the call has no effect.
    pub fn add(&self, receipt: Arc<Receipt>) {
        self.0.lock().push(StoppedPart::Answered(receipt));
    }

    /// Adds a stop of a scope of the execution. A stop of the task does not find the work that ended before it, so the
    /// receipt of the first stop is the only one with this work. After the end of the execution, the call has no effect.
    pub fn add_stop(&self, stop: Stop) {
        self.0.lock().push(StoppedPart::Stop(stop));
    }

    /// Adds the items of the collected receipts to the receipt of the execution.
    pub(crate) fn join(&self, own: Arc<Receipt>) -> Arc<Receipt> {
        let request = own.request().clone();
        let (mut parts, mut after) = (Vec::new(), vec![own]);
        for part in self.0.lock().iter() {
            match part {
                StoppedPart::Answered(receipt) => after.push(Arc::clone(receipt)),
                // The stop of the task came later, so its items have the newer state. A stop without a receipt still
                // runs, and the stop of the task finds its work too.
                StoppedPart::Stop(stop) => parts.extend(stop.try_receipt()),
            }
        }
        parts.append(&mut after);
        match parts.as_slice() {
            [own] => Arc::clone(own),
            parts => Arc::new(Receipt::merge_parts(request, parts)),
        }
    }
}
