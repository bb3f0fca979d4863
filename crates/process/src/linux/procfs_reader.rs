//! Reads `/proc` on threads, so that no caller is blocked.
//!
//! Most files in `/proc` can be read at once. But the arguments and the environment are in the process's memory, which
//! can be read only while no other task holds the lock of that memory. A process in an uninterruptible wait may hold
//! this lock for ever.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

/// Maximum wait for data from a process's memory. A read normally takes microseconds. A longer read is considered to
/// hang, and its thread is abandoned.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(100);

/// Runs a read on a separate thread. The read must end after a limited time. `None` if the system provides no thread.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, the read continues to its end, and its result is dropped.
pub(super) async fn read_on_thread<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    start_on_thread(move || drop(answer.send(read())))?;
    answered.await.ok()
}

/// Begins a read without waiting for its end. `None` if the system provides no thread.
pub(super) fn start_on_thread(read: impl FnOnce() + Send + 'static) -> Option<()> {
    let thread = std::thread::Builder::new().name("allstop-look".to_owned());
    #[expect(clippy::disallowed_methods, reason = "a look into /proc may hang")]
    thread.spawn(read).ok().map(drop)
}

/// Runs a read that may never end. `None` if no result arrived in time.
pub(super) fn read_in_time<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = mpsc::sync_channel(1);
    start_on_thread(move || drop(answer.send(read())))?;
    answered.recv_timeout(ANSWER_MAX).ok()
}
