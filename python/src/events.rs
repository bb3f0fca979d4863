//! Events of a run or of a session.

use std::sync::Arc;

use allstop::agent::RunEvents;
use allstop::scope::Scope;
use allstop::session::{LiveEvents, SessionEventKind};
use pyo3::prelude::*;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::json;
use crate::mailbox::{Mailbox, MessageBody};

#[derive(Clone)]
enum EventSource {
    Run(RunEvents),
    Session(Arc<Mutex<LiveEvents>>),
}

impl EventSource {
    /// The next event that Python receives; `None` after the last event.
    async fn next(&mut self) -> Option<Value> {
        match self {
            Self::Run(events) => Some(value(&events.next().await?)),
            Self::Session(events) => loop {
                let event = events.lock().await.next().await?;
                if let Some(value) = value_of(&event.kind) {
                    return Some(value);
                }
            },
        }
    }
}

fn value(event: &impl serde::Serialize) -> Value {
    serde_json::to_value(event).expect("values of Allstop have names as keys")
}

/// `None` for an event whose content Python gets in another way, or that an agent of Python never sends.
fn value_of(event: &SessionEventKind) -> Option<Value> {
    Some(match event {
        SessionEventKind::Live(event) => value(event),
        SessionEventKind::AssistantIdle { stopped, running } => {
            json!({"event": "assistant_idle", "stopped": stopped, "running": running})
        }
        SessionEventKind::SessionIdle { stopped, detached } => {
            json!({"event": "session_idle", "stopped": stopped, "detached": detached})
        }
        SessionEventKind::BackgroundChanged { running } => {
            json!({"event": "background_changed", "running": running})
        }
        SessionEventKind::Missed { count } => json!({"event": "missed", "count": count}),
        SessionEventKind::Recorded { .. }
        | SessionEventKind::PermissionAsked(_)
        | SessionEventKind::PermissionAnswered { .. }
        | SessionEventKind::ServerAsked(_)
        | SessionEventKind::ServerQuestionClosed { .. }
        | SessionEventKind::LateAnswer { .. } => return None,
    })
}

/// Events of a run or of a session, in order.
#[pyclass(frozen, name = "Events")]
#[derive(Clone)]
pub(crate) struct PythonEvents {
    source: EventSource,
    scope: Scope,
    mailbox: Arc<Mailbox>,
}

impl PythonEvents {
    pub(crate) fn of_run(events: RunEvents, scope: &Scope, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            source: EventSource::Run(events),
            scope: scope.clone(),
            mailbox: Arc::clone(mailbox),
        }
    }

    pub(crate) fn of_session(events: LiveEvents, scope: &Scope, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            source: EventSource::Session(Arc::new(Mutex::new(events))),
            scope: scope.clone(),
            mailbox: Arc::clone(mailbox),
        }
    }
}

#[pymethods]
impl PythonEvents {
    /// Takes the next event. `received` gets it as JSON, or `null` after the last event.
    fn next(&self, received: Py<PyAny>) {
        let (mut source, mailbox) = (self.source.clone(), Arc::clone(&self.mailbox));
        let received = Arc::new(received);
        let _the_control_thread_owns_it = self.scope.spawn_engine(async move {
            let event = source.next().await;
            mailbox.answer(&received, MessageBody::Text(json::text(&event)));
        });
    }
}
