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
