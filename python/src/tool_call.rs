//! Tools that are functions of Python, and their calls.
//!
//! Invariants:
//! 1. Each call is registered in its scope before Python receives it, and until its task or its thread has ended. A stop
//!    that cannot end it reports it: a thread as `still_running`, a task as `unreachable`.
//! 2. A task that was cancelled is reported as dropped, because the stop has ended it at an unknown place.
//! 3. A stop asks each call to end, even if the stop drops the future of the call before this future runs again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop::core::receipt::{EndMethod, EndProof, Evidence, ItemKind};
use allstop::scope::{Ending, NotStarted, Registration, WorkSpec};
use allstop::tools::{ToolInvocation, ToolSpec};
use allstop::{Effect, Tool, ToolError, ToolOutput};
use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::json;
use crate::mailbox::{Callback, Mailbox, MessageBody};

type Answer = Result<ToolOutput, ToolError>;

/// Description of a tool, as Python writes it.
#[derive(Debug, Deserialize)]
struct ToolDescription {
    name: Arc<str>,
    description: Arc<str>,
    schema: Arc<Value>,
    effect: Effect,
    timeout_s: Option<f64>,
    parallel: bool,
    blocking: bool,
}

/// A tool that is a function of Python.
pub(crate) struct PythonTool {
    spec: ToolSpec,
    /// True if the function blocks its thread.
    is_blocking: bool,
    mailbox: Arc<Mailbox>,
    /// Receives each call.
    begin: Callback,
    /// Receives the key of a call whose task is to be cancelled.
    cancel: Callback,
    keys: AtomicU64,
}

impl PythonTool {
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        (description, begin, cancel): (String, Py<PyAny>, Py<PyAny>),
    ) -> PyResult<Self> {
        let description: ToolDescription = json::value(&description)?;
        Ok(Self {
            spec: ToolSpec::new(
                description.name,
                description.description,
                description.schema,
            )
            .effect(description.effect)
            .timeout(description.timeout_s.map(json::seconds).transpose()?)
            .parallel(description.parallel),
            is_blocking: description.blocking,
            mailbox,
            begin: Arc::new(begin),
            cancel: Arc::new(cancel),
            keys: AtomicU64::new(0),
        })
    }

    /// Registers a call. A thread gets its name here, because receipts contain the name.
    fn register(&self, invocation: &ToolInvocation) -> Result<(Registration, String), NotStarted> {
        let name = format!("allstop-{}-{}", invocation.name, invocation.call_id);
        let scope = &invocation.scope;
        let registration = if self.is_blocking {
            scope.register_thread(WorkSpec::new(ItemKind::Thread, name.as_str()))?
        } else {
            // This future asks the task, because the request needs no more than a message.
            scope.register_remote(WorkSpec::new(ItemKind::Future, name.as_str()), || {})?
        };
        Ok((registration, name))
    }

    async fn run(&self, invocation: ToolInvocation) -> Answer {
        let refused = |refused: NotStarted| ToolError::not_started(refused.to_string());
        let (registration, name) = self.register(&invocation).map_err(refused)?;
        let (answer, answered) = oneshot::channel();
        let scope = invocation.scope.clone();
        let signal = Arc::new(StopSignal::default());
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let call = PythonToolCall {
            key,
            name,
            invocation,
            signal: Arc::clone(&signal),
            state: Mutex::new(Some((registration, answer))),
        };
        self.mailbox
            .post(&self.begin, MessageBody::ToolCall(call))?;
        let mut end_request = EndRequest {
            tool: self,
            signal,
            key,
            is_open: true,
        };
        let mut answered = answered.fuse();
        let ended = tokio::select! {
            biased;
            ended = &mut answered => ended,
            () = scope.stopped() => {
                end_request.send();
                answered.await
            }
        };
        end_request.is_open = false;
        ended.unwrap_or_else(|_| Err(ToolError::new("the tool ended without an answer")))
    }
}

impl Tool for PythonTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Answer> {
        self.run(invocation).boxed()
    }
}

impl fmt::Debug for PythonTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PythonTool").field(&self.spec.name).finish()
    }
}

