//! Standard output and standard error: nothing else in the process writes to them.
//!
//! Invariants:
//! 1. Only a queue's own thread writes, so a reader that does not read blocks nobody else.
//! 2. Memory is bounded: text without room is refused, and the caller learns that.
//! 3. Standard output and standard error do not hold each other up, unless they are the same file: then they share a
//!    queue, so that their order is kept.
//! 4. Text from outside never drives a terminal: a queue takes styled text, answers and JSON, and escapes them.
//! 5. A stream that is closed or full swallows later output; it is never a panic.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::Duration;

use super::queue::{OutputQueue, deadline_of};
use super::queue_state::FlushResult;

/// Standard output and standard error of the process.
#[derive(Debug, Clone)]
pub struct OutputStreams {
    stdout: OutputQueue,
    stderr: OutputQueue,
    terminal: Option<OutputQueue>,
}

/// Result of a flush of both streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFlush {
    /// Standard output.
    pub stdout: FlushResult,
    /// Standard error.
    pub stderr: FlushResult,
}

impl OutputStreams {
    /// Those of this process. Call it once, before anything is written.
    ///
    /// # Errors
    /// If the descriptors cannot be duplicated, or the threads not be started.
    pub fn of_process() -> io::Result<Self> {
        let file = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(File::from);
        Self::new(file(&io::stdout())?, file(&io::stderr())?)
    }

    /// Over any two files.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(stdout: File, stderr: File) -> io::Result<Self> {
        let out_is_terminal = stdout.is_terminal();
        let err_is_terminal = stderr.is_terminal();
        let shared = same_file(&stdout, &stderr);
        let stdout = OutputQueue::new(stdout, "stdout")?;
        let stderr = if shared {
            stdout.beside(stderr)
        } else {
            OutputQueue::new(stderr, "stderr")?
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
    pub fn stdout(&self) -> &OutputQueue {
        &self.stdout
    }

    /// Standard error.
    pub fn stderr(&self) -> &OutputQueue {
        &self.stderr
    }

    /// The one that a person looks at, if it is a terminal: standard error, else standard output.
    pub fn terminal(&self) -> Option<&OutputQueue> {
        self.terminal.as_ref()
    }

    /// Waits until everything that was pushed is written, but no longer than the limit for both together. It blocks
    /// the calling thread: it is the last thing before the exit.
    pub fn flush(&self, limit: Duration) -> OutputFlush {
        let deadline = deadline_of(limit);
        // Both first, so that the second has its time too while the first is waited for.
        self.stdout.begin_flush();
        self.stderr.begin_flush();
        OutputFlush {
            stdout: self.stdout.flush(deadline),
            stderr: self.stderr.flush(deadline),
        }
    }

    /// Waits until standard error has taken what was pushed, whatever standard output does.
    pub fn flush_stderr(&self, limit: Duration) -> FlushResult {
        self.stderr.begin_flush();
        self.stderr.flush(deadline_of(limit))
    }
}

fn same_file(a: &File, b: &File) -> bool {
    match (rustix::fs::fstat(a), rustix::fs::fstat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
