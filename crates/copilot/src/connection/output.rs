//! Output of a connection: one queue of frames, whose bytes are limited.
//!
//! Answers never wait: their number is limited by the requests under way, and a client with too many bytes of answers that
//! it has not read is itself read no further. Events and requests of this side wait for room, so a client that does not
//! read holds up its own events and nothing else.

use std::sync::Arc;

use allstop_jsonrpc::{QueuedAnswer, encode_frame};
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Bytes of waiting events, in units of [`UNIT_BYTES`]: 8 MiB, more than any one event has.
const WAITING_UNITS_MAX: u32 = 8 * 1024;
const UNIT_BYTES: usize = 1024;

/// Bytes of waiting answers at which no further request is taken. One answer may be larger.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Sender's side. Clones write to the same connection.
#[derive(Debug, Clone)]
pub(crate) struct FrameQueue {
    tx: Arc<Mutex<Option<mpsc::UnboundedSender<QueuedFrame>>>>,
    room: Arc<Semaphore>,
    /// Bytes of the answers that are not written yet.
    answer_bytes: watch::Sender<usize>,
}

/// Receiver's side, which writes.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    rx: mpsc::UnboundedReceiver<QueuedFrame>,
    answer_bytes: watch::Sender<usize>,
}

#[derive(Debug)]
enum QueuedFrame {
    /// Its slot among the requests under way is free once it is written.
    Answer(QueuedAnswer),
    /// Answer to a request that was not accepted.
    Refusal(Vec<u8>),
    /// With its room in the queue.
    Message(Vec<u8>, OwnedSemaphorePermit),
}

/// The connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection has ended")]
pub(crate) struct QueueClosed;

/// Creates a queue. Its length is limited by the requests under way and by `WAITING_UNITS_MAX`.
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
    /// Queues an answer. One for a connection that has ended is dropped.
    pub(crate) fn answer(&self, answer: QueuedAnswer) {
        let len = answer.frame().len();
        self.answer_bytes.send_modify(|bytes| *bytes += len);
        let _queued_or_gone = self.push(QueuedFrame::Answer(answer));
    }

    /// Queues the answer to a request that was not accepted. Like an answer, it waits for no room.
    pub(crate) fn refusal(&self, body: &[u8]) -> Result<(), QueueClosed> {
        let frame = encode_frame(body);
        self.answer_bytes.send_modify(|bytes| *bytes += frame.len());
        self.push(QueuedFrame::Refusal(frame))
    }

    /// Waits until the client has read so many of its answers that the rest is below [`ANSWER_BYTES_MAX`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn room_for_answers(&self) {
        let mut answer_bytes = self.answer_bytes.subscribe();
        let below = answer_bytes.wait_for(|bytes| *bytes < ANSWER_BYTES_MAX);
        // The sender is this queue's own.
        drop(below.await);
    }

    /// Queues a message, once there is room for it.
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

    /// Ends the queue: what is in it is still written, and everything else fails.
    pub(crate) fn close(&self) {
        self.room.close();
        *self.tx.lock() = None;
    }
}

impl FrameWriter {
    /// Writes until the queue is closed and empty.
    ///
    /// # Errors
    /// If the other side is gone.
    ///
    /// # Cancel safety
    /// A dropped future may have written half a frame: the connection is then of no use.
    pub(crate) async fn write_to(
        mut self,
        mut output: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
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
