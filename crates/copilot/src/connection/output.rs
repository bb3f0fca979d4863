//! Output of a connection: one queue of frames with a limited number of bytes.
//!
//! Answers never wait for room in the queue, because the limit of the requests in progress also limits the number of
//! answers. If a client has too many unread bytes of answers, the server reads no further input of this client. Events
//! and requests to the client wait for room, so a client that does not read delays only its own events.

use std::sync::Arc;

use allstop_jsonrpc::{QueuedAnswer, encode_frame};
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, BufWriter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Maximum size of waiting events and requests, in units of [`UNIT_BYTES`]: 8 MiB, more than any single event.
const WAITING_UNITS_MAX: u32 = 8 * 1024;
const UNIT_BYTES: usize = 1024;

/// Maximum size of waiting answers in bytes, above which no further request is accepted. One answer may be larger.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Size in bytes of the buffer for short frames.
const WRITTEN_AT_ONCE: usize = 64 * 1024;

/// Sending side of the queue. Clones write to the same connection.
#[derive(Debug, Clone)]
pub(crate) struct FrameQueue {
    tx: Arc<Mutex<Option<mpsc::UnboundedSender<QueuedFrame>>>>,
    room: Arc<Semaphore>,
    /// Number of bytes of unwritten answers.
    answer_bytes: watch::Sender<usize>,
}

/// Receiving side of the queue, which writes the frames.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    rx: mpsc::UnboundedReceiver<QueuedFrame>,
    answer_bytes: watch::Sender<usize>,
}

#[derive(Debug)]
enum QueuedFrame {
    /// Answer. When the answer is written, its slot among the requests in progress becomes free.
    Answer(QueuedAnswer),
    /// Answer to a request that was not accepted.
    Refusal(Vec<u8>),
    /// Event, or request to the client, with the permit for its room in the queue.
    Message(Vec<u8>, OwnedSemaphorePermit),
}

/// The connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection has ended")]
pub(crate) struct QueueClosed;

/// Creates a queue. The requests in progress and `WAITING_UNITS_MAX` limit the length of the queue.
pub(crate) fn output_queue() -> (FrameQueue, FrameWriter) {
    let (tx, rx) = mpsc::unbounded_channel();
    let queue = FrameQueue {
        tx: Arc::new(Mutex::new(Some(tx))),
        room: Arc::new(Semaphore::new(WAITING_UNITS_MAX as usize)),
        answer_bytes: watch::Sender::new(0),
    };
    let answer_bytes = queue.answer_bytes.clone();
    (queue, FrameWriter { rx, answer_bytes })
}

impl FrameQueue {
    /// Queues an answer, or drops the answer if the connection has ended.
    pub(crate) fn answer(&self, answer: QueuedAnswer) {
        let len = answer.frame().len();
        self.answer_bytes.send_modify(|bytes| *bytes += len);
        let _queued_or_gone = self.push(QueuedFrame::Answer(answer));
    }

    /// Queues the answer to a request that was not accepted. Like an answer, the refusal does not wait for room.
    pub(crate) fn refusal(&self, body: &[u8]) -> Result<(), QueueClosed> {
        let frame = encode_frame(body);
        self.answer_bytes.send_modify(|bytes| *bytes += frame.len());
        self.push(QueuedFrame::Refusal(frame))
    }

    /// Waits until the unread answers of the client have fewer than [`ANSWER_BYTES_MAX`] bytes.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn room_for_answers(&self) {
        let mut answer_bytes = self.answer_bytes.subscribe();
        let below = answer_bytes.wait_for(|bytes| *bytes < ANSWER_BYTES_MAX);
        // The wait fails only if all senders are dropped, and this queue holds a sender.
        drop(below.await);
    }

    /// Queues an event or request as soon as the queue has room for it.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has queued nothing.
    pub(crate) async fn message(&self, body: &[u8]) -> Result<(), QueueClosed> {
        let units = u32::try_from(body.len() / UNIT_BYTES + 1).unwrap_or(WAITING_UNITS_MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(units.min(WAITING_UNITS_MAX));
        let room = room.await.map_err(|_closed| QueueClosed)?;
        self.push(QueuedFrame::Message(encode_frame(body), room))
    }

    fn push(&self, frame: QueuedFrame) -> Result<(), QueueClosed> {
        let tx = self.tx.lock();
        let tx = tx.as_ref().ok_or(QueueClosed)?;
        tx.send(frame).map_err(|_gone| QueueClosed)
    }

    /// True if the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.tx.lock().is_none()
    }

    /// Closes the queue: queued frames are still written, and new frames are refused.
    pub(crate) fn close(&self) {
        self.room.close();
        *self.tx.lock() = None;
    }
}

impl FrameWriter {
    /// Writes until the queue is closed and empty.
    ///
    /// # Errors
    /// Returns an error if the other side has disconnected.
    ///
    /// # Cancel safety
    /// A dropped future may have written half a frame, so the connection is unusable afterwards.
    pub(crate) async fn write_to(mut self, output: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        // Frames that wait together are written together.
        let mut output = BufWriter::with_capacity(WRITTEN_AT_ONCE, output);
        while let Some(frame) = self.rx.recv().await {
            match &frame {
                QueuedFrame::Answer(answer) => {
                    let len = answer.frame().len();
                    output.write_all(answer.frame()).await?;
                    self.answer_bytes.send_modify(|bytes| *bytes -= len);
                }
                QueuedFrame::Refusal(frame) => {
                    output.write_all(frame).await?;
                    self.answer_bytes.send_modify(|bytes| *bytes -= frame.len());
                }
                QueuedFrame::Message(bytes, _room) => output.write_all(bytes).await?,
            }
            if self.rx.is_empty() {
                output.flush().await?;
            }
        }
        output.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// Counts the writes.
    #[derive(Debug, Default)]
    struct Writes(usize, Vec<u8>);

    impl AsyncWrite for &mut Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0 += 1;
            self.1.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn frames_that_wait_together_are_one_write() {
        let (queue, writer) = output_queue();
        for body in [b"{}".as_slice(), b"[1]", b"[2]"] {
            queue.message(body).await.expect("it is open");
        }
        queue.close();
        let mut written = Writes::default();
        writer.write_to(&mut written).await.expect("it works");
        let frames = [
            encode_frame(b"{}"),
            encode_frame(b"[1]"),
            encode_frame(b"[2]"),
        ];
        assert_eq!(written.1, frames.concat());
        assert_eq!(written.0, 1);
    }
}
