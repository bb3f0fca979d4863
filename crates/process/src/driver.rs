//! The future that watches one tree. The caller of the launch must spawn this future.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Watches one process tree and publishes its status. Ends when the tree is empty, or when the tree was detached.
///
/// Spawn the driver. If the driver is dropped before it has ended, the tree is killed, so that no tree runs unwatched.
#[must_use = "a process is watched only while its driver is polled; dropping the driver kills the process"]
pub struct ProcessDriver(Pin<Box<dyn Future<Output = ()> + Send>>);

impl ProcessDriver {
    /// Creates a driver from a future that watches a tree of a [`TreeLauncher`](crate::TreeLauncher). If the future is
    /// dropped early, the drop must kill the tree. Before the future ends, it must publish that the tree is empty.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl Future for ProcessDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ProcessDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessDriver").finish_non_exhaustive()
    }
}
