//! The only place that writes to standard output and standard error.
//!
//! Invariants:
//! 1. Nobody but a lane's own thread ever writes, so nobody else can be blocked by a reader that does not read.
//! 2. Memory is bounded: what has no room is refused, and the one who pushed it learns that.
//! 3. Standard output and standard error do not hold each other up, unless they are the same thing: then they share a
//!    lane, so that their order is kept.
//! 4. What others wrote never drives a terminal: a lane takes styled text, answers and JSON, and escapes them here.
//! 5. A stream that is closed or full swallows what comes later; it is never a panic.

mod entry;
mod lane;
mod lines;
mod open_line;
mod pump;
mod question;
mod region;
mod sink;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub(crate) use entry::Entry;
pub(crate) use lane::{Flush, Keep, Lane};
pub(super) use region::Running;

/// What stands for a limit that no clock can tell.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Standard output and standard error of the process.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    stdout: Lane,
    stderr: Lane,
    terminal: Option<Lane>,
}

/// What a flush of both streams came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// Standard output.
    pub(crate) stdout: Flush,
    /// Standard error.
    pub(crate) stderr: Flush,
}

impl Output {
    /// Those of this process. Call it once, before anything is written.
    ///
    /// # Errors
    /// If the descriptors cannot be duplicated, or the threads not be started.
    pub(crate) fn of_process() -> io::Result<Self> {
        let file = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(File::from);
        Self::new(file(&io::stdout())?, file(&io::stderr())?)
    }

    /// Over any two files.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub(crate) fn new(stdout: File, stderr: File) -> io::Result<Self> {
        let out_is_terminal = stdout.is_terminal();
        let err_is_terminal = stderr.is_terminal();
        let shared = same_file(&stdout, &stderr);
        let stdout = Lane::new(stdout, "stdout")?;
        let stderr = if shared {
            stdout.beside(stderr)
        } else {
            Lane::new(stderr, "stderr")?
        };
        let terminal = match (err_is_terminal, out_is_terminal) {
            (true, _) => Some(stderr.clone()),
            (false, true) => Some(stdout.clone()),
            (false, false) => None,
        };
        Ok(Self {
            stdout,
            stderr,
            terminal,
        })
    }

    /// Standard output.
    pub(crate) fn stdout(&self) -> &Lane {
        &self.stdout
    }

    /// Standard error.
    pub(crate) fn stderr(&self) -> &Lane {
        &self.stderr
    }

    /// The one that a person looks at, if it is a terminal: standard error, else standard output.
    pub(crate) fn terminal(&self) -> Option<&Lane> {
        self.terminal.as_ref()
    }

    /// Waits until everything that was pushed is written, but no longer than the limit for both together. It blocks
    /// the calling thread: it is the last thing before the exit.
    pub(crate) fn flush(&self, limit: Duration) -> Flushed {
        let deadline = deadline_of(limit);
        // Both first, so that the second has its time too while the first is waited for.
        self.stdout.begin_flush();
        self.stderr.begin_flush();
        Flushed {
            stdout: self.stdout.flush(deadline),
            stderr: self.stderr.flush(deadline),
        }
    }

    /// Waits until standard error has taken what was pushed, whatever standard output does.
    pub(crate) fn flush_stderr(&self, limit: Duration) -> Flush {
        self.stderr.begin_flush();
        self.stderr.flush(deadline_of(limit))
    }
}

fn deadline_of(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + FOREVER)
}

fn same_file(a: &File, b: &File) -> bool {
    match (rustix::fs::fstat(a), rustix::fs::fstat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
