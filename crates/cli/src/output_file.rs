//! `--output FILE`: the file replaces standard output, as with a redirection of the shell.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::CliError;

/// Time to wait for a reader of a named pipe. The reader may have been started at the same time as this process.
const READER_WAIT_MAX: Duration = Duration::from_secs(1);
/// Interval between two attempts to open the pipe.
const READER_LOOK: Duration = Duration::from_millis(10);

/// Makes this file standard output. Call this function before any output.
///
/// # Errors
/// If the file cannot be opened for writing. Nothing is written in that case.
pub(crate) fn redirect_stdout(path: &Path) -> Result<(), CliError> {
    let file = open_with_reader(path).map_err(|error| {
        let problem = CliError::unwritable("--output", "the output", path, &error);
        match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => problem.hint("the pipe has no reader: start its reader first"),
            _ => problem,
        }
    })?;
    rustix::stdio::dup2_stdout(&file)
        .map_err(|error| CliError::failure(format!("cannot redirect standard output: {error}")))
}

/// Opens a file. If the file is a named pipe without a reader, retries for a limited time: a blocking open could wait
/// for ever.
fn open_with_reader(path: &Path) -> io::Result<File> {
    let until = Instant::now() + READER_WAIT_MAX;
    loop {
        let opened = open(path);
        let has_no_reader = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::NXIO);
        if !opened.as_ref().is_err_and(has_no_reader) || Instant::now() >= until {
            return opened;
        }
        std::thread::park_timeout(READER_LOOK);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let no_wait = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(no_wait)
        .open(path)
}
