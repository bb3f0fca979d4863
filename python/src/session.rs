//! Sessions.

use std::path::PathBuf;
use std::sync::Arc;

use allstop::agent::Outcome;
use allstop::scope::Scope;
use allstop::session::NewMessage;
use allstop::{
    Agent, AgentSessions as _, FollowUp, MessageHandle, Session, SessionBuilder, StopTarget,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::json;

use crate::events::PythonEvents;
use crate::json;
use crate::mailbox::{Callback, Mailbox, MessageBody};
use crate::stopping::PythonStop;

/// A new session, as Python writes it.
#[derive(Debug, Deserialize)]
pub(crate) struct SessionDescription {
    id: Option<String>,
    /// SQLite file.
    store: Option<PathBuf>,
    follow_up: FollowUp,
    /// Folder of the built-in tools, and the folder for their output.
    local_tools: Option<(PathBuf, PathBuf)>,
}

pub(crate) fn builder(agent: &Agent, description: SessionDescription) -> PyResult<SessionBuilder> {
    let mut builder = agent.session().follow_up(description.follow_up);
    if let Some(id) = description.id {
        builder = builder.id(id);
    }
    if let Some(file) = description.store {
        builder = builder.persisted(file);
    }
    if let Some((folder, output)) = description.local_tools {
        let tools = allstop::local_tools(folder, output)
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        builder = builder.tools(tools);
    }
    Ok(builder)
}

/// Target of a stop, as Python writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TargetDescription {
    Turn,
    TurnAndBackground,
    Session,
    Call(String),
    Message(String),
}

impl From<TargetDescription> for StopTarget {
    fn from(target: TargetDescription) -> Self {
        match target {
            TargetDescription::Turn => Self::Turn,
            TargetDescription::TurnAndBackground => Self::TurnAndBackground,
            TargetDescription::Session => Self::Session,
            TargetDescription::Call(id) => Self::Call(id.into()),
            TargetDescription::Message(id) => Self::Message(id.into()),
        }
    }
}

/// A session whose agent runs on one event loop. Dropping this value stops nothing.
#[pyclass(frozen, name = "Session")]
pub(crate) struct PythonSession {
    session: Session,
    scope: Scope,
    mailbox: Arc<Mailbox>,
}

impl PythonSession {
    pub(crate) fn new(session: Session, scope: Scope, mailbox: Arc<Mailbox>) -> Self {
        Self {
            session,
            scope,
            mailbox,
        }
    }

    fn send_message(&self, message: NewMessage) -> PyResult<MessageHandle> {
        let sent = self.session.send(message);
        sent.map_err(|refused| PyRuntimeError::new_err(refused.to_string()))
    }

    /// Sends the text to `to` when it is complete.
    fn answer_later(&self, to: Py<PyAny>, text: impl Future<Output = String> + Send + 'static) {
        let (mailbox, to): (_, Callback) = (Arc::clone(&self.mailbox), Arc::new(to));
        let _the_control_thread_owns_it = self.scope.spawn_engine(async move {
            let text = text.await;
            mailbox.answer(&to, MessageBody::Text(text));
        });
    }
}

#[pymethods]
impl PythonSession {
    #[getter]
    fn id(&self) -> &str {
        self.session.id().as_str()
    }

    /// Sends a message, and returns its id. `finished` receives its outcome as JSON.
    fn send(
        &self,
        text: String,
        follow_up: Option<String>,
        finished: Py<PyAny>,
    ) -> PyResult<String> {
        let mut message = NewMessage::from(text);
        if let Some(policy) = follow_up {
            message = message.policy(json::value(&policy)?);
        }
        let sent = self.send_message(message)?;
        let id = sent.id.as_str().to_owned();
        self.answer_later(finished, async move { json::text(&sent.await) });
        Ok(id)
    }

    /// Sends a message, and waits for its turn and for the attached background work, for at most this many seconds.
    /// `finished` receives the result as JSON.
    fn send_and_wait(&self, text: String, seconds: f64, finished: Py<PyAny>) -> PyResult<()> {
        let limit = json::seconds(seconds)?;
        let session = self.session.clone();
        self.answer_later(finished, async move {
            match session.send_and_wait(text, limit).await {
                Ok(waited) => json::text(&json!({
                    "outcome": waited.outcome.map(|outcome| Outcome::from(&*outcome)),
                    "timed_out": waited.timed_out,
                    "running": waited.running,
                })),
                Err(refused) => json::text(&json!({"refused": refused.to_string()})),
            }
        });
        Ok(())
    }

    /// Stops a target. `received` gets the receipt as JSON.
    fn stop(
        &self,
        target: &str,
        kind: &str,
        detail: Option<String>,
        received: Py<PyAny>,
    ) -> PyResult<PythonStop> {
        let target: TargetDescription = json::value(target)?;
        let stop = self
            .session
            .stop(&target.into(), json::cause(kind, detail)?);
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
        self.session.cancel_call(&call.into())
    }

    /// The committed conversation as JSON: a list of messages.
    fn history(&self, received: Py<PyAny>) {
        let session = self.session.clone();
        self.answer_later(received, async move {
            match session.history().await {
                Ok(conversation) => {
                    let messages: Vec<&allstop::Message> =
                        conversation.messages.iter().map(|one| &**one).collect();
                    json::text(&json!({"messages": messages}))
                }
                Err(error) => json::text(&json!({"error": error.to_string()})),
            }
        });
    }

    /// Events from now on.
    fn events(&self) -> PythonEvents {
        PythonEvents::of_session(self.session.watch(), &self.scope, &self.mailbox)
    }

    /// Stops the session, and waits for the end of its owner. `closed` receives the receipt as JSON.
    fn close(&self, closed: Py<PyAny>) {
        let session = self.session.clone();
        self.answer_later(closed, async move { json::text(&*session.close().await) });
    }
}
