//! Write operations on the output file. They are separate from the output itself, so that no lock is held during a
//! write operation.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use crate::output::OutputFolder;

#[derive(Debug)]
pub(in crate::output) struct SpillWrite {
    pub(super) target: SpillTarget,
    /// Number of bytes that the file may still receive.
    pub(super) room: u64,
}

#[derive(Debug)]
pub(super) enum SpillTarget {
    /// A new file, which first receives the output that came before the piece.
    New {
        folder: Arc<OutputFolder>,
        before: Vec<u8>,
    },
    Open(Arc<File>),
}

#[derive(Debug, Default)]
pub(in crate::output) struct SpillWritten {
    pub(super) created: Option<(Arc<File>, PathBuf)>,
    pub(super) written: u64,
    /// True if the file had no room for a part of the piece.
    pub(super) is_full: bool,
    pub(super) error: Option<String>,
}

impl SpillWrite {
    /// Writes the piece. May wait for a slow disk.
    pub(in crate::output) fn write(self, piece: &[u8]) -> SpillWritten {
        let mut done = SpillWritten::default();
        let (file, before) = match self.target {
            SpillTarget::Open(file) => (file, Vec::new()),
            SpillTarget::New { folder, before } => match folder.create() {
                Ok((file, path)) => {
                    let file = Arc::new(file);
                    done.created = Some((Arc::clone(&file), path));
                    (file, before)
                }
                Err(error) => {
                    done.error = Some(error.to_string());
                    return done;
                }
            },
        };
        for part in [&before, piece] {
            let room = usize::try_from(self.room - done.written).unwrap_or(usize::MAX);
            let fits = part.get(..room).unwrap_or(part);
            let (len, written) = write_counted(&file, fits);
            done.written += len;
            if let Err(error) = written {
                done.error = Some(error.to_string());
                return done;
            }
            if fits.len() < part.len() {
                done.is_full = true;
                return done;
            }
        }
        done
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
