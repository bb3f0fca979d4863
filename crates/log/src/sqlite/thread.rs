//! The two threads of an open store: a writer and a reader.
//!
//! SQLite blocks. A blocked disk must neither delay a task nor delay the exit of the process. So all disk access runs
//! on the threads of the store. These threads are never joined. The threads end after the store was closed or dropped,
//! as soon as their queue is empty. If the process exits before that, acknowledged appends are durable, and other
//! appends are written completely or not at all.

use std::io;

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
