//! The two threads of an open store: one writes, one reads.
//!
//! SQLite blocks, and a blocked disk must delay neither a task nor the exit of the process. So what touches the disk
//! runs on threads of the store's own that nobody ever joins: they end by themselves when the store is closed or
//! dropped and what was asked is done, and the end of the process does not wait for them. Nothing that was
//! acknowledged depends on them any more, and what was not is written whole or not at all.

use std::io;

/// Starts a thread of the store.
pub(super) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    // Not joined: see above.
    thread.spawn(run).map(drop)
}
