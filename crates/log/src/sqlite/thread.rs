//! The two threads of an open store: a writer and a reader.
//!
//! SQLite blocks. A blocked disk must neither delay a task nor delay the exit of the process. So all disk access runs
//! on the threads of the store. These threads are never joined. The threads end after the store was closed or dropped,
//! as soon as their queue is empty. If the process exits before that, acknowledged appends are durable, and other
//! appends are written completely or not at all.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park, park_timeout};
use std::time::Instant;

use tokio::sync::mpsc;

/// Starts a thread of the store.
pub(super) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    // No code joins the thread; see the module documentation.
    #[expect(
        clippy::disallowed_methods,
        reason = "a blocked disk must not delay the exit"
    )]
    thread.spawn(run).map(drop)
}

/// Result of [`receive_until`].
pub(super) enum ReceivedCommand<T> {
    Command(T),
    /// The time has come, and no command waits.
    TimedOut,
    /// The channel is closed and empty.
    Closed,
}

/// Waits for the next command of a thread, at most until `end`.
pub(super) fn receive_until<T>(
    commands: &mut mpsc::Receiver<T>,
    end: Option<Instant>,
) -> ReceivedCommand<T> {
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match commands.poll_recv(&mut cx) {
            Poll::Ready(Some(command)) => return ReceivedCommand::Command(command),
            Poll::Ready(None) => return ReceivedCommand::Closed,
            Poll::Pending => {}
        }
        match end.map(|end| end.saturating_duration_since(Instant::now())) {
            Some(left) if left.is_zero() => return ReceivedCommand::TimedOut,
            Some(left) => park_timeout(left),
            None => park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
