//! Reads of `/proc` on threads, so that no caller has to wait for them.
//!
//! Most of `/proc` answers at once. But arguments and environment are in the process's memory, and can be read only
//! while no other task holds that memory's lock. A process in an uninterruptible wait may hold it for ever.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

/// Longest wait for data from a process's memory. An answer takes microseconds. After this time, the read hangs, and
/// its thread is abandoned.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(100);

/// Runs a read that will end on a separate thread. `None` if the system provides no thread.
///
/// # Cancel safety
/// Cancel safe: the read ends by itself, and its result is dropped.
pub(super) async fn look<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    begin(move || drop(answer.send(look())))?;
    answered.await.ok()
}

/// Begins a read without waiting for its end. `None` if the system provides no thread.
pub(super) fn begin(look: impl FnOnce() + Send + 'static) -> Option<()> {
    let thread = std::thread::Builder::new().name("allstop-look".to_owned());
    #[expect(clippy::disallowed_methods, reason = "a look into /proc may hang")]
    thread.spawn(look).ok().map(drop)
}

/// Runs a read that may never end. `None` if no result arrived in time.
pub(super) fn ask<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = mpsc::sync_channel(1);
    begin(move || drop(answer.send(ask())))?;
    answered.recv_timeout(ANSWER_MAX).ok()
}
