//! The terminal while it is typed into: its mode, and the thread that reads it.
//!
//! Invariants:
//! 1. The terminal has its mode back when [`Input`] is dropped, whatever came before.
//! 2. Nothing is read afterwards: what is typed then is the shell's. The check and the read are one step.
//! 3. Ctrl-C and Ctrl-Z stay signals, so that they work whatever this process is busy with.
//! 4. What was typed before the terminal had this mode is taken as it was typed: an Enter is one, although the terminal has
//!    made an end of line of it.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use tokio::sync::mpsc;

use crate::prompt::Tty;

/// Bytes read at once: a screenful of a paste.
const READ_BYTES: usize = 4 * 1024;
/// Reads that may wait for the chat: a fast paste is some of them, and what has no room waits in the terminal.
const READS_MAX: usize = 16;
/// Pasted text comes between marks from then on, and is not taken for keys.
const PASTE_ON: &[u8] = b"\x1b[?2004h";
const PASTE_OFF: &[u8] = b"\x1b[?2004l";
/// Tries to write the mode of pasting where the terminal is busy: together far below what a person notices, and a
/// terminal that is blocked for longer shows nothing anyway.
const PASTE_TRIES_MAX: usize = 20;
const PASTE_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// The terminal, in the mode in which each key is heard.
#[derive(Debug)]
#[must_use = "dropping it gives the terminal its mode back"]
pub(super) struct Input {
    shared: Arc<Shared>,
    bytes: mpsc::Receiver<Vec<u8>>,
    before: Termios,
    has_cursor: bool,
    waker: UnixStream,
}

#[derive(Debug)]
struct Shared {
    tty: Tty,
    wake: UnixStream,
    reading: Mutex<Reading>,
}

/// State of reading.
#[derive(Debug, Default)]
struct Reading {
    /// Nothing is read any more.
    over: bool,
    /// The terminal has its own mode meanwhile: what is typed is the shell's.
    paused: bool,
    /// Bytes that are still to be read of what was typed before the terminal had its mode.
    typed_ahead: usize,
}

impl Input {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it is gone, or there are no descriptors or threads left.
    pub(super) fn open(tty: Tty, has_cursor: bool) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let before = tcgetattr(&tty)?;
        let shared = Arc::new(Shared {
            tty,
            wake,
            reading: Mutex::default(),
        });
        let (tx, bytes) = mpsc::channel(READS_MAX);
        let input = Self {
            shared,
            bytes,
            before,
            has_cursor,
            waker,
        };
        // Before anything is read, so that what was typed ahead is known.
        input.take_mode();
        let reader = Arc::clone(&input.shared);
        let thread = std::thread::Builder::new().name("read-keys".to_owned());
        // Not in a scope on purpose: whoever sits there may never press a key, and no exit waits for that.
        thread.spawn(move || reader.run(&tx)).map(drop)?;
        Ok(input)
    }

    /// Sets the mode, again after the shell has had the terminal.
    pub(super) fn take_mode(&self) {
        let mut mode = self.before.clone();
        mode.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
        // A signal would throw away what was typed before it.
        mode.local_modes |= LocalModes::NOFLSH;
        // Enter and Ctrl-J are two keys.
        mode.input_modes -= InputModes::ICRNL;
        mode.special_codes[SpecialCodeIndex::VMIN] = 1;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        if self.shared.tty.is_foreground() {
            let mut reading = self.shared.reading.lock();
            reading.paused = false;
            self.set(&mode);
            // Without the mode only whole lines would be counted.
            let ahead = ioctl_fionread(&self.shared.tty).unwrap_or_default();
            reading.typed_ahead = usize::try_from(ahead).unwrap_or_default();
            self.mark_pastes(PASTE_ON);
        }
    }

    /// Gives the terminal its own mode back, until [`Input::take_mode`].
    pub(super) fn give_back(&self) {
        self.shared.reading.lock().paused = true;
        self.set(&self.before);
        self.mark_pastes(PASTE_OFF);
    }

    fn set(&self, mode: &Termios) {
        // A terminal that is gone has no mode.
        let _gone = tcsetattr(&self.shared.tty, OptionalActions::Now, mode);
    }

    /// Writes the mode of pasting. It never blocks for long: what has no room after that is left out.
    fn mark_pastes(&self, paste: &[u8]) {
        if !self.has_cursor {
            return;
        }
        // While the screen is being written to, the terminal has no room for anybody else.
        for _ in 0..PASTE_TRIES_MAX {
            let Err(error) = self.shared.tty.write(paste) else {
                return;
            };
            if error.kind() != io::ErrorKind::WouldBlock {
                return;
            }
            let mut pause = [PollFd::new(&self.shared.wake, PollFlags::IN)];
            let _a_while = poll(&mut pause, Some(&PASTE_PAUSE));
        }
    }

    /// The next bytes; `None` when the terminal is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.bytes.recv().await
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.shared.reading.lock().over = true;
        // Full is as good as woken.
        let _full = (&self.waker).write(&[0]);
        if self.shared.tty.is_foreground() {
            self.give_back();
        }
    }
}

impl Reading {
    /// Gives the keys back that the terminal has made ends of line and of input of.
    fn take_ahead(&mut self, bytes: &mut [u8]) {
        for byte in bytes.iter_mut().take(self.typed_ahead) {
            *byte = match *byte {
                b'\n' => b'\r',
                0 => 0x04,
                other => other,
            };
        }
        self.typed_ahead = self.typed_ahead.saturating_sub(bytes.len());
    }
}

impl Shared {
    fn run(&self, to: &mpsc::Sender<Vec<u8>>) {
        loop {
            let typed = self.tty.wait_typed(&self.wake);
            let read = {
                let mut reading = self.reading.lock();
                if reading.over {
                    return;
                }
                if !typed || reading.paused || !self.tty.is_foreground() {
                    continue;
                }
                let mut read = self.read();
                if let Some(bytes) = &mut read {
                    reading.take_ahead(bytes);
                }
                read
            };
            match read {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => {
                    if to.blocking_send(bytes).is_err() {
                        return;
                    }
                }
                // Gone: the channel closes with this thread.
                None => return,
            }
        }
    }

    /// Reads the bytes that are there; `None` at the end.
    fn read(&self) -> Option<Vec<u8>> {
        let mut bytes = [0; READ_BYTES];
        match self.tty.read(&mut bytes) {
            Ok(0) => None,
            Ok(count) => Some(bytes.get(..count).unwrap_or_default().to_vec()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Some(Vec::new()),
                _ => None,
            },
        }
    }
}
