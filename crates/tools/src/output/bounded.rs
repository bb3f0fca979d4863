//! Bounded output. Memory keeps the head and the tail, and a file keeps the whole output up to a limit. Bytes after
//! this limit are only counted.
//!
//! Invariants:
//! 1. Memory holds at most `head_bytes_max` + 2 × `tail_bytes_max` bytes.
//! 2. The file, if any, holds the output from its first byte on, without a gap.
//! 3. Every byte is shown in the text, written to the file, or counted. The text names the number of omitted bytes and
//!    the file that contains them, or the limit that cut the file.

pub(super) mod snapshot;
mod spill;
mod spill_state;

#[cfg(test)]
use std::fs::File;
use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;
use std::sync::Arc;

use super::cut::{without_cut_end, without_cut_start};
use super::folder::OutputFolder;
use snapshot::OutputSnapshot;
use spill::{SpillTarget, SpillWrite, SpillWritten};
use spill_state::{ReadableFile, SpillState};

/// Limits of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputLimits {
    /// Maximum size of the head that the model sees, in bytes.
    pub head_bytes_max: usize,
    /// Maximum size of the tail that the model sees, in bytes.
    pub tail_bytes_max: usize,
    /// Maximum size of the file, in bytes.
    pub file_bytes_max: u64,
}

impl Default for OutputLimits {
    /// The head is 8 KiB and the tail 24 KiB, together about 8,000 tokens. The tail is longer, because errors are
    /// usually at the end. A file of 64 MiB holds every log that a person will read. The number of files has no limit:
    /// a budget limits their sum ([`OutputFolder::within`]).
    fn default() -> Self {
        Self {
            head_bytes_max: 8 * 1024,
            tail_bytes_max: 24 * 1024,
            file_bytes_max: 64 * 1024 * 1024,
        }
    }
}

impl OutputLimits {
    /// Sets the maximum size of the head that the model sees, in bytes.
    #[must_use]
    pub fn head_bytes_max(mut self, head_bytes_max: usize) -> Self {
        self.head_bytes_max = head_bytes_max;
        self
    }

    /// Sets the maximum size of the tail that the model sees, in bytes.
    #[must_use]
    pub fn tail_bytes_max(mut self, tail_bytes_max: usize) -> Self {
        self.tail_bytes_max = tail_bytes_max;
        self
    }

    /// Sets the maximum size of the file, in bytes.
    #[must_use]
    pub fn file_bytes_max(mut self, file_bytes_max: u64) -> Self {
        self.file_bytes_max = file_bytes_max;
        self
    }
}

/// An output that is being collected.
#[derive(Debug)]
pub struct BoundedOutput {
    limits: OutputLimits,
    folder: Arc<OutputFolder>,
    head: Vec<u8>,
    /// The last bytes, up to twice as many as are shown. The tail is shortened only when it is full, so that each byte
    /// is moved at most once.
    tail: Vec<u8>,
    total: u64,
    spill: SpillState,
}

impl BoundedOutput {
    /// Creates an output that is also written to a file if it no longer fits into memory.
    pub fn new(limits: OutputLimits, folder: Arc<OutputFolder>) -> Self {
        Self {
            limits,
            folder,
            head: Vec::new(),
            tail: Vec::new(),
            total: 0,
            spill: SpillState::NotYet,
        }
    }

    /// Creates an output without a file. If it no longer fits into memory, its middle is dropped.
    pub fn in_memory(limits: OutputLimits) -> Self {
        Self {
            spill: SpillState::NoFile,
            ..Self::new(limits, Arc::new(OutputFolder::new("")))
        }
    }

    #[cfg(test)]
    pub(super) fn writing_to(mut self, file: File) -> Self {
        self.spill = SpillState::Open {
            file: Arc::new(file),
            path: PathBuf::new(),
            written: 0,
        };
        self
    }

    /// Creates an output with a file from the start. Background work needs the file, because its output can be read at
    /// any time.
    pub fn with_file_now(limits: OutputLimits, folder: Arc<OutputFolder>) -> Self {
        let mut output = Self::new(limits, folder);
        output.open_file();
        output
    }

    /// Creates the file now, if it does not exist.
    pub fn open_file(&mut self) {
        if let Some(writing) = self.begin_file() {
            self.finish_writing(writing.write(&[]));
        }
    }

