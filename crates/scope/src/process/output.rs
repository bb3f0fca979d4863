//! The combined output of a command: standard output and error through one pipe, in their order.
//!
//! A pipe ends only when its last writer closes it, and any grandchild may hold it for hours. So the end of the *output*
//! is not the end of the *pipe*: once the main process has exited, what the pipe holds at that moment is everything that
//! it wrote, and that many bytes are still read, without waiting.

use std::io;
use std::sync::Arc;

use tokio::net::unix::pipe;

use super::simulated::MemoryPipe;
use super::status::ProcessStatus;
use super::status_channel::{Closed, StatusReceiver};

/// Reads what a command and its descendants print.
#[derive(Debug)]
#[must_use = "a pipe that nobody reads fills up and blocks the command"]
pub struct OutputReader {
    source: Source,
    status: StatusReceiver,
    /// How many bytes were in the pipe when the end of the stage was first seen, less what was read since.
    left_of: [Option<u64>; 2],
}

/// Where the bytes come from. The rules for the end of the output are the same.
#[derive(Debug)]
pub(super) enum Source {
    Pipe(pipe::Receiver),
    Memory(Arc<MemoryPipe>),
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    MainExited = 0,
    TreeEmpty = 1,
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// The stage is over.
    Over,
    /// The keeper writes further output to a file.
    LetGo,
}

impl Stage {
    fn end(self, now: &ProcessStatus) -> Option<End> {
        let over = match self {
            Self::MainExited => now.exited.is_some() || now.empty.is_some(),
            Self::TreeEmpty => now.empty.is_some(),
        };
        match (now.detached, over) {
            (true, _) => Some(End::LetGo),
            (false, over) => over.then_some(End::Over),
        }
    }
}

impl OutputReader {
    pub(super) fn new(source: Source, status: StatusReceiver) -> Self {
        Self {
            source,
            status,
            left_of: [None; 2],
        }
    }

    /// Reads what was printed until the main process exited. `0`: there is no more, although descendants that hold the
    /// pipe may print more later; [`read_leftovers`](Self::read_leftovers) reads that. After a detach it is `0` too.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: bytes are taken from the pipe only by the poll that returns them.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_until(Stage::MainExited, buffer).await
    }

    /// Reads what is printed until nothing of the tree is left: use it once [`read`](Self::read) has returned `0`, for
    /// background work, so that it never blocks on a full pipe. `0`: there will be no more.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn read_leftovers(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_until(Stage::TreeEmpty, buffer).await
    }

    async fn read_until(&mut self, stage: Stage, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let seen = tokio::select! {
                // The end first: output without end must not hide it.
                biased;
                seen = self.status.wait_for(|now| stage.end(now)) => seen,
                ready = self.source.readable() => {
                    ready?;
                    match self.source.try_read(buffer) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        read => return read,
                    }
                }
            };
            return match seen {
                Ok(End::LetGo) => Ok(0),
                Ok(End::Over) | Err(Closed) => self.read_rest(stage, buffer),
            };
        }
    }

    /// Without waiting, and no more than was there at the end: a descendant that prints for ever delays nothing.
    fn read_rest(&mut self, stage: Stage, buffer: &mut [u8]) -> io::Result<usize> {
        let [main, tree] = &mut self.left_of;
        let left = match stage {
            Stage::MainExited => main,
            Stage::TreeEmpty => tree,
        };
        let rest = match *left {
            Some(rest) => rest,
            None => *left.insert(self.source.len()?),
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

impl Source {
    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.readable().await,
            Self::Memory(memory) => {
                memory.readable().await;
                Ok(())
            }
        }
    }

    /// After [`readable`](Self::readable). `0`: the last writer has closed it; one of memory stays open.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_read(buffer),
            Self::Memory(memory) => Ok(memory.take(buffer)),
        }
    }

    /// How many bytes are in it.
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::Pipe(pipe) => Ok(rustix::io::ioctl_fionread(pipe)?),
            Self::Memory(memory) => Ok(memory.len() as u64),
        }
    }

    /// Without asking the runtime, whose readiness may not have heard of the last bytes yet. `0`: there are none.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => match rustix::io::read(pipe, buffer) {
                Err(rustix::io::Errno::AGAIN) => Ok(0),
                read => Ok(read?),
            },
            Self::Memory(memory) => Ok(memory.take(buffer)),
        }
    }
}
