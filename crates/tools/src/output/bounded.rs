//! The head and the tail of an output in memory, the whole of it in a file up to a cap, the rest counted.
//!
//! Invariants:
//! 1. Memory holds at most `head_bytes_max` + 2 × `tail_bytes_max`.
//! 2. The file, where there is one, holds the output from its first byte on, without a gap.
//! 3. Every byte is shown, in the file, or counted; the text says which.

pub(super) mod piece;
mod spill;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cut::{without_cut_end, without_cut_start};
use super::folder::OutputFolder;
use piece::KeptOutput;
use spill::{SpillTarget, SpillWrite, SpillWritten};

/// How much of an output is kept where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Bytes from the start that the model is shown.
    pub head_bytes_max: usize,
    /// Bytes before the end that the model is shown.
    pub tail_bytes_max: usize,
    /// Bytes that are written to the file.
    pub file_bytes_max: u64,
}

impl Default for OutputLimits {
    /// 8 KiB of head and 24 of tail, since errors stand at the end: about 8,000 tokens together. A file of 64 MiB
    /// holds any log that somebody will read, and a hundred of them still fit on a disk.
    fn default() -> Self {
        Self {
            head_bytes_max: 8 * 1024,
            tail_bytes_max: 24 * 1024,
            file_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// An output that is being collected.
#[derive(Debug)]
pub struct BoundedOutput {
    limits: OutputLimits,
    folder: Arc<OutputFolder>,
    head: Vec<u8>,
    /// The last bytes, up to twice as many as are shown: cut back when full, so that each byte is moved once.
    tail: Vec<u8>,
    total: u64,
    spill: Spill,
}

#[derive(Debug)]
enum Spill {
    /// Everything fits into memory so far.
    NotYet,
    /// The file takes more.
    Open {
        file: Arc<File>,
        path: PathBuf,
        written: u64,
    },
    /// The file is as long as it may be.
    Full { path: PathBuf, written: u64 },
    /// The disk took no more: what is in the file, if there is one, is whole up to there.
    Failed {
        path: Option<PathBuf>,
        written: u64,
        error: String,
    },
}

impl BoundedOutput {
    /// An output that goes to a file when it no longer fits into memory.
    pub fn new(limits: OutputLimits, folder: Arc<OutputFolder>) -> Self {
        Self {
            limits,
            folder,
            head: Vec::new(),
            tail: Vec::new(),
            total: 0,
            spill: Spill::NotYet,
        }
    }

    /// The same, with its file given.
    #[cfg(test)]
    pub(super) fn writing_to(mut self, file: File) -> Self {
        self.spill = Spill::Open {
            file: Arc::new(file),
            path: PathBuf::new(),
            written: 0,
        };
        self
    }

    /// The same for background work: its file is there from the start, so that it can be looked at any time.
    pub fn with_file_now(limits: OutputLimits, folder: Arc<OutputFolder>) -> Self {
        let mut output = Self::new(limits, folder);
        output.open_file();
        output
    }

    /// Makes the file now, if there is none.
    pub fn open_file(&mut self) {
        if let Some(writing) = self.begin_file() {
            self.finish_writing(writing.write(&[]));
        }
    }

    /// Takes a piece of output.
    pub fn push(&mut self, piece: &[u8]) {
        if let Some(writing) = self.take(piece) {
            self.finish_writing(writing.write(piece));
        }
    }

    /// Makes the file, if there is none: with what memory holds, which is all that there was so far.
    pub(super) fn begin_file(&self) -> Option<SpillWrite> {
        let is_new = matches!(self.spill, Spill::NotYet);
        is_new.then(|| SpillWrite {
            target: SpillTarget::New {
                folder: Arc::clone(&self.folder),
                before: [self.head.as_slice(), &self.tail].concat(),
            },
            room: self.limits.file_bytes_max,
        })
    }

    /// Takes a piece into memory. What is to be written for it is the caller's to write, and then to be told here, before
    /// the next piece.
    pub(super) fn take(&mut self, piece: &[u8]) -> Option<SpillWrite> {
        self.total += piece.len() as u64;
        let writing = match &self.spill {
            // Before the piece is in memory, or it would be written twice.
            Spill::NotYet if self.total > self.memory_max() => self.begin_file(),
            Spill::Open { file, written, .. } => Some(SpillWrite {
                target: SpillTarget::Open(Arc::clone(file)),
                room: self.limits.file_bytes_max - *written,
            }),
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
        let spill = std::mem::replace(&mut self.spill, Spill::NotYet);
        let (file, path, before) = match (spill, done.made) {
            (Spill::NotYet, Some((file, path))) => (file, path, 0),
            (
                Spill::Open {
                    file,
                    path,
                    written,
                },
                _,
            ) => (file, path, written),
            (Spill::NotYet, None) => {
                self.spill = Spill::Failed {
                    path: None,
                    written: 0,
                    error: done.error.unwrap_or_default(),
                };
                return;
            }
            (closed, _) => {
                self.spill = closed;
                return;
            }
        };
        let written = before + done.written;
        self.spill = match done.error {
            Some(error) => Spill::Failed {
                path: Some(path),
                written,
                error,
            },
            None if done.is_full => Spill::Full { path, written },
            None => Spill::Open {
                file,
                path,
                written,
            },
        };
    }

    /// What is kept of it, to look at elsewhere.
    pub(super) fn kept(&self) -> KeptOutput {
        KeptOutput {
            head: self.head.clone(),
            tail: self.tail.clone(),
            total: self.total,
            file: self.file().map(PathBuf::from),
        }
    }

    /// How many bytes there were.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// The file, where there is one.
    pub fn file(&self) -> Option<&Path> {
        match &self.spill {
            Spill::NotYet => None,
            Spill::Open { path, .. } | Spill::Full { path, .. } => Some(path),
            Spill::Failed { path, .. } => path.as_deref(),
        }
    }

    /// What the model is shown: all of it, or head and tail with what was left out between them.
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
        let left_out = self.total - (head.len() + tail.len()) as u64;
        format!(
            "{}\n[… {left_out} of {} bytes left out; {} …]\n{}",
            String::from_utf8_lossy(head),
            self.total,
            self.where_the_rest_is(),
            String::from_utf8_lossy(tail),
        )
    }

    fn where_the_rest_is(&self) -> String {
        match &self.spill {
            Spill::NotYet => "they are being written".to_owned(),
            Spill::Open { path, .. } => format!("the whole output is in {}", path.display()),
            Spill::Full { path, written } => {
                format!("the first {written} bytes are in {}", path.display())
            }
            Spill::Failed {
                path: Some(path),
                written,
                error,
            } => {
                format!(
                    "the first {written} bytes are in {}, then writing failed: {error}",
                    path.display()
                )
            }
            Spill::Failed {
                path: None, error, ..
            } => {
                format!("they are lost, a file for them could not be made: {error}")
            }
        }
    }

    fn memory_max(&self) -> u64 {
        (self.limits.head_bytes_max + self.limits.tail_bytes_max) as u64
    }
}
