//! Standard output, which may be closed or full: a reader that has seen enough ends the exploration.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::Mutex;

/// Standard output.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Reason why nothing more can be said.
    lost: Mutex<Option<io::Error>>,
}

impl Said {
    /// Says it, unless something before could not be said.
    pub(crate) fn say(&self, what: impl Display) {
        let mut lost = self.lost.lock().expect("nothing panics in here");
        if lost.is_none() {
            let mut out = io::stdout().lock();
            *lost = write!(out, "{what}").and_then(|()| out.flush()).err();
        }
    }

    /// True if something could not be said.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.lock().expect("nothing panics in here").is_some()
    }

    /// Takes the reason, once.
    pub(crate) fn why_lost(&self) -> Option<io::Error> {
        self.lost.lock().expect("nothing panics in here").take()
    }
}

/// Says on standard error what is wrong. Nobody may be listening.
pub(crate) fn complain(what: impl Display) {
    let _said = writeln!(io::stderr().lock(), "error: {what}");
}
