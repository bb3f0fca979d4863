//! Copy of a session's events in the files that a program stores. The log of the session in the store stays the original.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_log::Version;
use allstop_scope::WorkSpec;
use allstop_session::Subscription;
use serde_json::json;
use tokio::sync::broadcast::{self, error::RecvError};

use super::feed::now;
use super::{HostedSession, OpenMode};
use crate::event::CopilotEvent;
use crate::translate::{EventTranslator, HostEvent};

/// File of the copy, with one event in each line.
const EVENTS: &str = "events.jsonl";

/// Description of the session.
const WORKSPACE: &str = "workspace.yaml";

/// List of the checkpoints.
const CHECKPOINTS: &str = "checkpoints/index.md";

/// Copies the events of an open session.
struct EventCopy {
    session: Arc<HostedSession>,
    translator: EventTranslator,
    events: Subscription,
    host: broadcast::Receiver<HostEvent>,
    /// True if the clients know that the copy is incomplete.
    has_warned: bool,
}

impl HostedSession {
    /// Writes the description of the session to its files.
    ///
    /// # Errors
    /// Returns the error of the program that stores the files.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the files may be missing.
    pub(super) async fn describe_in_files(&self) -> std::io::Result<()> {
        // A text in JSON is a text in YAML.
        let text = format!(
            "id: {}\ncwd: {}\ncreated_at: {}\n",
            json!(self.id()),
            json!(self.folder()),
            json!(self.opened_at),
        );
        self.files.write(WORKSPACE, &text).await?;
        let none = "# Checkpoints\n\nThe session has no checkpoints.\n";
        self.files.write(CHECKPOINTS, none).await?;
        Ok(())
    }

    /// Begins to copy the events.
    pub(super) fn begin_event_copy(self: &Arc<Self>, mode: OpenMode) {
        let from = (mode == OpenMode::Create).then_some(Version(1));
        let copy = EventCopy {
            translator: EventTranslator::new(self.translator_options(&self.choice)),
            events: self.session.subscribe(from),
            host: self.host_events.subscribe(),
            session: Arc::clone(self),
            has_warned: false,
        };
        // The close of the session waits for the last events.
        let under_way = self.feeds.token();
        let spec = WorkSpec::new(ItemKind::Future, "copy of the events");
        let spawned = self.scope.spawn(spec, |cx| async move {
            let _under_way = under_way;
            tokio::select! {
                _stopped = cx.stopped_at("copy of the events") => {}
                () = copy.run() => {}
            }
        });
        drop(spawned);
    }
}

impl EventCopy {
    async fn run(mut self) {
        loop {
            let events = tokio::select! {
                biased;
                event = self.host.recv() => match event {
                    Ok(event) => self.translator.host_event(&event, now()),
                    Err(RecvError::Lagged(_)) => {
                        self.warn("some events are missing");
                        Vec::new()
                    }
                    Err(RecvError::Closed) => return,
                },
                event = self.events.next() => match event {
                    Ok(Some(event)) => self.translator.session_event(&event, now()),
                    Ok(None) => return,
                    Err(error) => return self.warn(&error.to_string()),
                },
            };
            self.append(&events).await;
        }
    }

    async fn append(&mut self, events: &[CopilotEvent]) {
        let mut lines = String::new();
        for event in events.iter().filter(|event| !event.ephemeral) {
            let event = self.session.secrets.redact(json!(event));
            lines.push_str(&event.to_string());
            lines.push('\n');
        }
        if lines.is_empty() {
            return;
        }
        if let Err(error) = self.session.files.append(EVENTS, &lines).await {
            self.warn(&error.to_string());
        }
    }

    /// Reports once that the copy is incomplete.
    fn warn(&mut self, reason: &str) {
        if !self.has_warned {
            self.has_warned = true;
            let message = format!("the copy of the events in {EVENTS} is incomplete: {reason}");
            let message = message.into();
            self.session
                .send_host_event(HostEvent::NotOffered { message });
        }
    }
}
