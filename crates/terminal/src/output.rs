//! Standard output and standard error. No other code in the process writes to them.
//!
//! Invariants:
//! 1. Only a queue's own thread writes, so a reader that does not read blocks no other thread.
//! 2. Memory is bounded: text without room is refused, and the caller is informed.
//! 3. Standard output and standard error do not delay each other, unless they are the same file. In that case, they
//!    share a queue, which keeps the order of the output.
//! 4. Text from outside never controls a terminal: a queue takes styled text, answers and JSON, and escapes them.
//! 5. After a stream is closed or its disk is full, later output is discarded; this is never a panic.

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
    /// The streams of this process. Call this once, before any output is written.
    ///
    /// # Errors
    /// If the descriptors cannot be duplicated, or the threads cannot be started.
    pub fn of_process() -> io::Result<Self> {
        let file = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(File::from);
        Self::new(file(&io::stdout())?, file(&io::stderr())?)
    }

    /// Creates streams that write to any two files.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(stdout: File, stderr: File) -> io::Result<Self> {
        let out_is_terminal = stdout.is_terminal();
        let err_is_terminal = stderr.is_terminal();
        let shared = same_file(&stdout, &stderr);
        let stdout = OutputQueue::new(stdout, "stdout")?;
        let stderr = if shared {
            stdout.with_file(stderr)
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

    /// The terminal that a person looks at: standard error, otherwise standard output. `None` if neither is a terminal.
    pub fn terminal(&self) -> Option<&OutputQueue> {
        self.terminal.as_ref()
    }

    /// Waits until all pushed output is written, but not longer than the limit for both streams together. Blocks the
    /// calling thread, so call it last before the exit.
    pub fn flush(&self, limit: Duration) -> OutputFlush {
        let deadline = deadline_of(limit);
        // Starts both flushes first, so the second stream also makes progress during the wait for the first stream.
        self.stdout.begin_flush();
        self.stderr.begin_flush();
        OutputFlush {
            stdout: self.stdout.flush(deadline),
            stderr: self.stderr.flush(deadline),
        }
    }

    /// Waits until all output pushed to standard error is written, independently of standard output.
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
