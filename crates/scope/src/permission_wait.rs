//! Mark of a unit (a scope that is one item of a receipt) whose start waits for a permission. The mark is the only
//! source of this state: previews and lists of running work read it from here.

use std::fmt;
use std::sync::Arc;

use crate::group::ReceiptScope;
use crate::scope::Scope;

/// While this guard exists, the unit of the scope waits for the answer to a permission question.
#[must_use = "dropping it ends the wait"]
pub struct PermissionWait {
    unit: Option<Arc<ReceiptScope>>,
}

impl Scope {
    /// Marks the unit of this scope as waiting for a permission, until the guard is dropped. Does nothing if the scope
    /// is in no unit.
    pub fn wait_for_permission(&self) -> PermissionWait {
        let unit = self.node().unit();
        if let Some(unit) = &unit {
            unit.begin_question();
        }
        PermissionWait { unit }
    }
}

impl Drop for PermissionWait {
    fn drop(&mut self) {
        if let Some(unit) = &self.unit {
            unit.end_question();
        }
    }
}

impl fmt::Debug for PermissionWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.unit.as_ref().map(|unit| &unit.path);
        f.debug_tuple("PermissionWait").field(&path).finish()
    }
}
