//! Work before the answer to `runtime.shutdown`.

use std::fmt;
use std::sync::Arc;

/// Work of the embedding program before the answer to `runtime.shutdown`, such as a write of its last data. Some SDKs kill the
/// process as soon as they have this answer.
///
/// The work runs on a separate thread, and the shutdown waits for it, so the work must end within seconds.
#[derive(Clone)]
pub struct ShutdownWork(Arc<dyn Fn() + Send + Sync>);

impl ShutdownWork {
    /// Creates the work from a function that may block.
    pub fn new(work: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(work))
    }

    pub(crate) fn run(&self) {
        (self.0)();
    }
}

impl fmt::Debug for ShutdownWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownWork").finish_non_exhaustive()
    }
}
