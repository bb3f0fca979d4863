//! An accepted stop, and its receipt.

use std::sync::Arc;
use std::time::Duration;

use allstop::Receipt;
use allstop::scope::Scope;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::json;
use crate::mailbox::{Callback, Mailbox, MessageBody};

/// Receipt of a stop as JSON; `None` until the receipt is complete.
#[derive(Debug, Default)]
struct ReceiptSlot {
    receipt: Mutex<Option<String>>,
    set: Condvar,
}

/// An accepted stop. Dropping this value changes nothing.
#[pyclass(frozen, name = "Stop")]
pub(crate) struct PythonStop {
    force: Box<dyn Fn() + Send + Sync>,
    slot: Arc<ReceiptSlot>,
}

impl PythonStop {
    /// Sends the receipt to `received` when it is complete.
    pub(crate) fn new(
        scope: &Scope,
        (mailbox, received): (Arc<Mailbox>, Callback),
        force: impl Fn() + Send + Sync + 'static,
        receipt: impl Future<Output = Arc<Receipt>> + Send + 'static,
    ) -> Self {
        let slot = Arc::new(ReceiptSlot::default());
        let filled = Arc::clone(&slot);
        let _the_control_thread_owns_it = scope.spawn_engine(async move {
            let receipt = json::text(&*receipt.await);
            *filled.receipt.lock() = Some(receipt.clone());
            filled.set.notify_all();
            mailbox.answer(&received, MessageBody::Text(receipt));
        });
        Self {
            force: Box::new(force),
            slot,
        }
    }
}

#[pymethods]
impl PythonStop {
    /// Ends the grace now.
    fn force(&self) {
        (self.force)();
    }

    /// Waits for the receipt without an event loop, for at most this many seconds.
    fn wait(&self, py: Python<'_>, seconds: f64) -> Option<String> {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| {
            let mut receipt = self.slot.receipt.lock();
            let is_empty = |receipt: &mut Option<String>| receipt.is_none();
            self.slot.set.wait_while_for(&mut receipt, is_empty, limit);
            receipt.clone()
        })
    }
}

/// The sentence of a receipt: the work that ended, and the work that did not.
#[pyfunction]
pub(crate) fn receipt_text(receipt: &str) -> PyResult<String> {
    json::value::<Receipt>(receipt).map(|receipt| receipt.to_string())
}
