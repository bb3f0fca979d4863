//! Shared helpers of the tests.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, AgentBuilder};
use allstop_core::message::{Message, check_history};
use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{Cause, CauseKind};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, MemoryLog, Version};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope};
use allstop_session::{
    AgentSource, Session, SessionEvent, SessionEventKind, SessionOptions, Sessions, Subscription,
};
use allstop_testkit::ToolFn;
use allstop_tools::ToolRegistry;

/// A limit that no passing test reaches. With a paused clock this limit costs no time.
pub(crate) const LONG: Duration = Duration::from_hours(1);

pub(crate) fn user() -> Cause {
    Cause::new(CauseKind::User)
}

pub(crate) fn in_order(replies: Vec<Reply>) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::in_order_of_calls(replies).keeping_requests())
}

pub(crate) fn agent(model: &Arc<ScriptedModel>) -> AgentBuilder {
    Agent::new(Arc::clone(model))
}

pub(crate) fn tools(tools: Vec<ToolFn>) -> ToolRegistry {
    let mut registry = ToolRegistry::new();
    for tool in tools {
        registry.register(Arc::new(tool)).expect("names differ");
    }
    registry
}

/// A session in memory, and its parts.
pub(crate) struct Fixture {
    pub(crate) root: Scope,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) sessions: Sessions,
    pub(crate) session: Session,
}

pub(crate) async fn fixture(
    source: impl AgentSource + 'static,
    options: SessionOptions,
) -> Fixture {
    fixture_in(Arc::new(MemoryLog::new()), source, options).await
}

/// A session in this log.
pub(crate) async fn fixture_in(
    log: Arc<dyn Log>,
    source: impl AgentSource + 'static,
    options: SessionOptions,
) -> Fixture {
    let root = Scope::root("test", RootOptions::single_runtime());
    let sessions = Sessions::new(Arc::clone(&log), root.clone(), Arc::new(source), options);
    let session = sessions
        .create(Some("s1".into()), "/tmp")
        .await
        .expect("a new session");
    Fixture {
        root,
        log,
        sessions,
        session,
    }
}

impl Fixture {
    pub(crate) async fn records(&self) -> Vec<SessionRecord> {
        let stream = stream_of(self.session.id());
        let records = self
            .log
            .read(&stream, Version(1), 100_000)
            .await
            .expect("memory");
        let records = records.into_iter();
        records
            .filter_map(|(_, bytes)| decode(&bytes).expect("readable"))
            .collect()
    }

    /// Folds the log and checks that every turn has an ending and that the history is valid.
    pub(crate) async fn state(&self) -> SessionState {
        let state = SessionState::fold(&self.records().await).expect("a log that can be folded");
        assert!(state.open_turn().is_none(), "every turn has its ending");
        let messages = &state.conversation().messages;
        check_history(messages.iter().map(AsRef::as_ref)).expect("a valid history");
        state
    }

    /// The committed conversation, in short form.
    pub(crate) async fn said(&self) -> Vec<String> {
        let state = self.state().await;
        let said = state
            .conversation()
            .messages
            .iter()
            .map(|message| match &**message {
                Message::User { text, .. } => format!("user: {text}"),
                Message::Assistant { text, .. } => format!("model: {text}"),
                Message::Tool(result) => format!("tool: {}", result.content),
                Message::Note { text } => format!("note: {text}"),
                Message::Summary { text } => format!("summary: {text}"),
                Message::StopMarker { .. } => "stopped".to_owned(),
            });
        said.collect()
    }

    /// Closes the session and checks that nothing runs.
    pub(crate) async fn close(self) {
        let receipt = self.session.close().await;
        assert!(receipt.quiet(), "{receipt:?}");
        assert!(self.root.is_quiet());
    }
}

/// Returns the first result of `wanted` over the next events.
pub(crate) async fn until<T>(
    events: &mut Subscription,
    mut wanted: impl FnMut(&SessionEvent) -> Option<T>,
) -> T {
    loop {
        let event = events
            .next()
            .await
            .expect("memory")
            .expect("the session is open");
        if let Some(found) = wanted(&event) {
            return found;
        }
    }
}

pub(crate) async fn text_delta(events: &mut Subscription) -> String {
    until(events, |event| match &event.kind {
        SessionEventKind::Live(allstop_agent::AgentEvent::TextDelta { text }) => {
            Some(text.to_string())
        }
        _ => None,
    })
    .await
}
