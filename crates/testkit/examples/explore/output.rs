//! Standard output, which may be closed or full. If the reader closes standard output, the exploration ends.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::Mutex;

/// Standard output, and the first error of a write.
#[derive(Debug, Default)]
pub(crate) struct StandardOutput {
    /// Reason why no more output can be written.
    lost: Mutex<Option<io::Error>>,
}

impl StandardOutput {
    /// Writes a text, unless an earlier write has failed.
    pub(crate) fn print(&self, what: impl Display) {
        let mut lost = self.lost.lock().expect("nothing panics in here");
        if lost.is_none() {
            let mut out = io::stdout().lock();
            *lost = write!(out, "{what}").and_then(|()| out.flush()).err();
        }
    }

    /// True if a write has failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.lock().expect("nothing panics in here").is_some()
    }

    /// Takes the error of the failed write. Later calls return `None`.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.lost.lock().expect("nothing panics in here").take()
    }
}

/// Prints an error on standard error. Ignores a failed write.
pub(crate) fn print_error(what: impl Display) {
    let _said = writeln!(io::stderr().lock(), "error: {what}");
}
