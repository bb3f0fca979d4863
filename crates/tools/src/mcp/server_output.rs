//! The standard output of an MCP server, from its messages to its end.
//!
//! The output ends when the server exits, because a process that the server has started may keep the pipe open. Messages
//! that are in the pipe at the exit are still read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use allstop_core::json_text::has_reserved_key;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

use super::connection_loss::ConnectionLoss;
use super::deep_answer::replacement;
use super::http_client::RESERVED_KEY;
use super::limits::MESSAGE_BYTES_MAX;

/// Maximum number of bytes that are read at once: many messages fit into it, and it fits on the stack.
const READ_BYTES: usize = 8 * 1024;

/// Maximum number of bytes that are read after the exit of the server. By default, Linux lets no pipe hold more. A process
/// that the server has left can print without end.
const DRAIN_BYTES_MAX: usize = 1024 * 1024;

/// The server's standard output, bounded and message by message. If a message is too long or must not be parsed, the
/// output ends.
pub(super) struct ServerOutput {
    pipe: pipe::Receiver,
    /// Bytes since the last line feed, which belong to an incomplete message.
    message: Vec<u8>,
    /// Complete messages that were checked, and the number of their bytes that were passed on.
    checked: Vec<u8>,
    passed: usize,
    loss: ConnectionLoss,
    exit: BoxFuture<'static, ()>,
    /// Number of bytes that may still be read. `None` before the exit.
    left: Option<usize>,
}

impl ServerOutput {
    /// Creates the output. It ends when `exit` resolves and the pipe is empty.
    pub(super) fn new(
        pipe: pipe::Receiver,
        exit: BoxFuture<'static, ()>,
        loss: ConnectionLoss,
    ) -> Self {
        Self {
            pipe,
            message: Vec::new(),
            checked: Vec::new(),
            passed: 0,
            loss,
            exit,
            left: None,
        }
    }

    /// Reads from the pipe. Zero bytes are the end of the output.
    fn poll_pipe(&mut self, cx: &mut Context<'_>, piece: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // The exit is polled first, because endless output must not delay it.
        if self.left.is_none() && self.exit.poll_unpin(cx).is_ready() {
            self.left = Some(DRAIN_BYTES_MAX);
        }
        let Some(left) = self.left else {
            return Pin::new(&mut self.pipe).poll_read(cx, piece);
        };
        let mut room = piece.take(left);
        // The runtime may not have noticed yet that the pipe has bytes, so the system is asked.
        match rustix::io::read(&self.pipe, room.initialize_unfilled()) {
            Ok(len) => {
                piece.advance(len);
                self.left = Some(left - len);
            }
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        Poll::Ready(Ok(()))
    }

    /// Checks messages before they are passed on. Returns `Err(why)` if the output ends here.
    fn check(&mut self, read: &[u8]) -> Result<(), String> {
        for piece in read.split_inclusive(|byte| *byte == b'\n') {
            self.message.extend_from_slice(piece);
            if self.message.len() > MESSAGE_BYTES_MAX {
                return Err(format!(
                    "it sent more than {MESSAGE_BYTES_MAX} bytes in one message"
                ));
            }
            if piece.ends_with(b"\n") {
                if has_reserved_key(&self.message) {
                    return Err(RESERVED_KEY.to_owned());
                }
                let message = std::mem::take(&mut self.message);
                match replacement(&message) {
                    None => self.checked.extend(message),
                    Some(instead) => {
                        self.checked.extend(instead.into_bytes());
                        self.checked.push(b'\n');
                    }
                }
            }
        }
        Ok(())
    }
}

impl AsyncRead for ServerOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let left = self.checked.get(self.passed..).unwrap_or_default();
            let passed = left.get(..buffer.remaining()).unwrap_or(left);
            if !passed.is_empty() {
                buffer.put_slice(passed);
                self.passed += passed.len();
                return Poll::Ready(Ok(()));
            }
            // Also frees the memory of a long message.
            (self.checked, self.passed) = (Vec::new(), 0);
            let mut piece = [0; READ_BYTES];
            let mut piece = ReadBuf::new(&mut piece);
            std::task::ready!(self.poll_pipe(cx, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Err(why) = self.check(piece.filled()) {
                self.loss.by_us(&why);
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
    }
}
