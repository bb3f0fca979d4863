//! A terminal for tests: shows written output as a screen, and simulates typing.

#![allow(clippy::unwrap_used, reason = "a test ends with its terminal")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{FlushResult, OutputStreams};

/// Long enough for a machine under load; a passing test never reaches this limit.
const LONG: Duration = Duration::from_secs(20);

/// A pseudo-terminal, and its screen.
pub struct TestScreen {
    master: File,
    /// Kept open, so that the terminal does not hang up between two users.
    slave: File,
    /// Path of the terminal.
    pub path: PathBuf,
    parser: vt100::Parser,
    raw: Vec<u8>,
}

impl std::fmt::Debug for TestScreen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestScreen")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl TestScreen {
    /// A terminal of this size.
    pub fn open(rows: u16, columns: u16) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let path = PathBuf::from(path);
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let slave = open(&path);
        tcsetwinsize(&slave, size).unwrap();
        Self {
            master: master.into(),
            slave,
            path,
            parser: vt100::Parser::new(rows, columns, 0),
            raw: Vec::new(),
        }
    }

    /// Opens the terminal for a process.
    pub fn terminal(&self) -> File {
        open(&self.path)
    }

    /// Types keys.
    pub fn type_keys(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    /// Typed text that no process has read, and that a shell would receive.
    pub fn unread(&self) -> String {
        let mut fds = [PollFd::new(&self.slave, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec::default())).unwrap() == 0 {
            return String::new();
        }
        let mut bytes = [0; 256];
        let count = (&self.slave).read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    /// Reads written output. False if none arrives within the limit.
    fn take(&mut self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap();
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        if poll(&mut fds, Some(&limit)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4_096];
        let count = self.master.read(&mut bytes).unwrap();
        self.raw.extend_from_slice(&bytes[..count]);
        self.parser.process(&bytes[..count]);
        true
    }

    /// Current text on the screen.
    pub fn contents(&mut self) -> String {
        while self.take(Duration::ZERO) {}
        self.parser.screen().contents()
    }

    /// All output so far, with its control sequences.
    pub fn written(&mut self) -> String {
        while self.take(Duration::ZERO) {}
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    /// Waits until the screen contains a text.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(|screen| screen.contains(text));
    }

    /// Waits until the screen meets a condition.
    pub fn wait_until(&mut self, is_there: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + LONG;
        while !is_there(&self.contents()) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                self.take(left),
                "not in time:\n{}",
                self.parser.screen().contents()
            );
        }
    }

    /// Like [`wait_until`](Self::wait_until), but lets other futures run.
    pub async fn until(&mut self, is_there: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + LONG;
        while !is_there(&self.contents()) {
            assert!(
                Instant::now() < deadline,
                "not in time:\n{}",
                self.contents()
            );
            tokio::task::yield_now().await;
        }
    }

    /// Like [`wait_for`](Self::wait_for), but lets other futures run.
    pub async fn shows(&mut self, text: &str) {
        self.until(|screen| screen.contains(text)).await;
    }

    /// Reads until standard output is flushed. Returns all output so far.
    pub fn read_until_flushed(&mut self, output: &OutputStreams) -> String {
        let deadline = Instant::now() + LONG;
        while output.flush(Duration::from_millis(1)).stdout != FlushResult::Flushed {
            self.take(Duration::from_millis(10));
            assert!(Instant::now() < deadline, "it never ends");
        }
        while self.take(Duration::ZERO) {}
        String::from_utf8_lossy(&self.raw).replace("\r\n", "\n")
    }
}

fn open(path: &PathBuf) -> File {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).unwrap().into()
}
