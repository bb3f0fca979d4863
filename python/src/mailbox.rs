//! Messages from the threads of Rust to one event loop of Python.
//!
//! A message is a callback of Python and its argument. The event loop watches the descriptor of the mailbox, and calls the
//! callbacks on its thread. Therefore no thread of Rust ever waits for the lock of the interpreter: a tool that holds this
//! lock delays no stop, and no thread of Rust calls an interpreter that exits.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use allstop::core::error_chain;
use allstop::process::{ContainmentChoice, KeeperProgram, Keepers};
use allstop::scope::{RootOptions, Scope};
use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::model_call::PythonModelCall;
use crate::session::PythonSession;
use crate::tool_call::PythonToolCall;

/// Maximum number of messages that wait for the event loop. A loop with this many waiting messages is blocked.
const MESSAGES_MAX: usize = 65_536;

/// Length of one read of wake-ups. The bytes carry no information, so any length works.
const WAKE_UPS_READ_LEN: usize = 256;

/// Hidden command of the program `allstop` that runs a keeper.
const KEEPER_COMMAND: &str = "__keeper";

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
    /// Containment of all commands of this event loop.
    containment: ContainmentChoice,
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

    /// Scope of the commands.
    ///
    /// # Errors
    /// If the system provides no thread for the scope.
    pub(crate) fn command_scope(&self) -> PyResult<Scope> {
        if let Some(scope) = self.commands.get() {
            return Ok(scope.clone());
        }
        let scope = root_scope("python", RootOptions::for_any_runtime())?;
        Ok(self.commands.get_or_init(|| scope).clone())
    }

    pub(crate) fn containment(&self) -> ContainmentChoice {
        self.containment.clone()
    }
}

/// Creates the root of a tree of scopes.
///
/// # Errors
/// If the system provides no thread, or no descriptor for the event loop of a thread.
pub(crate) fn root_scope(label: &'static str, options: RootOptions) -> PyResult<Scope> {
    Scope::try_root(label, options).map_err(|error| {
        PyOSError::new_err(format!(
            "{}; share one Agent between all runs, or raise the limits",
            error_chain(&error)
        ))
    })
}

/// The side of the event loop.
#[pyclass(frozen, name = "Mailbox")]
pub(crate) struct PythonMailbox(pub(crate) Arc<Mailbox>);

#[pymethods]
impl PythonMailbox {
    /// `keeper` is the program `allstop`, which then contains the process trees of commands.
    #[new]
    fn new(keeper: Option<PathBuf>) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self(Arc::new(Mailbox {
            queue: Mutex::default(),
            wake,
            woken,
            commands: OnceLock::new(),
            containment: keeper.map_or(ContainmentChoice::GroupAndMarker, |executable| {
                ContainmentChoice::Keeper(Keepers::new(KeeperProgram {
                    executable,
                    args: vec![KEEPER_COMMAND.into()],
                }))
            }),
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

    /// Refuses all further messages, and ends the idle keepers. Waits 0.1 seconds at most.
    fn close(&self, py: Python<'_>) {
        if let ContainmentChoice::Keeper(keepers) = &self.0.containment {
            py.detach(|| keepers.close());
        }
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        // Dropped after the lock: a call without an answer informs its agent.
        let _unread = std::mem::take(&mut queue.messages);
        drop(queue);
    }
}
