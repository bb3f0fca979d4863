//! The two threads of an open store: a writer and a reader.
//!
//! SQLite blocks, and a blocked disk must delay neither a task nor the exit of the process. So all disk access runs on
//! the store's own threads, which are never joined: they end when the store is closed or dropped and their queue is
//! empty. A process may exit before that. Acknowledged appends are then durable, and other appends are written whole or
//! not at all.

use std::io;

/// Starts a thread of the store.
pub(super) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    // The thread is not joined; see the module documentation.
    #[expect(
        clippy::disallowed_methods,
        reason = "a blocked disk must not delay the exit"
    )]
    thread.spawn(run).map(drop)
}
