//! Cleanup after sessions, on dedicated threads, because a disk may hang.

use allstop_core::receipt::ItemKind;
use allstop_scope::{RootOptions, Scope, WorkHandle, WorkSpec};
use futures::FutureExt as _;
use futures::future::join_all;
use parking_lot::Mutex;

/// Threads for cleanup. They run in a separate tree of scopes, so no stop ends them or waits for them.
/// [`System::close`](super::System::close) waits for these threads, and the caller of that function limits the wait.
#[derive(Debug)]
pub(super) struct CleanupThreads {
    scope: Scope,
    /// Threads that may still run. `begin` removes ended threads.
    running: Mutex<Vec<WorkHandle<()>>>,
}

impl CleanupThreads {
    pub(super) fn new(options: RootOptions) -> Self {
        Self {
            scope: Scope::root("clean-up", options),
            running: Mutex::default(),
        }
    }

    /// Runs `clean` on a new thread. Skips the cleanup if no thread can be started.
    pub(super) fn begin(&self, name: &'static str, clean: impl FnOnce() + Send + 'static) {
        let spec = WorkSpec::new(ItemKind::Thread, name);
        let Ok(thread) = self.scope.spawn_blocking(spec, move |_| clean()) else {
            return;
        };
        let mut running = self.running.lock();
        running.retain_mut(|thread| thread.now_or_never().is_none());
        running.push(thread);
    }

    /// Waits until all started cleanup has ended.
    pub(super) async fn wait(&self) {
        let running = std::mem::take(&mut *self.running.lock());
        drop(join_all(running).await);
    }
}
