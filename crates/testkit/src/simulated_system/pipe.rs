//! A pipe that does not use the kernel. The pipe has no size limit, so no member ever waits for the reader.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use allstop_process::OutputSource;
use parking_lot::Mutex;

/// A pipe outside the kernel, with one reader.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryPipe(Arc<Mutex<PipeState>>);

#[derive(Debug, Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    reader: Option<Waker>,
}

impl MemoryPipe {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.0.lock();
        state.bytes.extend(bytes);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl OutputSource for MemoryPipe {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.bytes.is_empty() {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_now(buffer)
    }

    fn available(&self) -> io::Result<u64> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let len = state.bytes.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(state.bytes.drain(..len)) {
            *place = byte;
        }
        Ok(len)
    }
}
