//! The thread that reads lines from the terminal.
//!
//! Invariants:
//! 1. It reads only while somebody waits for a line; the check and the read are one step against giving up.
//! 2. It is started with the first question, is one, and is never joined.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::tty::Tty;

/// Bytes of a line that are looked at: an answer is a word.
const LINE_BYTES_MAX: usize = 256;
/// Reads lines when asked to.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    /// A byte wakes the thread from its wait for the terminal.
    waker: UnixStream,
}

#[derive(Debug)]
struct Shared {
    tty: Tty,
    wake: UnixStream,
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Who waits for a line: `None` as its line is the end of the input.
    waiting: Option<oneshot::Sender<Option<String>>>,
    line: Vec<u8>,
    started: bool,
    /// The reader is gone.
    abandoned: bool,
}

impl Reader {
    /// A reader of this terminal. Nothing is read yet.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(super) fn new(tty: Tty) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            tty,
            wake,
            state: Mutex::default(),
            asked: Condvar::new(),
        });
        Ok(Self { shared, waker })
    }

    /// The terminal.
    pub(super) fn tty(&self) -> &Tty {
        &self.shared.tty
    }

    /// The next line that is typed; `None` at the end of the input. One at a time.
    ///
    /// # Cancel safety
    /// After it was dropped nothing is read; a line that was begun stays with the terminal.
    pub(super) async fn line(&self) -> Option<String> {
        let (tx, rx) = oneshot::channel();
        let _waiting = Waiting(self);
        {
            let mut state = self.shared.state.lock();
            if !state.started && start(Arc::clone(&self.shared)).is_err() {
                return None;
            }
            state.started = true;
            state.line.clear();
            state.waiting = Some(tx);
            self.shared.asked.notify_one();
        }
        rx.await.ok().flatten()
    }

    fn wake(&self) {
        // Full is as good as woken.
        let _full = (&self.waker).write(&[0]);
    }
}

/// Gives up waiting when dropped.
struct Waiting<'a>(&'a Reader);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.shared.state.lock().waiting = None;
        self.0.wake();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.state.lock().abandoned = true;
        self.shared.asked.notify_one();
        self.wake();
    }
}

fn start(shared: Arc<Shared>) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("read-terminal".to_owned());
    // Not in a scope on purpose: whoever sits there may never answer, and no exit waits for that.
    thread.spawn(move || shared.run()).map(drop)
}

impl Shared {
    fn run(&self) {
        loop {
            {
                let mut state = self.state.lock();
                while state.waiting.is_none() && !state.abandoned {
                    self.asked.wait(&mut state);
                }
                if state.abandoned {
                    return;
                }
            }
            let typed = self.tty.wait_typed(&self.wake);
            while matches!((&self.wake).read(&mut [0; 16]), Ok(1..)) {}
            if typed {
                self.read();
            }
        }
    }

    /// Reads what is there, if somebody still waits for it.
    fn read(&self) {
        let mut state = self.state.lock();
        // It may have been sent to the background since: then what is typed is the shell's.
        if state.waiting.is_none() || !self.tty.is_foreground() {
            return;
        }
        let mut bytes = [0; LINE_BYTES_MAX];
        let line = match self.tty.read(&mut bytes) {
            Ok(0) => None,
            Ok(count) => {
                let bytes = bytes.get(..count).unwrap_or_default();
                state.line.extend_from_slice(bytes);
                let whole = bytes.contains(&b'\n') || bytes.contains(&b'\r');
                if !whole && state.line.len() < LINE_BYTES_MAX {
                    return;
                }
                Some(String::from_utf8_lossy(&state.line).into_owned())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return,
                _ => None,
            },
        };
        if let Some(waiting) = state.waiting.take() {
            // Given up at this very moment: the line is lost, and nothing has happened on its account.
            let _given_up = waiting.send(line);
        }
    }
}
