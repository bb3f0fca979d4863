//! The program that reads a stream of JSON lines, such as the events of `run --stream-json`. If it ends, no program reads
//! the rest, so the command ends, too.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::ONE_SIGNAL;

/// Interval between two checks of the pipe. A command without events writes nothing, so no write fails.
const READER_LOOK: Duration = Duration::from_millis(100);

/// The reader of standard output.
#[derive(Debug)]
pub(crate) struct StreamReader {
    /// False if standard output receives no stream, and after the reader has gone.
    is_watched: bool,
}

impl StreamReader {
    /// A reader of a stream if `streams` is true. Otherwise the command has no reader that must stay.
    pub(crate) fn new(streams: bool) -> Self {
        Self {
            is_watched: streams,
        }
    }

    /// Waits until the reader is gone. Resolves once. The result comes a little later than the end of the reader: Ctrl-C
    /// also ends the reader, and the signal is then the cause of the stop.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call checks again.
    pub(crate) async fn gone(&mut self) {
        while self.is_watched {
            tokio::time::sleep(READER_LOOK).await;
            if is_closed(std::io::stdout()) {
                tokio::time::sleep(ONE_SIGNAL).await;
                self.is_watched = false;
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// True if the other end of a pipe or a socket is closed. False for a file.
fn is_closed(output: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let found = poll(&mut polled, Some(&Timespec::default()));
    let [output] = polled;
    found.is_ok() && output.revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_closed_when_its_reader_is_gone() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        assert!(!is_closed(&writer));
        drop(reader);
        assert!(is_closed(&writer));
        let (ours, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(!is_closed(&ours));
        drop(other);
        assert!(is_closed(&ours));
        assert!(!is_closed(tempfile::tempfile().expect("a file")));
    }
}
