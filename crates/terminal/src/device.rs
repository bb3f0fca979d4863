//! The terminal that a person uses.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::termios::{Action, QueueSelector, tcflow, tcflush, tcgetpgrp, ttyname};

/// Interval at which a background process checks if it has come to the foreground.
const BACKGROUND_POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// A terminal with its own open file description, so that the non-blocking mode of this file does not affect other
/// processes at the terminal.
#[derive(Debug)]
pub struct TerminalDevice {
    file: File,
}

impl TerminalDevice {
    /// The terminal of this process; `None` if probably no person uses the terminal. A person probably uses the
    /// terminal if standard input or standard error is a terminal. If all streams are redirected, a program runs this
    /// process, even if the process still has a terminal.
    pub fn of_process() -> Option<Self> {
        let (stdin, stderr) = (io::stdin().is_terminal(), io::stderr().is_terminal());
        if !stdin && !stderr {
            return None;
        }
        let controlling = Self::open(Path::new("/dev/tty")).ok();
        controlling.or_else(|| {
            // If the process has no controlling terminal, as in some containers, the path of the terminal comes from
            // standard input.
            let name = (stdin && stderr).then(|| ttyname(io::stdin(), Vec::new()).ok())??;
            Self::open(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))).ok()
        })
    }

    /// Opens a terminal by its path.
    ///
    /// # Errors
    /// If the file cannot be opened, or is no terminal.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        if file.is_terminal() {
            Ok(Self { file })
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    /// Another file of the same terminal, for output.
    pub(super) fn to_file(&self) -> Option<File> {
        self.file.try_clone().ok()
    }

    /// True if this process is in the foreground of the terminal, where it may read typed text. In the background, a
    /// read would stop the process by a signal.
    pub(super) fn is_foreground(&self) -> bool {
        match tcgetpgrp(&self.file) {
            // This call uses nix, because rustix cannot represent the group 0 of a process whose group is outside its
            // PID namespace.
            Ok(foreground) => foreground.as_raw_pid() == nix::unistd::getpgrp().as_raw(),
            // The terminal is not the controlling terminal, so this process cannot be in its background.
            Err(_) => true,
        }
    }

    /// Waits until text is typed, or `wake` can be read. Returns true if text is typed. In the background, does not
    /// check for typed text, because the text may be for another process.
    pub(super) fn wait_typed(&self, wake: &UnixStream) -> bool {
        let is_foreground = self.is_foreground();
        let mut fds = [
            PollFd::new(wake, PollFlags::IN),
            PollFd::new(&self.file, PollFlags::IN),
        ];
        let ready = if is_foreground {
            poll(&mut fds, None)
        } else {
            poll(fds.split_at_mut(1).0, Some(&BACKGROUND_POLL))
        };
        is_foreground && ready.is_ok() && !fds[1].revents().is_empty()
    }

    /// Discards typed text that no process has read.
    pub(super) fn forget_typed(&self) {
        // Fails only if the terminal is gone, which the next read reports.
        let _gone = tcflush(&self.file, QueueSelector::IFlush);
    }

    /// Discards output that the terminal has not taken.
    pub(super) fn forget_written(&self) {
        // Fails only if the terminal is gone.
        let _gone = tcflush(&self.file, QueueSelector::OFlush);
        // The kernel does not wake a thread that waits in a write, and this thread keeps all others from writing. The
        // start of the flow wakes it.
        for action in [Action::OOff, Action::OOn] {
            let _gone = tcflow(&self.file, action);
        }
    }

    /// Writes as many bytes as the terminal accepts. Never waits.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    /// Reads the available bytes. Never waits.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }
}

impl AsFd for TerminalDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
