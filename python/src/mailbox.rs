//! Messages from the threads of Rust to one event loop of Python.
//!
//! A message is a callback of Python and its argument. The event loop watches the descriptor of the mailbox, and calls the
//! callbacks on its thread. Therefore no thread of Rust ever waits for the lock of the interpreter: a tool that holds this
//! lock delays no stop, and no thread of Rust calls an interpreter that exits.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use allstop::scope::{RootOptions, Scope};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::model_call::PythonModelCall;
use crate::session::PythonSession;
use crate::tool_call::PythonToolCall;

/// Maximum number of messages that wait for the event loop. A loop with this many waiting messages is blocked.
const MESSAGES_MAX: usize = 65_536;

/// Length of one read of wake-ups. The bytes carry no information, so any length works.
const WAKE_UPS_READ_LEN: usize = 256;

/// A callable of Python. Clones need no lock of the interpreter.
pub(crate) type Callback = Arc<Py<PyAny>>;

/// Argument of a callback.
#[derive(IntoPyObject)]
pub(crate) enum MessageBody {
    Text(String),
    /// A text and the output of a command.
    Output(String, Vec<u8>),
    Key(u64),
    ToolCall(PythonToolCall),
    ModelCall(PythonModelCall),
    Session(PythonSession),
}

/// A message was refused, because its event loop has ended or is blocked.
#[derive(Debug, thiserror::Error)]
#[error("the event loop of the agent has ended or is blocked")]
pub(crate) struct NotDelivered;

/// Mailbox of one event loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<MessageQueue>,
    /// Bytes here wake the event loop.
    wake: UnixStream,
    woken: UnixStream,
    /// Scope of the commands of this event loop, created for the first command.
    commands: OnceLock<Scope>,
}

#[derive(Default)]
struct MessageQueue {
    messages: VecDeque<(Callback, MessageBody)>,
    is_closed: bool,
}

impl std::fmt::Debug for MessageQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageQueue")
            .field("len", &self.messages.len())
            .field("is_closed", &self.is_closed)
            .finish()
    }
}

impl Mailbox {
    /// Sends a message. Never waits.
    pub(crate) fn post(&self, to: &Callback, body: MessageBody) -> Result<(), NotDelivered> {
        {
            let mut queue = self.queue.lock();
            if queue.is_closed || queue.messages.len() >= MESSAGES_MAX {
                return Err(NotDelivered);
            }
            queue.messages.push_back((Arc::clone(to), body));
        }
        // A full buffer means that the event loop has not read earlier wake-ups, so it wakes anyway.
        let _full_or_written = (&self.wake).write(&[0]);
        Ok(())
    }

    /// Sends an answer. If the event loop has ended, no caller waits for the answer.
    pub(crate) fn answer(&self, to: &Callback, body: MessageBody) {
        let _ended = self.post(to, body);
    }

    pub(crate) fn command_scope(&self) -> &Scope {
        let create = || Scope::root("python", RootOptions::for_any_runtime());
        self.commands.get_or_init(create)
    }
}

/// The side of the event loop.
#[pyclass(frozen, name = "Mailbox")]
pub(crate) struct PythonMailbox(pub(crate) Arc<Mailbox>);

#[pymethods]
impl PythonMailbox {
    #[new]
    fn new() -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self(Arc::new(Mailbox {
            queue: Mutex::default(),
            wake,
            woken,
            commands: OnceLock::new(),
        })))
    }

    /// The descriptor that is readable if messages wait.
    fn fileno(&self) -> i32 {
        self.0.woken.as_raw_fd()
    }

    /// Takes all messages.
    fn drain(&self, py: Python<'_>) -> Vec<(Py<PyAny>, MessageBody)> {
        let mut wake_ups = [0; WAKE_UPS_READ_LEN];
        // Ends with `WouldBlock`, or at a short read.
        while matches!((&self.0.woken).read(&mut wake_ups), Ok(WAKE_UPS_READ_LEN)) {}
        let messages = std::mem::take(&mut self.0.queue.lock().messages);
        let of_python = |(to, body): (Callback, MessageBody)| (to.clone_ref(py), body);
        messages.into_iter().map(of_python).collect()
    }

    /// Refuses all further messages.
    fn close(&self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        // Dropped after the lock: a call without an answer informs its agent.
        let _unread = std::mem::take(&mut queue.messages);
        drop(queue);
    }
}
