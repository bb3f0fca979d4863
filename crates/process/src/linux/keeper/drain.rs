//! Copies the output of a detached tree (processes that outlive their owner) from the pipe into a file. The owner,
//! which read from the pipe before, has closed its end.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;

use crate::keeper_program::DETACHED_OUTPUT_BYTES_MAX;

/// Default capacity of a pipe. One read of this size empties the pipe.
const CHUNK_BYTES: usize = 64 * 1024;

/// Maximum number of attempts to lock the file. Another process has the file locked only while it replaces the file,
/// and this takes microseconds.
const LOCK_TRIES_MAX: u32 = 100;

/// Copies bytes from the pipe to the file, up to the maximum size of the file.
pub(super) struct OutputDrain {
    pipe: File,
    file: File,
    chunk: Box<[u8]>,
    /// Bytes that may still be written. 0 after a failed write.
    left: u64,
}

impl OutputDrain {
    /// Opens the file for the output. Also opens the read end of the pipe, whose write end is `output`.
    pub(super) fn open(output: &OwnedFd, path: &Path) -> io::Result<Self> {
        let file = open_locked(path)?;
        let non_blocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(non_blocking)
            .open(format!("/proc/self/fd/{}", output.as_raw_fd()))?;
        Ok(Self {
            pipe,
            file,
            chunk: vec![0; CHUNK_BYTES].into_boxed_slice(),
            left: DETACHED_OUTPUT_BYTES_MAX,
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Copies the available bytes, but at most the capacity of one pipe. False if no bytes were available.
    pub(super) fn step(&mut self) -> bool {
        let Ok(len @ 1..) = self.pipe.read(&mut self.chunk) else {
            return false;
        };
        let keep = usize::try_from(self.left).unwrap_or(usize::MAX).min(len);
        self.left -= keep as u64;
        let part = self.chunk.get(..keep).unwrap_or_default();
        if self.file.write_all(part).is_err() {
            // A full disk must not block the command, so later output is dropped.
            self.left = 0;
        } else if keep > 0 && self.left == 0 {
            let _note = self.file.write_all(b"\n[further output is not kept]\n");
        }
        true
    }

    /// Copies the remaining bytes, after the last process that could write to the pipe has ended.
    pub(super) fn finish(&mut self) {
        while self.step() {}
    }
}

/// Opens the file with a shared lock. Until the keeper ends, no process removes the file to free space for other
/// output.
fn open_locked(path: &Path) -> io::Result<File> {
    for _ in 0..LOCK_TRIES_MAX {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(path)?;
        match file.try_lock_shared() {
            Ok(()) if is_at(&file, path)? => return Ok(file),
            // The next attempt opens the note that replaces the file.
            Ok(()) | Err(TryLockError::WouldBlock) => thread::yield_now(),
            // On a file system without locks, no file is removed.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// True if the path refers to the open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    let at_path = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        metadata => metadata?,
    };
    Ok((open.dev(), open.ino()) == (at_path.dev(), at_path.ino()))
}
