//! A lane for code that writes to an `io::Write`.

use std::io;

use super::lane::{Keep, Lane};

/// Whole lines into a lane; what is left without an end of line is pushed at the end.
#[derive(Debug)]
pub(crate) struct LaneWriter {
    lane: Lane,
    line: Vec<u8>,
}

impl LaneWriter {
    pub(super) fn new(lane: Lane) -> Self {
        Self {
            lane,
            line: Vec::new(),
        }
    }
}

impl io::Write for LaneWriter {
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
            self.lane.lines(line, Keep::Must);
        }
        Ok(())
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        // It cannot fail: pushing never does.
        drop(io::Write::flush(self));
    }
}
