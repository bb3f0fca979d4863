//! Writing to a descriptor that may be slow, closed, full or non-blocking.

use std::fs::File;
use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags, poll};

/// Writes all bytes, and waits as long as necessary.
pub(super) fn write_all(file: &File, mut bytes: &[u8]) -> io::Result<()> {
    let mut file = file;
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            // The parent process may have made this file non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_writable(file)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_writable(file: &File) -> io::Result<()> {
    let mut fds = [PollFd::new(file, PollFlags::OUT)];
    match poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The columns and rows of a terminal; `None` if the terminal does not report them.
pub(super) fn size(file: &File) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(file).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}
