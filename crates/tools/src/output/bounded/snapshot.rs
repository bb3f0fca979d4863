//! Pieces of an output from any offset, read from memory or from the file.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::spill_state::ReadableFile;
use crate::output::without_cut_end;

pub(crate) struct OutputPiece {
    /// Offset of the piece.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// Size of the whole output so far, in bytes.
    pub(crate) total: u64,
}

/// Snapshot of a kept output. The file is read when a piece is requested.
#[derive(Debug)]
pub(in crate::output) struct OutputSnapshot {
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    pub(super) total: u64,
    pub(super) file: Option<ReadableFile>,
}

impl OutputSnapshot {
    /// Returns at most `len_max` bytes from `offset`, or from the first later byte that is still available. The piece
    /// splits no character, unless it would otherwise be empty.
    pub(in crate::output) fn piece(&self, offset: u64, len_max: usize) -> OutputPiece {
        let mut start = offset.min(self.total);
        let mut bytes = Vec::new();
        while bytes.len() < len_max && start + (bytes.len() as u64) < self.total {
            let known = self.known_from(start + bytes.len() as u64, len_max - bytes.len());
            if !known.is_empty() {
                bytes.extend_from_slice(&known);
            } else if bytes.is_empty() && start < self.tail_start() {
                start = self.tail_start();
            } else {
                break;
            }
        }
        let whole = without_cut_end(&bytes).len();
        if whole > 0 {
            bytes.truncate(whole);
        }
        OutputPiece {
            start,
            bytes,
            total: self.total,
        }
    }

    /// Returns available bytes from `at` on, from one source: the head, the tail or the file.
    fn known_from(&self, at: u64, len_max: usize) -> Cow<'_, [u8]> {
        let within = |bytes: &'_ [u8], start: u64| -> Option<(usize, usize)> {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            (from < bytes.len()).then(|| (from, bytes.len().min(from + len_max)))
        };
        for (bytes, start) in [(&self.head, 0), (&self.tail, self.tail_start())] {
            if let Some((from, to)) = within(bytes, start) {
                return Cow::Borrowed(bytes.get(from..to).unwrap_or_default());
            }
        }
        let mut read = vec![0; len_max];
        let len = self.read_file(at, &mut read).unwrap_or(0);
        read.truncate(len);
        Cow::Owned(read)
    }

    /// Reads the file. Bytes that cannot be read count as missing.
    fn read_file(&self, at: u64, buffer: &mut [u8]) -> Option<usize> {
        let readable = self.file.as_ref()?;
        let file = File::open(&readable.path).ok()?;
        let len = match readable.len {
            // A note in place of the output is shorter than the output.
            Some(len) if file.metadata().ok()?.len() < len => 0,
            Some(len) => len,
            None => u64::MAX,
        };
        let left = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX);
        let fits = left.min(buffer.len());
        file.read_at(buffer.get_mut(..fits)?, at).ok()
    }

    fn tail_start(&self) -> u64 {
        self.total - self.tail.len() as u64
    }
}
