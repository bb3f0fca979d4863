//! Looks into `/proc` on threads that no caller has to wait for.
//!
//! Most of `/proc` answers at once, but arguments and environment lie in the process's memory, and can be read only while
//! nobody else holds that memory's lock. A process in an uninterruptible wait may hold it for ever.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

/// Longest wait for an answer out of a process's memory. An answer takes microseconds; past this it hangs, and the thread
/// that asks is left to itself.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(100);

/// Looks on a thread of its own, for looks that end. `None`: the system gives no thread.
///
/// # Cancel safety
/// Cancel safe: the look ends by itself, and its answer is dropped.
pub(super) async fn look<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    begin(move || drop(answer.send(look())))?;
    answered.await.ok()
}

/// Begins a look without waiting for its end. `None`: the system gives no thread.
pub(super) fn begin(look: impl FnOnce() + Send + 'static) -> Option<()> {
    let thread = std::thread::Builder::new().name("allstop-look".to_owned());
    #[expect(clippy::disallowed_methods, reason = "a look into /proc may hang")]
    thread.spawn(look).ok().map(drop)
}

/// Asks a question that may never be answered. `None`: there was no answer in time.
pub(super) fn ask<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = mpsc::sync_channel(1);
    begin(move || drop(answer.send(ask())))?;
    answered.recv_timeout(ANSWER_MAX).ok()
}
