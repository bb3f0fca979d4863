//! The thread that reads the terminal, and the terminal's mode during that time.
//!
//! Invariants:
//! 1. The terminal has its former mode again after [`InputReader`] is dropped, and after a panic
//!    ([`restore_held_terminal`]).
//! 2. The thread reads only while this process holds the terminal. Text typed at other times belongs to the shell. The
//!    check for this and the read are one step under a lock.
//! 3. Ctrl-C and Ctrl-Z stay signals, so they work while this process is busy.
//! 4. Text that was typed before the terminal had this mode is read as the original keys: an Enter is read as Enter,
//!    although the terminal has turned it into a line end.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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

/// Maximum bytes of one read: one screen of a paste.
const READ_BYTES: usize = 4 * 1024;
/// Maximum number of reads that wait until [`InputReader::next`] takes them. A fast paste takes several reads, and text
/// without room waits in the terminal.
const READS_MAX: usize = 16;
/// After this sequence, the terminal marks pasted text, so that the text does not count as keys.
const PASTE_ON: &[u8] = b"\x1b[?2004h";
const PASTE_OFF: &[u8] = b"\x1b[?2004l";
/// After this sequence, the terminal reports when its window gains and loses the focus (xterm, "FocusIn/FocusOut").
const FOCUS_ON: &[u8] = b"\x1b[?1004h";
const FOCUS_OFF: &[u8] = b"\x1b[?1004l";
/// Maximum number of attempts to write such a sequence to a busy terminal. All attempts together take far less time
/// than a person notices. A terminal that is blocked for longer shows nothing anyway.
const MODE_TRIES_MAX: usize = 20;
/// Maximum number of times that the output of a terminal is discarded at the end, so that the end stays fast.
const DISCARDS_MAX: usize = 5;
const MODE_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};
/// Ctrl-D.
const END_OF_INPUT: u8 = 0x04;

/// The terminal that was held last. A panic that ends the process drops no reader, so the panic hook finds the terminal
/// here.
static HELD: Mutex<Weak<SharedReader>> = Mutex::new(Weak::new());

/// Restores the mode of a held terminal, for a process that ends immediately afterwards, such as after a panic.
pub fn restore_held_terminal() {
    // The lock is only tried, because the panicking thread may hold it.
    let held = HELD.try_lock().and_then(|held| held.upgrade());
    if let Some(shared) = held {
        shared.restore_if_held();
    }
}

/// Mode of a held terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputMode {
    /// The process receives each key immediately, and the terminal itself shows no typed text.
    Keys {
        /// True if the terminal is asked to mark pasted text.
        marks_pastes: bool,
        /// True if the terminal is asked to report its focus.
        reports_focus: bool,
    },
    /// The terminal keeps its mode: it shows typed text and returns whole lines. For a terminal without a cursor.
    Lines,
}

impl InputMode {
    /// Place where the number of a question's rows that are not shown yet is displayed.
    pub fn rest_hint(self) -> RestHint {
        match self {
            Self::Keys { .. } => RestHint::AboveInput,
            Self::Lines => RestHint::InText,
        }
    }

    /// The mode of a terminal that is used only to answer questions.
    pub(super) fn of_question(environment: &Environment) -> Self {
        if environment.has_cursor() {
            Self::Keys {
                marks_pastes: true,
                reports_focus: false,
            }
        } else {
            Self::Lines
        }
    }
}

/// Reads the keys of a terminal while this process holds the terminal. Reading begins at [`InputReader::take`].
#[derive(Debug)]
#[must_use = "dropping it gives the terminal its mode back"]
pub struct InputReader {
    shared: Arc<SharedReader>,
    reads: mpsc::Receiver<TerminalRead>,
    /// Number of times that [`InputReader::take_afresh`] has discarded text. Reads with a smaller number are dropped.
    hold_number: u64,
    parser: KeyParser,
    /// Time limit for the rest of a sequence that has begun.
    sequence_until: Option<Instant>,
    waker: UnixStream,
    /// Keys that were given back, to be read before all others.
    unread: Vec<Key>,
}

