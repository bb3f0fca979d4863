//! The thread that reads the terminal, and the mode that the terminal has meanwhile.
//!
//! Invariants:
//! 1. The terminal has its mode back when [`InputReader`] is dropped, also after a panic of a caller.
//! 2. Nothing is read while the terminal is not held: typed text then belongs to the shell. The check and the read are
//!    one step.
//! 3. Ctrl-C and Ctrl-Z stay signals, so that they work while this process is busy.
//! 4. Text typed before the terminal had this mode is taken as it was typed: an Enter stays one, although the terminal
//!    has turned it into an end of line.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use tokio::sync::mpsc;

use super::device::TerminalDevice;
use super::keys::{Key, KeyParser, SEQUENCE_MAX};
use super::question_text::RestHint;
use super::text::Environment;
use crate::supervise::until;

/// Bytes read at once: a screenful of a paste.
const READ_BYTES: usize = 4 * 1024;
/// Reads that may wait for the command: a fast paste is some of them, and text without room waits in the terminal.
const READS_MAX: usize = 16;
/// Pasted text comes between marks from then on, and is not taken for keys.
const PASTE_ON: &[u8] = b"\x1b[?2004h";
const PASTE_OFF: &[u8] = b"\x1b[?2004l";
/// The terminal says when its window is looked at, and when no more (xterm, "FocusIn/FocusOut").
const FOCUS_ON: &[u8] = b"\x1b[?1004h";
const FOCUS_OFF: &[u8] = b"\x1b[?1004l";
/// Tries to write such a mode where the terminal is busy: together far below what a person notices, and a
/// terminal that is blocked for longer shows nothing anyway.
const MODE_TRIES_MAX: usize = 20;
const MODE_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};
/// Ctrl-D.
const END_OF_INPUT: u8 = 0x04;

/// Mode of a terminal that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMode {
    /// Each key is read at once, and nothing is shown by the terminal itself.
    Keys {
        /// The terminal is asked to mark pasted text.
        marks_pastes: bool,
        /// The terminal is asked to say when its window is looked at.
        tells_focus: bool,
    },
    /// The terminal keeps its mode: it shows what is typed and gives whole lines. For one without a cursor.
    Lines,
}

impl InputMode {
    /// Place of the number of rows that a question has left.
    pub(crate) fn rest_hint(self) -> RestHint {
        match self {
            Self::Keys { .. } => RestHint::AboveInput,
            Self::Lines => RestHint::InText,
        }
    }

    /// The mode of a terminal at which only questions are answered.
    pub(super) fn of_question(environment: &Environment) -> Self {
        if environment.has_cursor() {
            Self::Keys {
                marks_pastes: true,
                tells_focus: false,
            }
        } else {
            Self::Lines
        }
    }
}

/// Holder of a terminal. Nothing is read until [`InputReader::take`].
#[derive(Debug)]
#[must_use = "dropping it gives the terminal its mode back"]
pub(crate) struct InputReader {
    shared: Arc<SharedReader>,
    reads: mpsc::Receiver<TerminalRead>,
    /// Number of the last hold: reads of earlier ones are dropped.
    hold_number: u64,
    parser: KeyParser,
    /// Time until which more may come of a sequence that has begun.
    sequence_until: Option<Instant>,
    mode: InputMode,
    before: Termios,
    waker: UnixStream,
}