    /// Appends a piece of output.
    pub fn push(&mut self, piece: &[u8]) {
        if let Some(writing) = self.take(piece) {
            self.finish_writing(writing.write(piece));
        }
    }

    /// Prepares a new file and its first write: the content of memory, which is the whole output so far. `None` if a
    /// file was begun before.
    pub(super) fn begin_file(&self) -> Option<SpillWrite> {
        let is_new = matches!(self.spill, SpillState::NotYet);
        is_new.then(|| {
            let before = [self.head.as_slice(), &self.tail].concat();
            self.spill_write(SpillTarget::New { before }, 0)
        })
    }

    fn spill_write(&self, target: SpillTarget, written: u64) -> SpillWrite {
        SpillWrite {
            folder: Arc::clone(&self.folder),
            target,
            written,
            file_bytes_max: self.limits.file_bytes_max,
        }
    }

    /// Appends a piece to memory. The caller performs the returned write, and passes the result of the write to
    /// `finish_writing` before the caller appends the next piece.
    pub(super) fn take(&mut self, piece: &[u8]) -> Option<SpillWrite> {
        self.total += piece.len() as u64;
        let writing = match &self.spill {
            // The file is begun before the piece is in memory, because otherwise the piece would be written twice.
            SpillState::NotYet if self.total > self.memory_max() => self.begin_file(),
            SpillState::Open { file, written, .. } => {
                Some(self.spill_write(SpillTarget::Open(Arc::clone(file)), *written))
            }
            _ => None,
        };
        let to_head = piece
            .len()
            .min(self.limits.head_bytes_max - self.head.len());
        let (head, tail) = piece.split_at(to_head);
        self.head.extend_from_slice(head);
        let keep = self.limits.tail_bytes_max;
        if tail.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&tail[tail.len() - keep..]);
        } else {
            if self.tail.len() + tail.len() > 2 * keep {
                let old = self.tail.len() - keep;
                self.tail.drain(..old);
            }
            self.tail.extend_from_slice(tail);
        }
        writing
    }

    pub(super) fn finish_writing(&mut self, done: SpillWritten) {
        self.change_spill(|spill| spill.after(done));
    }

    /// Closes the file after the last piece. From then on, the file may be removed for other output.
    pub(super) fn close_file(&mut self) {
        self.change_spill(SpillState::closed);
    }

    /// Records that the file was removed.
    pub(super) fn file_was_removed(&mut self) {
        self.change_spill(SpillState::removed);
    }

    fn change_spill(&mut self, change: impl FnOnce(SpillState) -> SpillState) {
        let spill = std::mem::replace(&mut self.spill, SpillState::NotYet);
        self.spill = change(spill);
    }

    /// Copy of the kept output, which can be read without a lock.
    pub(super) fn snapshot(&self) -> OutputSnapshot {
        OutputSnapshot {
            head: self.head.clone(),
            tail: self.tail.clone(),
            total: self.total,
            file: self.readable_file(),
        }
    }

    /// Number of bytes so far.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Path of the file, if any.
    pub fn file(&self) -> Option<&Path> {
        self.spill.path()
    }

    pub(super) fn readable_file(&self) -> Option<ReadableFile> {
        self.spill.readable()
    }

    /// Place of the output for lists; `None` without a file.
    pub(super) fn place(&self) -> Option<String> {
        self.spill.place()
    }

    /// Text for the model: the whole output, or the head and the tail with a note about the omitted bytes between them.
    pub fn text(&self) -> String {
        let tail_max = self.limits.tail_bytes_max;
        let tail = self
            .tail
            .get(self.tail.len().saturating_sub(tail_max)..)
            .unwrap_or_default();
        if self.total <= self.memory_max() {
            return String::from_utf8_lossy(&[self.head.as_slice(), tail].concat()).into_owned();
        }
        let head = without_cut_end(&self.head);
        let tail = without_cut_start(tail);
        let omitted = self.total - (head.len() + tail.len()) as u64;
        format!(
            "{}\n[… {omitted} of {} bytes left out; {} …]\n{}",
            String::from_utf8_lossy(head),
            self.total,
            self.spill.location_of_the_rest(),
            String::from_utf8_lossy(tail),
        )
    }

    fn memory_max(&self) -> u64 {
        (self.limits.head_bytes_max + self.limits.tail_bytes_max) as u64
    }
}
