//! An output with one writer and several readers.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::bounded::BoundedOutput;
use super::bounded::snapshot::OutputPiece;

/// An output with one writer and several readers. The file is open until the [`OutputWriter`] is dropped.
///
/// A reader never waits for a write: no thread holds the lock of `output` while the thread reads or writes the file.
#[derive(Debug)]
pub(crate) struct SharedOutput {
    output: Mutex<BoundedOutput>,
    /// This lock is held while a piece is written, so that the pieces reach the file in their order.
    writing: Mutex<()>,
}

/// The writing end of an output. Dropping it closes the file, so that the file can be removed for other output.
#[derive(Debug)]
pub(crate) struct OutputWriter(Arc<SharedOutput>);

impl From<BoundedOutput> for OutputWriter {
    fn from(output: BoundedOutput) -> Self {
        Self(Arc::new(SharedOutput {
            output: Mutex::new(output),
            writing: Mutex::default(),
        }))
    }
}

impl OutputWriter {
    /// The reading end.
    pub(crate) fn reader(&self) -> Arc<SharedOutput> {
        Arc::clone(&self.0)
    }

    /// Creates the file now, if it does not exist.
    pub(crate) fn open_file(&self) {
        self.0.open_file();
    }

    pub(crate) fn push(&self, piece: &[u8]) {
        self.0.push(piece);
    }
}

impl Drop for OutputWriter {
    fn drop(&mut self) {
        self.0.output.lock().close_file();
    }
}

impl SharedOutput {
    /// Creates the file now, if it does not exist.
    fn open_file(&self) {
        let _in_order = self.writing.lock();
        let writing = self.output.lock().begin_file();
        if let Some(writing) = writing {
            let written = writing.write(&[]);
            self.output.lock().finish_writing(written);
        }
    }

    fn push(&self, piece: &[u8]) {
        let _in_order = self.writing.lock();
        let writing = self.output.lock().take(piece);
        if let Some(writing) = writing {
            let written = writing.write(piece);
            self.output.lock().finish_writing(written);
        }
    }

    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.output.lock().file().map(PathBuf::from)
    }

    pub(crate) fn text(&self) -> String {
        self.check_file();
        self.output.lock().text()
    }

    /// Place of the output for lists; `None` without a file.
    pub(crate) fn place(&self) -> Option<String> {
        self.check_file();
        self.output.lock().place()
    }

    /// Looks for a file that was removed after the end of the output.
    fn check_file(&self) {
        let file = self.output.lock().readable_file();
        if file.is_some_and(|file| file.is_removed()) {
            self.output.lock().file_was_removed();
        }
    }

    /// Returns at most `len_max` bytes from `offset`. Reads the file for bytes that memory no longer holds.
    pub(crate) fn piece(&self, offset: u64, len_max: usize) -> OutputPiece {
        let snapshot = self.output.lock().snapshot();
        snapshot.piece(offset, len_max)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::output::{OutputFolder, OutputLimits};

    /// More bytes than fit into a pipe.
    const MUCH: usize = 1024 * 1024;

    /// Simulates a hung disk with a pipe whose content is never read.
    #[test]
    fn reader_does_not_wait_for_a_hung_disk() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let folder = Arc::new(OutputFolder::new("/nowhere"));
        let output = BoundedOutput::new(OutputLimits::default(), folder);
        let output = output.writing_to(File::from(OwnedFd::from(writer)));
        let writer = OutputWriter::from(output);
        let output = writer.reader();
        let (looked, seen) = mpsc::channel();
        std::thread::scope(|threads| {
            let writing = threads.spawn(|| writer.push(&vec![b'x'; MUCH]));
            let looking = Arc::clone(&output);
            threads.spawn(move || {
                // Waits for the start of the write. The piece is in memory before the write.
                while looking.piece(0, 1).total == 0 {
                    std::thread::yield_now();
                }
                drop(looked.send((looking.text(), looking.piece(0, 3).bytes)));
            });
            let seen = seen.recv_timeout(Duration::from_secs(20));
            let still_writing = !writing.is_finished();
            // The disk works again.
            drop(reader);
            let (text, piece) = seen.expect("an answer while the disk hangs");
            assert!(still_writing);
            assert!(text.starts_with("xxx"));
            assert_eq!(piece, b"xxx");
        });
    }
}
