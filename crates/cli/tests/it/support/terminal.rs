//! A terminal, with the test as its user.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};

use super::chat_user::CTRL_D;
use super::wait::within;
use super::{Ended, FACT_MAX, Running};

/// The text of a screen without the marks of Allstop's own rows. Most tests read only the words.
pub(crate) fn without_marks(screen: &str) -> String {
    let rows = screen.lines().map(|row| match row.strip_prefix('▎') {
        Some(own) => own.strip_prefix(' ').unwrap_or(own),
        None => row,
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// A text without the sequences that set the title of the window.
fn without_titles(text: &str) -> String {
    let mut pieces = text.split("\x1b]2;");
    let mut rest = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        rest += piece.split_once("\x1b\\").map_or("", |(_, after)| after);
    }
    rest
}

/// A terminal, with the test as its user.
#[derive(Debug)]
pub(crate) struct Terminal {
    keyboard: File,
    line: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
}

/// Time that a chat has to end after each Ctrl-D, and the maximum number of presses. While work runs, the first press only
/// lists this work. The commit of a turn whose answer is on the screen is such work.
const LEAVE_TIME: Duration = Duration::from_secs(1);
const LEAVE_PRESSES_MAX: usize = 10;

/// Columns of a terminal that does not report its size.
const COLUMNS: u16 = 80;

impl Terminal {
    /// A terminal with a thread that reads everything that is written to it.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test reads a terminal without a runtime"
    )]
    pub(crate) fn new() -> Self {
        let terminal = Self::unread();
        let mut shown = terminal.keyboard.try_clone().expect("it can be duplicated");
        let to = Arc::clone(&terminal.screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails when no process has the terminal open any more.
            while let Ok(len @ 1..) = shown.read(&mut buffer) {
                let mut screen = to.lock().unwrap_or_else(PoisonError::into_inner);
                screen.extend_from_slice(&buffer[..len]);
            }
        });
        terminal
    }

    /// A terminal whose output is never read. So writes to this terminal block, as with a hanging connection or after
    /// Ctrl-S.
    pub(crate) fn unread() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).expect("it can be used");
        unlockpt(&person).expect("it can be opened");
        let name = ptsname(&person, Vec::new()).expect("it has a name");
        let line = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other end");
        Self {
            keyboard: person.into(),
            line,
            screen: Arc::default(),
        }
    }

    /// Sets the numbers of columns and rows.
    pub(crate) fn resize(&self, (columns, rows): (u16, u16)) {
        let size = Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.line, size).expect("it has a size");
    }

    pub(crate) fn columns(&self) -> u16 {
        let size = tcgetwinsize(&self.line).expect("it has a size");
        if size.ws_col > 0 {
            size.ws_col
        } else {
            COLUMNS
        }
    }

    /// The end of the terminal that the command uses.
    pub(crate) fn line(&self) -> &OwnedFd {
        &self.line
    }

    /// Reads the output that waits in a terminal that was never read. Call this after the end of its processes.
    pub(crate) fn pending(&self) -> String {
        let mut pending = Vec::new();
        let mut buffer = [0; 4096];
        // The kernel moves the bytes to this end in pieces.
        let quiet = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let has_more = || {
            let mut fds = [PollFd::new(&self.keyboard, PollFlags::IN)];
            poll(&mut fds, Some(&quiet)) == Ok(1)
        };
        while has_more()
            && let Ok(len @ 1..) = (&self.keyboard).read(&mut buffer)
        {
            pending.extend_from_slice(&buffer[..len]);
        }
        String::from_utf8_lossy(&pending).into_owned()
    }

    /// Types keys.
    pub(crate) fn type_keys(&self, keys: &str) {
        (&self.keyboard)
            .write_all(keys.as_bytes())
            .expect("the terminal is open");
    }

    /// Everything that was written to the terminal so far, including control characters, but without the marks of
    /// Allstop's own rows and of whole updates. Most tests read only the words.
    pub(crate) fn shown(&self) -> String {
        let ours = [
            "\x1b[94m▎\x1b[0m ",
            "\x1b[94m▎\x1b[0m",
            "▎ ",
            "▎",
            "\x1b[?2026h",
            "\x1b[?2026l",
            "\x1b[22;2t",
            "\x1b[23;2t",
            "\x1b]133;A\x1b\\",
            "\x1b]133;C\x1b\\",
            "\x1b]133;D\x1b\\",
        ];
        let text = without_titles(&self.written());
        ours.iter().fold(text, |text, ours| text.replace(ours, ""))
    }

    /// Everything that was written to the terminal so far, byte by byte.
    pub(crate) fn written(&self) -> String {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&screen).into_owned()
    }

    /// Everything that finished processes have written to the terminal.
    #[track_caller]
    pub(crate) fn all_shown(&self) -> String {
        const END: &str = "-- end of the show --";
        let copy = self.line.try_clone().expect("it can be duplicated");
        File::from(copy)
            .write_all(END.as_bytes())
            .expect("the terminal is open");
        self.wait(END);
        self.shown().replace(END, "")
    }

    /// Waits until this text was shown.
    #[track_caller]
    pub(crate) fn wait(&self, text: &str) {
        self.wait_times(text, 1);
    }

    /// Waits until this text was shown this many times.
    #[track_caller]
    pub(crate) fn wait_times(&self, text: &str, times: usize) {
        let shown = within(FACT_MAX, || {
            (self.shown().matches(text).count() >= times).then_some(())
        });
        assert!(
            shown.is_some(),
            "no {text:?} on the terminal: {:?}",
            self.shown()
        );
    }
    /// Presses Ctrl-D until the chat has ended.
    #[track_caller]
    pub(crate) fn leaves_chat(&self, chat: Running) -> Ended {
        for _ in 0..LEAVE_PRESSES_MAX {
            self.type_keys(CTRL_D);
            if chat.ends_within(LEAVE_TIME) {
                break;
            }
        }
        chat.end(FACT_MAX)
    }
}