/// Bytes read at once.
#[derive(Debug)]
struct TerminalRead {
    hold_number: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct SharedReader {
    device: TerminalDevice,
    wake: UnixStream,
    state: Mutex<ReaderState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ReaderState {
    hold: TerminalHold,
    hold_number: u64,
    /// Bytes that are still to be read of the text typed before the terminal had its mode.
    typed_ahead: usize,
}

/// Owner of typed text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum TerminalHold {
    /// The shell.
    #[default]
    Released,
    /// The shell, until this process is in the foreground again.
    Suspended,
    /// This process.
    Taken,
    /// The shell, for good: the reader is gone.
    Abandoned,
}

impl InputReader {
    /// Starts the thread that reads; it is never joined.
    ///
    /// # Errors
    /// If the terminal is gone, or there are no descriptors or threads left.
    pub(crate) fn new(device: TerminalDevice, mode: InputMode) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let before = tcgetattr(&device)?;
        let shared = Arc::new(SharedReader {
            device,
            wake,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (tx, reads) = mpsc::channel(READS_MAX);
        let reader = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("read-terminal".to_owned());
        // Not in a scope on purpose: a person may never press a key, and no exit waits for that.
        #[expect(clippy::disallowed_methods, reason = "no exit waits for a key")]
        thread.spawn(move || reader.run(mode, &tx)).map(drop)?;
        Ok(Self {
            shared,
            reads,
            hold_number: 0,
            parser: KeyParser::default(),
            sequence_until: None,
            mode,
            before,
            waker,
        })
    }

    /// The terminal.
    pub(super) fn device(&self) -> &TerminalDevice {
        &self.shared.device
    }

    /// Takes the terminal, with the text that was typed before.
    pub(crate) fn take(&mut self) {
        let mut state = self.shared.state.lock();
        if state.hold != TerminalHold::Taken {
            self.hold(&mut state);
        }
    }

    /// Takes the terminal, without the text that was typed before.
    pub(super) fn take_afresh(&mut self) {
        let mut state = self.shared.state.lock();
        self.hold(&mut state);
        self.shared.device.forget_typed();
        state.typed_ahead = 0;
        state.hold_number += 1;
        self.hold_number = state.hold_number;
        self.parser = KeyParser::default();
        self.sequence_until = None;
    }

    /// Gives the terminal back, until it is taken again.
    pub(super) fn release(&self) {
        self.give_back(TerminalHold::Released);
    }

    /// Gives the terminal to the shell while this process is suspended.
    pub(crate) fn suspend(&self) {
        if self.shared.state.lock().hold == TerminalHold::Taken {
            self.give_back(TerminalHold::Suspended);
        }
    }

    /// Takes the terminal again that was held when this process was suspended.
    pub(crate) fn resume(&self) {
        let mut state = self.shared.state.lock();
        if state.hold != TerminalHold::Released {
            self.hold(&mut state);
        }
    }

    /// Sets the mode. In the background the terminal stays the shell's, until [`InputReader::resume`].
    fn hold(&self, state: &mut ReaderState) {
        state.hold = TerminalHold::Suspended;
        if !self.shared.device.is_foreground() {
            return;
        }
        state.hold = TerminalHold::Taken;
        if self.mode != InputMode::Lines {
            self.set(&keys_mode(&self.before));
            // Without the mode only whole lines would be counted.
            let ahead = ioctl_fionread(&self.shared.device).unwrap_or_default();
            state.typed_ahead = usize::try_from(ahead).unwrap_or_default();
            self.report(PASTE_ON, FOCUS_ON);
        }
        self.shared.changed.notify_one();
    }

    fn give_back(&self, hold: TerminalHold) {
        let before = std::mem::replace(&mut self.shared.state.lock().hold, hold);
        self.shared.changed.notify_one();
        // Full is as good as woken.
        let _full = (&self.waker).write(&[0]);
        let was_set = before == TerminalHold::Taken && self.mode != InputMode::Lines;
        if was_set && self.shared.device.is_foreground() {
            self.set(&self.before);
            self.report(PASTE_OFF, FOCUS_OFF);
        }
    }

    fn set(&self, mode: &Termios) {
        // A terminal that is gone has no mode.
        let _gone = tcsetattr(&self.shared.device, OptionalActions::Now, mode);
    }

    /// Writes what the terminal is to report. It never blocks for long: without room it is left out.
    fn report(&self, paste: &[u8], focus: &[u8]) {
        let InputMode::Keys {
            marks_pastes,
            tells_focus,
        } = self.mode
        else {
            return;
        };
        if tells_focus {
            self.write(focus);
        }
        if marks_pastes {
            self.write(paste);
        }
    }

    fn write(&self, mode: &[u8]) {
        // While the screen is being written to, the terminal has no room for anybody else.
        for _ in 0..MODE_TRIES_MAX {
            let Err(error) = self.shared.device.write(mode) else {
                return;
            };
            if error.kind() != io::ErrorKind::WouldBlock {
                return;
            }
            let mut pause: [PollFd<'_>; 0] = [];
            let _a_while = poll(&mut pause, Some(&MODE_PAUSE));
        }
    }

    /// The next keys; `None` when the terminal is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<Key>> {
        loop {
            let keys = tokio::select! {
                biased;
                read = self.reads.recv() => {
                    let read = read?;
                    if read.hold_number != self.hold_number {
                        continue;
                    }
                    let keys = self.parser.read(&read.bytes);
                    let waits = self.parser.is_in_sequence();
                    self.sequence_until = waits.then(|| Instant::now() + SEQUENCE_MAX);
                    keys
                }
                () = until(self.sequence_until) => {
                    self.sequence_until = None;
                    self.parser.end_sequence().into_iter().collect()
                }
            };
            if !keys.is_empty() {
                return Some(keys);
            }
        }
    }
}

impl Drop for InputReader {
    fn drop(&mut self) {
        self.give_back(TerminalHold::Abandoned);
    }
}

/// The mode in which each key is read at once.
fn keys_mode(before: &Termios) -> Termios {
    let mut mode = before.clone();
    mode.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
    // A signal would throw away what was typed before it.
    mode.local_modes |= LocalModes::NOFLSH;
    // Enter and Ctrl-J are two keys.
    mode.input_modes -= InputModes::ICRNL;
    mode.special_codes[SpecialCodeIndex::VMIN] = 1;
    mode.special_codes[SpecialCodeIndex::VTIME] = 0;
    mode
}

impl ReaderState {
    /// Restores the keys that the terminal has turned into ends of line and of input.
    fn take_ahead(&mut self, bytes: &mut [u8]) {
        for byte in bytes.iter_mut().take(self.typed_ahead) {
            *byte = match *byte {
                b'\n' => b'\r',
                0 => END_OF_INPUT,
                other => other,
            };
        }
        self.typed_ahead = self.typed_ahead.saturating_sub(bytes.len());
    }
}

impl SharedReader {
    fn run(&self, mode: InputMode, to: &mpsc::Sender<TerminalRead>) {
        loop {
            {
                let mut state = self.state.lock();
                while state.hold != TerminalHold::Taken {
                    if state.hold == TerminalHold::Abandoned {
                        return;
                    }
                    self.changed.wait(&mut state);
                }
            }
            let typed = self.device.wait_typed(&self.wake);
            while matches!((&self.wake).read(&mut [0; 16]), Ok(1..)) {}
            let read = {
                let mut state = self.state.lock();
                // It may have been sent to the background since.
                let is_taken = state.hold == TerminalHold::Taken && self.device.is_foreground();
                if !typed || !is_taken {
                    continue;
                }
                let hold_number = state.hold_number;
                let bytes = self.read(mode, &mut state);
                bytes.map(|bytes| TerminalRead { hold_number, bytes })
            };
            match read {
                Some(read) if read.bytes.is_empty() => {}
                Some(read) => {
                    if to.blocking_send(read).is_err() {
                        return;
                    }
                }
                // Gone: the channel closes with this thread.
                None => return,
            }
        }
    }

    /// Reads the bytes that are there; `None` at the end.
    fn read(&self, mode: InputMode, state: &mut ReaderState) -> Option<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES];
        match self.device.read(&mut bytes) {
            Ok(0) if mode == InputMode::Lines => {
                // Ctrl-D, or a terminal that is gone: that gives no end but one after the other.
                state.hold = TerminalHold::Released;
                Some(vec![END_OF_INPUT])
            }
            Ok(0) => None,
            Ok(count) => {
                bytes.truncate(count);
                state.take_ahead(&mut bytes);
                Some(bytes)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Some(Vec::new()),
                _ => None,
            },
        }
    }
}
