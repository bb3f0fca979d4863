//! The head and the tail of an output in memory, the whole of it in a file up to a cap, the rest counted.
//!
//! Invariants:
//! 1. Memory holds at most `head_bytes_max` + 2 × `tail_bytes_max`.
//! 2. The file, where there is one, holds the output from its first byte on, without a gap.
//! 3. Every byte is shown, in the file, or counted; the text says which.

mod piece;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cut::{without_cut_end, without_cut_start};
use super::folder::OutputFolder;

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
        file: File,
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

    /// The same for background work: its file is there from the start, so that it can be looked at any time.
    pub fn with_file_now(limits: OutputLimits, folder: Arc<OutputFolder>) -> Self {
        let mut output = Self::new(limits, folder);
        output.open_file();
        output
    }

    /// Makes the file now, if there is none.
    pub fn open_file(&mut self) {
        if matches!(self.spill, Spill::NotYet) {
            self.spill = match self.folder.create() {
                Ok((file, path)) => Spill::Open {
                    file,
                    path,
                    written: 0,
                },
                Err(error) => Spill::Failed {
                    path: None,
                    written: 0,
                    error: error.to_string(),
                },
            };
            // Nothing has been dropped so far: head and tail are all there was.
            let (head, tail) = (
                std::mem::take(&mut self.head),
                std::mem::take(&mut self.tail),
            );
            self.spill_out(&head);
            self.spill_out(&tail);
            (self.head, self.tail) = (head, tail);
        }
    }

    /// Takes a piece of output.
    pub fn push(&mut self, piece: &[u8]) {
        self.total += piece.len() as u64;
        if self.total > self.memory_max() {
            // Before the piece is in memory, or it would be written twice.
            self.open_file();
        }
        self.spill_out(piece);

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
            Spill::NotYet => "they are lost".to_owned(),
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

    fn spill_out(&mut self, piece: &[u8]) {
        let Spill::Open {
            file,
            path,
            written,
        } = &mut self.spill
        else {
            return;
        };
        let room = usize::try_from(self.limits.file_bytes_max - *written).unwrap_or(usize::MAX);
        let fits = piece.get(..room).unwrap_or(piece);
        match write_counted(file, fits) {
            (n, Ok(())) => {
                *written += n;
                if fits.len() < piece.len() {
                    self.spill = Spill::Full {
                        path: std::mem::take(path),
                        written: *written,
                    };
                }
            }
            (n, Err(error)) => {
                self.spill = Spill::Failed {
                    path: Some(std::mem::take(path)),
                    written: *written + n,
                    error: error.to_string(),
                };
            }
        }
    }
}

/// Writes, and says how much of it got there: a full disk takes a part.
fn write_counted(file: &mut File, mut piece: &[u8]) -> (u64, std::io::Result<()>) {
    let mut written = 0;
    while !piece.is_empty() {
        match file.write(piece) {
            Ok(0) => return (written, Err(std::io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                written += n as u64;
                piece = piece.get(n..).unwrap_or_default();
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
