//! An agent for one event loop, and its runs.

use std::sync::Arc;

use allstop::agent::{RunControls, RunStopper, Settings};
use allstop::scope::{RootOptions, Scope};
use allstop::tools::ToolRegistry;
use allstop::{Agent, CauseKind, Deadlines};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::events::PythonEvents;
use crate::json;
use crate::mailbox::{Mailbox, MessageBody, PythonMailbox, root_scope};
use crate::model_call;
use crate::session::{self, SessionDescription};
use crate::stopping::PythonStop;
use crate::tool_call::PythonTool;

/// Settings of an agent, as Python writes them.
#[derive(Debug, Deserialize)]
struct AgentDescription {
    name: Option<Arc<str>>,
    system: Option<Arc<str>>,
    max_steps: Option<u32>,
    grace_s: Option<f64>,
    run_timeout_s: Option<f64>,
    tool_timeout_s: Option<f64>,
}

/// The process that created a value. The threads of Rust do not exist in a forked process, where `asyncio` refuses the event
/// loop of its parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CreatorProcess(u32);

impl CreatorProcess {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// True in the process that created the value. In a forked process, a lock of the value may be held for ever.
    pub(crate) fn is_this(self) -> bool {
        self.0 == std::process::id()
    }
}

/// An agent whose tools and model run on one event loop.
#[pyclass(frozen, name = "Agent")]
pub(crate) struct PythonAgent {
    agent: Agent,
    mailbox: Arc<Mailbox>,
}

#[pymethods]
impl PythonAgent {
    #[new]
    fn new(
        mailbox: &PythonMailbox,
        model: (String, Py<PyAny>, Py<PyAny>),
        tools: Vec<(String, Py<PyAny>, Py<PyAny>)>,
        description: &str,
    ) -> PyResult<Self> {
        let mailbox = Arc::clone(&mailbox.0);
        let description: AgentDescription = json::value(description)?;
        let seconds = |seconds: Option<f64>| seconds.map(json::seconds).transpose();
        let mut registry = ToolRegistry::new();
        for tool in tools {
            let tool = PythonTool::new(Arc::clone(&mailbox), tool)?;
            registry
                .register(Arc::new(tool))
                .map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        let mut options = RootOptions::for_any_runtime();
        options.containment = mailbox.containment();
        if let Some(grace) = seconds(description.grace_s)? {
            options.grace = grace;
        }
        let mut settings = Settings::default()
            .steps_max(description.max_steps)
            .deadlines(
                Deadlines::default()
                    .run(seconds(description.run_timeout_s)?)
                    .tool(seconds(description.tool_timeout_s)?),
            );
        settings.system = description.system;
        let scope = root_scope("agent", options)?;
        let agent = Agent::new(model_call::create(Arc::clone(&mailbox), model)?)
            .tools(registry)
            .settings(settings)
            .scope(scope);
        let agent = match description.name {
            Some(name) => agent.name(name),
            None => agent,
        };
        Ok(Self {
            agent: agent.build(),
            mailbox,
        })
    }

    /// Starts a run. `finished` receives its outcome as JSON.
    fn start(&self, prompt: String, finished: Py<PyAny>) -> PythonRun {
        let run = self.agent.run(prompt);
        let handle = PythonRun {
            stopper: run.stopper(),
            controls: Arc::clone(run.controls()),
            events: PythonEvents::of_run(run.events(), self.scope(), &self.mailbox),
            scope: self.scope().clone(),
            mailbox: Arc::clone(&self.mailbox),
            creator: CreatorProcess::this(),
        };
        let mailbox = Arc::clone(&self.mailbox);
        let finished = Arc::new(finished);
        let _the_control_thread_owns_it = self.scope().spawn_engine(async move {
            let outcome = run.await;
            mailbox.answer(&finished, MessageBody::Text(json::text(&outcome)));
        });
        handle
    }

    /// Opens a session. `opened` receives the session, or a message if the session cannot be opened.
    fn open_session(&self, description: &str, opened: Py<PyAny>) -> PyResult<()> {
        let description: SessionDescription = json::value(description)?;
        let builder = session::builder(&self.agent, description)?;
        let (scope, mailbox) = (self.scope().clone(), Arc::clone(&self.mailbox));
        let opened = Arc::new(opened);
        let _the_control_thread_owns_it = self.scope().spawn_engine(async move {
            let body = match builder.open().await {
                Ok(session) => {
                    let mailbox = Arc::clone(&mailbox);
                    MessageBody::Session(session::PythonSession::new(session, scope, mailbox))
                }
                Err(error) => MessageBody::Text(error_text(&error)),
            };
            mailbox.answer(&opened, body);
        });
        Ok(())
    }
}

impl PythonAgent {
    fn scope(&self) -> &Scope {
        self.agent.scope()
    }
}

/// An error with its sources.
pub(crate) fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// A run. Dropping this value stops the run with cause `disconnect`.
#[pyclass(frozen, name = "Run")]
pub(crate) struct PythonRun {
    stopper: RunStopper,
    controls: Arc<RunControls>,
    events: PythonEvents,
    scope: Scope,
    mailbox: Arc<Mailbox>,
    creator: CreatorProcess,
}

#[pymethods]
impl PythonRun {
    /// Stops the run. `received` gets the receipt as JSON.
    fn stop(
        &self,
        kind: &str,
        detail: Option<String>,
        received: Py<PyAny>,
    ) -> PyResult<PythonStop> {
        let stop = self.stopper.stop(json::cause(kind, detail)?);
        let forced = stop.clone();
        Ok(PythonStop::new(
            &self.scope,
            (Arc::clone(&self.mailbox), Arc::new(received)),
            move || forced.force(),
            async move { stop.receipt().await },
        ))
    }

    /// Stops one call. True if this request has stopped the call.
    fn cancel_call(&self, call: &str) -> bool {
        self.controls.cancel_call(&call.into())
    }

    /// The events of the run.
    fn events(&self) -> PythonEvents {
        self.events.clone()
    }
}

impl Drop for PythonRun {
    fn drop(&mut self) {
        if self.creator.is_this() {
            // After the end of the run, this finds nothing to stop.
            let _receipt_has_no_reader = self.stopper.stop(CauseKind::Disconnect);
        }
    }
}