/// Asks a call to end, once: at a stop, or when the future of the call is dropped.
struct EndRequest<'a> {
    tool: &'a PythonTool,
    signal: Arc<StopSignal>,
    key: u64,
    /// False after the request or the answer.
    is_open: bool,
}

impl EndRequest<'_> {
    fn send(&mut self) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        self.signal.set();
        if !self.tool.is_blocking {
            let (mailbox, cancel) = (&self.tool.mailbox, &self.tool.cancel);
            mailbox.answer(cancel, MessageBody::Key(self.key));
        }
    }
}

impl Drop for EndRequest<'_> {
    fn drop(&mut self) {
        self.send();
    }
}

/// Wakes a thread of Python at a stop of its call.
#[derive(Debug, Default)]
struct StopSignal {
    is_set: Mutex<bool>,
    set: Condvar,
}

impl StopSignal {
    fn set(&self) {
        *self.is_set.lock() = true;
        self.set.notify_all();
    }
}

/// One call. Dropping it without an answer fails the call.
#[pyclass(frozen, name = "ToolCall")]
pub(crate) struct PythonToolCall {
    #[pyo3(get)]
    key: u64,
    /// Name of the task or of the thread.
    #[pyo3(get)]
    name: String,
    invocation: ToolInvocation,
    signal: Arc<StopSignal>,
    /// `None` after the end of the call.
    state: Mutex<Option<(Registration, oneshot::Sender<Answer>)>>,
}

#[pymethods]
impl PythonToolCall {
    #[getter]
    fn call_id(&self) -> &str {
        self.invocation.call_id.as_str()
    }

    #[getter]
    fn session_id(&self) -> &str {
        self.invocation.session_id.as_str()
    }

    /// The arguments as JSON.
    #[getter]
    fn arguments(&self) -> String {
        self.invocation.arguments.to_string()
    }

    /// True if a stop covers the call.
    #[getter]
    fn stopped(&self) -> bool {
        self.invocation.scope.is_stopped()
    }

    /// The cause of the stop as JSON.
    #[getter]
    fn cause(&self) -> Option<String> {
        self.invocation.scope.cause().as_ref().map(json::text)
    }

    /// Waits for a stop of the call, for at most this many seconds. True if a stop covers the call.
    fn wait_stopped(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let limit = json::seconds(seconds)?;
        py.detach(|| {
            let mut is_set = self.signal.is_set.lock();
            self.signal
                .set
                .wait_while_for(&mut is_set, |is_set| !*is_set, limit);
        });
        Ok(self.stopped())
    }

    /// Sends a piece of output to the subscribers.
    fn output(&self, text: &str) {
        self.invocation.link.output(text);
    }

    /// Records that the function observed the stop at this checkpoint.
    fn acknowledge(&self, checkpoint: String) {
        if let Some((registration, _)) = &*self.state.lock() {
            registration.acknowledge(checkpoint);
        }
    }

    /// Records the end of the task or thread: `ok` or `error` with the text for the model, `cancelled` if the task ended
    /// with a cancellation, or `not_begun`.
    fn finish(&self, end: &str, text: String) -> PyResult<()> {
        let cancelled = Ending::Stopped {
            how: EndMethod::Dropped,
            evidence: Evidence::verified(EndProof::TaskEnded),
        };
        let (ending, answer) = match end {
            "ok" => (Ending::Returned, Ok(ToolOutput::from(text))),
            "error" => (Ending::Returned, Err(ToolError::new(text))),
            "cancelled" if self.stopped() => (cancelled, Err(ToolError::outcome_unknown(text))),
            "cancelled" => (Ending::Returned, Err(ToolError::outcome_unknown(text))),
            "not_begun" => (Ending::NotBegun, Err(ToolError::not_started(text))),
            _ => return Err(PyValueError::new_err(format!("no end `{end}`"))),
        };
        if let Some((registration, sender)) = self.state.lock().take() {
            registration.finish(ending);
            // The receiver was dropped if the stop has given up on the call.
            let _given_up = sender.send(answer);
        }
        Ok(())
    }
}
