//! The combined output of a command. Standard output and standard error share one pipe, so their order is kept.
//!
//! A pipe ends only when its last writer closes it, and any descendant may keep it open for hours. Therefore the end of
//! the *output* is not the end of the *pipe*. When the main process has exited, all of its output has been read or is
//! in the pipe. The reader then reads the bytes that are in the pipe at this time, without waiting for more.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, PipeWriter};
use std::task::{Context, Poll};

use tokio::net::unix::pipe;

use crate::launch_error::LaunchError;
use crate::status::ProcessStatus;
use crate::status_channel::{StatusClosed, StatusReceiver};

/// Reads the output of a command and its descendants.
#[derive(Debug)]
#[must_use = "a pipe that nobody reads fills up and blocks the command"]
pub struct OutputReader {
    source: Box<dyn OutputSource>,
    status: StatusReceiver,
    /// For each stage (until the exit of the main process, until the tree is empty), the number of bytes that are still
    /// to be read after the stage's end. The initial value is the number of bytes in the source when the end was
    /// noticed.
    left_of: [Option<u64>; 2],
}

/// Source of the bytes of an [`OutputReader`]. Only the reader uses the source, so the rules for the end of the output
/// are the same for every source.
pub trait OutputSource: fmt::Debug + Send + Sync {
    /// Ready when bytes are available, or when the last writer has closed the source.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Takes bytes. Call this function after [`poll_readable`](Self::poll_readable) was ready. Returns `0` if the last
    /// writer has closed the source.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes are available yet.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Number of bytes that can be read now.
    ///
    /// # Errors
    /// If the system refuses.
    fn available(&self) -> io::Result<u64>;

    /// Takes bytes without a check of the runtime's readiness, because the runtime may not know about the last bytes
    /// yet. Returns `0` if no bytes are available.
    ///
    /// # Errors
    /// If the system refuses.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Creates the output pipe of a command.
pub(crate) fn output_pipe() -> Result<(Box<dyn OutputSource>, PipeWriter), LaunchError> {
    let (reader, writer) = io::pipe().map_err(LaunchError::setup("output pipe"))?;
    let reader =
        pipe::Receiver::from_owned_fd(reader.into()).map_err(LaunchError::setup("output pipe"))?;
    Ok((Box::new(PipeSource(reader)), writer))
}

#[derive(Debug)]
struct PipeSource(pipe::Receiver);

impl OutputSource for PipeSource {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }

    fn available(&self) -> io::Result<u64> {
        Ok(rustix::io::ioctl_fionread(&self.0)?)
    }

    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.0, buffer) {
            Err(rustix::io::Errno::AGAIN) => Ok(0),
            read => Ok(read?),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum OutputStage {
    MainExited = 0,
    TreeEmpty = 1,
}

#[derive(Debug, Clone, Copy)]
enum OutputEnd {
    /// The stage is over.
    Over,
    /// The keeper writes further output to a file.
    Detached,
}

impl OutputStage {
    fn end(self, now: &ProcessStatus) -> Option<OutputEnd> {
        let over = match self {
            Self::MainExited => now.exited.is_some() || now.empty.is_some(),
            Self::TreeEmpty => now.empty.is_some(),
        };
        match (now.detached, over) {
            (true, _) => Some(OutputEnd::Detached),
            (false, over) => over.then_some(OutputEnd::Over),
        }
    }
}

impl OutputReader {
    pub(crate) fn new(source: Box<dyn OutputSource>, status: StatusReceiver) -> Self {
        Self {
            source,
            status,
            left_of: [None; 2],
        }
    }

    /// Reads the output until the main process has exited. Returns `0` after the last byte of that output, and after a
    /// detach. Descendants that keep the pipe open may print more later; [`read_leftovers`](Self::read_leftovers) reads
    /// that output.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: only the poll that returns bytes takes them from the pipe.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_until(OutputStage::MainExited, buffer).await
    }

    /// Reads the output until no process of the tree is left. Returns `0` if no more output will follow. Call this
    /// function after [`read`](Self::read) has returned `0`. Background work is then never blocked by a full pipe.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn read_leftovers(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_until(OutputStage::TreeEmpty, buffer).await
    }

    async fn read_until(&mut self, stage: OutputStage, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let seen = tokio::select! {
                // Checks for the end before each read, so that the end is noticed even if a descendant prints without
                // pause.
                biased;
                seen = self.status.wait_for(|now| stage.end(now)) => seen,
                ready = poll_fn(|cx| self.source.poll_readable(cx)) => {
                    ready?;
                    match self.source.try_read(buffer) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        read => return read,
                    }
                }
            };
            return match seen {
                Ok(OutputEnd::Detached) => Ok(0),
                Ok(OutputEnd::Over) | Err(StatusClosed) => self.read_rest(stage, buffer),
            };
        }
    }

    /// Reads without waiting. Reads at most the bytes that were available when the end of the stage was noticed.
    /// Therefore a descendant that prints for ever causes no delay.
    fn read_rest(&mut self, stage: OutputStage, buffer: &mut [u8]) -> io::Result<usize> {
        let [main, tree] = &mut self.left_of;
        let left = match stage {
            OutputStage::MainExited => main,
            OutputStage::TreeEmpty => tree,
        };
        let rest = match *left {
            Some(rest) => rest,
            None => *left.insert(self.source.available()?),
        };
        let len = buffer
            .len()
            .min(usize::try_from(rest).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(0);
        }
        let Some(part) = buffer.get_mut(..len) else {
            return Ok(0);
        };
        let read = self.source.read_now(part)?;
        *left = Some(rest.saturating_sub(read as u64));
        Ok(read)
    }
}
