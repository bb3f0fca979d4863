//! `--output FILE`: the file takes the place of standard output, as with a redirection of the shell.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::CliError;

/// Time that a named pipe has to get a reader: one that was started together with this process.
const READER_WAIT_MAX: Duration = Duration::from_secs(1);
/// Interval between two looks for it.
const READER_LOOK: Duration = Duration::from_millis(10);

/// Makes this file standard output. Call it before anything uses that.
///
/// # Errors
/// If the file cannot be written. Nothing has been written then.
pub(crate) fn redirect_stdout(path: &Path) -> Result<(), CliError> {
    let file = open_with_reader(path).map_err(|error| {
        let problem = CliError::unwritable("--output", "the output", path, &error);
        match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => problem.hint("nobody reads this pipe: start its reader first"),
            _ => problem,
        }
    })?;
    rustix::stdio::dup2_stdout(&file)
        .map_err(|error| CliError::failure(format!("cannot redirect standard output: {error}")))
}

/// Opens a file. A named pipe without a reader gets some time, because opening it would wait for ever.
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
