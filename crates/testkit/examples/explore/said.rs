//! What is said on standard output, which may be closed or full: whoever has seen enough of it ends the exploration.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::Mutex;

/// What is said on standard output.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Why nothing more can be said.
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

    /// Whether something could not be said.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.lock().expect("nothing panics in here").is_some()
    }

    /// Why, once.
    pub(crate) fn why_lost(&self) -> Option<io::Error> {
        self.lost.lock().expect("nothing panics in here").take()
    }
}

/// Says on standard error what is wrong. Nobody may be listening.
pub(crate) fn complain(what: impl Display) {
    let _said = writeln!(io::stderr().lock(), "error: {what}");
}
