//! An `io::Write` that pushes the written lines into a queue.

use std::io;

use super::queue::OutputQueue;
use super::queue_state::OutputPriority;

/// Pushes whole lines into a queue. A last line without a line end is pushed on flush and on drop.
#[derive(Debug)]
pub struct LineWriter {
    queue: OutputQueue,
    line: Vec<u8>,
}

impl LineWriter {
    pub(super) fn new(queue: OutputQueue) -> Self {
        Self {
            queue,
            line: Vec::new(),
        }
    }
}

impl io::Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = memchr::memrchr(b'\n', &self.line) {
            let rest = self.line.split_off(end + 1);
            self.flush()?;
            self.line = rest;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            let line = String::from_utf8_lossy(&line).into_owned();
            self.queue.lines(line, OutputPriority::Required);
        }
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        // Cannot fail, because a push never fails.
        drop(io::Write::flush(self));
    }
}