/// Bytes of one read.
#[derive(Debug)]
struct TerminalRead {
    hold_number: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct SharedReader {
    device: TerminalDevice,
    /// Mode of the terminal before it was held.
    before: Termios,
    /// Mode while the terminal is held.
    mode: InputMode,
    /// True if the terminal is asked to report its focus, even if `mode` does not request that.
    reports_focus: AtomicBool,
    wake: UnixStream,
    state: Mutex<ReaderState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ReaderState {
    hold: TerminalHold,
    hold_number: u64,
    /// Number of unread bytes of the text that was typed before the terminal was in the mode [`InputMode::Keys`].
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
    /// The shell, permanently: the reader was dropped.
    Abandoned,
}

impl InputReader {
    /// Starts the reading thread. The thread is never joined.
    ///
    /// # Errors
    /// If the terminal is gone, or there are no descriptors or threads left.
    pub fn new(device: TerminalDevice, mode: InputMode) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let before = tcgetattr(&device)?;
        let shared = Arc::new(SharedReader {
            device,
            before,
            mode,
            reports_focus: AtomicBool::new(false),
            wake,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (tx, reads) = mpsc::channel(READS_MAX);
        let reader = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("read-terminal".to_owned());
        // Deliberately outside a scope: a person may never press a key, and the exit must not wait for a key.
        #[expect(clippy::disallowed_methods, reason = "no exit waits for a key")]
        thread.spawn(move || reader.run(&tx)).map(drop)?;
        Ok(Self {
            shared,
            reads,
            hold_number: 0,
            parser: KeyParser::default(),
            sequence_until: None,
            waker,
            unread: Vec::new(),
        })
    }

    /// The terminal.
    pub(super) fn device(&self) -> &TerminalDevice {
        &self.shared.device
    }

    /// Gives back keys that were not meant for the current user of this reader. The next call of [`next`](Self::next)
    /// returns them first.
    pub fn unread(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.unread.splice(0..0, keys);
    }

    /// Asks the terminal to report its focus, now and whenever the terminal is taken.
    pub fn enable_focus_reports(&self) {
        if self.shared.mode != InputMode::Lines {
            self.shared.reports_focus.store(true, Ordering::Relaxed);
            let state = self.shared.state.lock();
            if state.hold == TerminalHold::Taken {
                self.shared.write(FOCUS_ON);
            }
        }
    }

    /// Takes the terminal, including text that was typed before.
    pub fn take(&mut self) {
        let mut state = self.shared.state.lock();
        if state.hold != TerminalHold::Taken {
            self.hold(&mut state);
        }
    }

    /// Takes the terminal, and discards text that was typed before.
    pub(super) fn take_afresh(&mut self) {
        let mut state = self.shared.state.lock();
        self.hold(&mut state);
        if state.hold == TerminalHold::Taken {
            // In the background, this call would suspend the process (SIGTTOU).
            self.shared.device.forget_typed();
        }
        state.typed_ahead = 0;
        state.hold_number += 1;
        self.hold_number = state.hold_number;
        self.parser = KeyParser::default();
        self.sequence_until = None;
        self.unread.clear();
    }

    /// Discards the text that a person has typed, and that the terminal has not sent yet.
    pub fn forget_unsent(&self) {
        if self.is_taken() {
            self.shared.device.forget_typed();
        }
    }

    /// Gives the terminal back until it is taken again.
    pub(super) fn release(&self) {
        self.give_back(TerminalHold::Released);
    }

    /// Gives the terminal to the shell while this process is suspended.
    pub fn suspend(&self) {
        if self.shared.state.lock().hold == TerminalHold::Taken {
            self.give_back(TerminalHold::Suspended);
        }
    }

    /// True if this process holds the terminal. False while it is in the background.
    pub fn is_taken(&self) -> bool {
        self.shared.state.lock().hold == TerminalHold::Taken
    }

    /// Takes the terminal again if it was held when this process was suspended.
    pub fn resume(&self) {
        let mut state = self.shared.state.lock();
        if state.hold != TerminalHold::Released {
            self.hold(&mut state);
        }
    }

    /// Sets the mode. If this process is in the background, the terminal belongs to the shell until
    /// [`InputReader::resume`].
    fn hold(&self, state: &mut ReaderState) {
        state.hold = TerminalHold::Suspended;
        if !self.shared.device.is_foreground() {
            return;
        }
        state.hold = TerminalHold::Taken;
        if self.shared.mode != InputMode::Lines {
            self.shared.set(&keys_mode(&self.shared.before));
            // The bytes are counted after the mode is set, because the former mode counts only whole lines.
            let ahead = ioctl_fionread(&self.shared.device).unwrap_or_default();
            state.typed_ahead = usize::try_from(ahead).unwrap_or_default();
            self.shared.report(PASTE_ON, FOCUS_ON);
            *HELD.lock() = Arc::downgrade(&self.shared);
        }
        self.shared.changed.notify_one();
    }

    fn give_back(&self, hold: TerminalHold) {
        let before = std::mem::replace(&mut self.shared.state.lock().hold, hold);
        self.shared.changed.notify_one();
        // If the pipe is full, the thread wakes up anyway.
        let _full = (&self.waker).write(&[0]);
        if before == TerminalHold::Taken {
            self.shared.restore(hold == TerminalHold::Abandoned);
        }
    }

    /// The next keys; `None` if the terminal is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<Key>> {
        if !self.unread.is_empty() {
            return Some(std::mem::take(&mut self.unread));
        }
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

/// Waits until a moment, or for ever if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// The mode in which the process receives each key immediately.
fn keys_mode(before: &Termios) -> Termios {
    let mut mode = before.clone();
    mode.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
    // Without this flag, a signal would discard the text that was typed before it.
    mode.local_modes |= LocalModes::NOFLSH;
    // This flag would turn Enter into Ctrl-J, so both would be the same key.
    mode.input_modes -= InputModes::ICRNL;
    mode.special_codes[SpecialCodeIndex::VMIN] = 1;
    mode.special_codes[SpecialCodeIndex::VTIME] = 0;
    mode
}

impl ReaderState {
    /// Restores the keys that the terminal has turned into line ends and the end of input.
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
    fn set(&self, mode: &Termios) {
        // Fails only if the terminal is gone. In that case, there is no mode to set.
        let _gone = tcsetattr(&self.device, OptionalActions::Now, mode);
    }

    /// Restores the terminal's mode if the terminal is held. If the state is locked, the panicking thread may hold the
    /// lock, so the terminal counts as held.
    fn restore_if_held(&self) {
        let state = self.state.try_lock();
        if state.is_none_or(|state| state.hold == TerminalHold::Taken) {
            self.restore(true);
        }
    }

    /// Restores the terminal's mode, and turns its reports off. If the terminal reads nothing and `is_last` is true,
    /// output that waits in the terminal is discarded: the reports would otherwise reach the shell as typed text.
    fn restore(&self, is_last: bool) {
        if self.mode != InputMode::Lines && self.device.is_foreground() {
            self.set(&self.before);
            let mut is_off = self.report(PASTE_OFF, FOCUS_OFF);
            for _ in 0..DISCARDS_MAX {
                if is_off || !is_last {
                    break;
                }
                // The writer of the screen fills the room again, so one attempt may be too late.
                self.device.forget_written();
                is_off = self.report(PASTE_OFF, FOCUS_OFF);
            }
        }
    }

    /// Writes the sequences that turn the terminal's reports on or off. Never blocks for long: if the terminal has no
    /// room, the sequences are left out, and the result is false.
    fn report(&self, paste: &[u8], focus: &[u8]) -> bool {
        let InputMode::Keys {
            marks_pastes,
            reports_focus,
        } = self.mode
        else {
            return true;
        };
        let reports_focus = reports_focus || self.reports_focus.load(Ordering::Relaxed);
        let is_written = !reports_focus || self.write(focus);
        (!marks_pastes || self.write(paste)) && is_written
    }

    /// Writes a sequence. False if the terminal has no room.
    fn write(&self, mode: &[u8]) -> bool {
        // During a write to the screen, the terminal has no room for other output.
        for _ in 0..MODE_TRIES_MAX {
            match self.device.write(mode) {
                // A part of a sequence has no effect, and the whole sequence follows.
                Ok(written) if written < mode.len() => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return true,
            }
            let mut pause: [PollFd<'_>; 0] = [];
            let _a_while = poll(&mut pause, Some(&MODE_PAUSE));
        }
        false
    }

    fn run(&self, to: &mpsc::Sender<TerminalRead>) {
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
                // The process may be in the background by now.
                let is_taken = state.hold == TerminalHold::Taken && self.device.is_foreground();
                if !typed || !is_taken {
                    continue;
                }
                let hold_number = state.hold_number;
                let bytes = self.read(&mut state);
                bytes.map(|bytes| TerminalRead { hold_number, bytes })
            };
            match read {
                Some(read) if read.bytes.is_empty() => {}
                Some(read) => {
                    if to.blocking_send(read).is_err() {
                        return;
                    }
                }
                // The terminal is gone. The channel closes when this thread ends.
                None => return,
            }
        }
    }

    /// Reads the available bytes; `None` at the end.
    fn read(&self, state: &mut ReaderState) -> Option<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES];
        match self.device.read(&mut bytes) {
            Ok(0) if self.mode == InputMode::Lines => {
                // The cause is Ctrl-D, or a terminal that is gone. A terminal that is gone would report the end again
                // and again.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_screen::TestScreen;

    const MODE: InputMode = InputMode::Keys {
        marks_pastes: true,
        reports_focus: false,
    };

    fn reader(screen: &TestScreen) -> InputReader {
        let device = TerminalDevice::open(&screen.path).unwrap();
        let mut reader = InputReader::new(device, MODE).unwrap();
        reader.take();
        reader.enable_focus_reports();
        reader
    }

    fn is_cooked(screen: &TestScreen) -> bool {
        let mode = tcgetattr(screen.terminal()).unwrap();
        mode.local_modes
            .contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// A panic in the main thread ends the process without dropping any value.
    #[test]
    fn panic_gives_the_terminal_back() {
        let mut screen = TestScreen::open(24, 80);
        let reader = reader(&screen);
        assert!(!is_cooked(&screen));
        reader.shared.restore_if_held();
        assert!(is_cooked(&screen));
        let written = screen.written();
        assert!(written.ends_with("\x1b[?1004l\x1b[?2004l"), "{written:?}");
        drop(reader);
    }

    #[test]
    fn dropped_reader_turns_focus_reports_off() {
        let mut screen = TestScreen::open(24, 80);
        drop(reader(&screen));
        assert!(is_cooked(&screen));
        let written = screen.written();
        assert!(written.contains("\x1b[?1004h"), "{written:?}");
        assert!(written.ends_with("\x1b[?1004l\x1b[?2004l"), "{written:?}");
    }

    #[tokio::test]
    async fn keys_that_are_given_back_come_first() {
        let screen = TestScreen::open(24, 80);
        let mut reader = reader(&screen);
        reader.unread([Key::Letter('a'), Key::Enter]);
        assert_eq!(
            reader.next().await,
            Some(vec![Key::Letter('a'), Key::Enter])
        );
        screen.type_keys("b");
        assert_eq!(reader.next().await, Some(vec![Key::Letter('b')]));
    }
}
