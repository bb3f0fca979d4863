//! Work that continues after its client has left.

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkHandle, WorkSpec};

/// Begins work in the scope of a server, such as the opening of a session. The work runs to its end even if its client
/// leaves: the client drops only the handle, and dropping the handle ends nothing. `None` if the server is being
/// stopped.
pub fn finish_work<T: Send + 'static>(
    scope: &Scope,
    name: String,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<WorkHandle<T>> {
    let spec = WorkSpec::new(ItemKind::Future, name);
    scope.spawn_begun(spec, |_cx| work).ok()
}
