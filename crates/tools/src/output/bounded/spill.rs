//! Write operations on the output file. They are separate from the output itself, so that no lock is held during a
//! write operation.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use crate::output::OutputFolder;
use crate::output::disk_limit::DiskLimit;

#[derive(Debug)]
pub(in crate::output) struct SpillWrite {
    pub(super) folder: Arc<OutputFolder>,
    pub(super) target: SpillTarget,
    /// Number of bytes that the file has.
    pub(super) written: u64,
    /// Number of bytes that the file may have.
    pub(super) file_bytes_max: u64,
}

#[derive(Debug)]
pub(super) enum SpillTarget {
    /// A new file, which first receives the output that came before the piece.
    New {
        before: Vec<u8>,
    },
    Open(Arc<File>),
}

#[derive(Debug, Default)]
pub(in crate::output) struct SpillWritten {
    pub(super) created: Option<(Arc<File>, PathBuf)>,
    pub(super) written: u64,
    /// Limit that left no space for a part of the piece.
    pub(super) limit: Option<DiskLimit>,
    pub(super) error: Option<String>,
}

impl SpillWrite {
    /// Writes the piece. May wait for a slow disk.
    pub(in crate::output) fn write(self, piece: &[u8]) -> SpillWritten {
        let before = match &self.target {
            SpillTarget::New { before } => before.as_slice(),
            SpillTarget::Open(_) => &[],
        };
        let len = (before.len() + piece.len()) as u64;
        let (mut room, limit) = self.room(len);
        let mut done = SpillWritten {
            limit,
            ..SpillWritten::default()
        };
        let file = match &self.target {
            SpillTarget::Open(file) => Arc::clone(file),
            // A file without content would only hide the reason.
            SpillTarget::New { .. } if room == 0 && len > 0 => return done,
            SpillTarget::New { .. } => match self.folder.create() {
                Ok((file, path)) => {
                    let file = Arc::new(file);
                    done.created = Some((Arc::clone(&file), path));
                    file
                }
                Err(error) => {
                    done.error = Some(error.to_string());
                    return done;
                }
            },
        };
        for part in [before, piece] {
            let fits = usize::try_from(room).unwrap_or(usize::MAX).min(part.len());
            let (len, written) = write_counted(&file, part.get(..fits).unwrap_or_default());
            done.written += len;
            room -= len;
            if let Err(error) = written {
                done.error = Some(error.to_string());
                return done;
            }
        }
        if let Some(limit) = limit {
            // The note is for readers of the file. The text of the output names the limit even if this write fails.
            let (_, _ignored) = write_counted(&file, limit.end_line().as_bytes());
        }
        done
    }

    /// Number of bytes that may be written, and the limit if it is less than `len`.
    fn room(&self, len: u64) -> (u64, Option<DiskLimit>) {
        let of_file = self.file_bytes_max.saturating_sub(self.written);
        let (room, limit) = self.folder.claim(len.min(of_file));
        let of_file = (len > of_file).then_some(DiskLimit::File(self.file_bytes_max));
        (room, limit.or(of_file))
    }
}

/// Writes the piece, and counts the written bytes, because a full disk may accept only a part.
fn write_counted(mut file: &File, mut piece: &[u8]) -> (u64, std::io::Result<()>) {
    let mut written = 0;
    while !piece.is_empty() {
        match file.write(piece) {
            Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
            Ok(n) => {
                written += n as u64;
                piece = piece.get(n..).unwrap_or_default();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
