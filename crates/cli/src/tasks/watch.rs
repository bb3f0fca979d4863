//! `tasks watch`: shows the live events of a task, and reconnects after a lost connection.

use std::io;
use std::time::{Duration, Instant};

use allstop_core::error_chain;
use allstop_terminal::{Styled, styled};
use futures::StreamExt as _;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use sse_stream::{Sse, SseStream};

use super::artifact_chunks::ArtifactChunks;
use super::client::{RequestError, TaskServer};
use super::find::{FoundTask, find};
use super::wire::{ServerEvent, ServerTaskState, TaskEndInfo};
use super::{CANCELLED, TaskPrinter, view};
use crate::error::CliError;
use crate::json_document::DocumentSchema;
use crate::shell_quote::quoted;

/// First and maximum pause before a reconnect.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Maximum time without an answer from the server. A restart of a server takes seconds; after this time a script gets an
/// error instead of a command that never ends.
pub(crate) const UNANSWERED_MAX: Duration = Duration::from_secs(30);

/// State of the watch of one task.
struct TaskWatch<'a> {
    server: &'a TaskServer,
    id: String,
    as_json: bool,
    printer: &'a TaskPrinter<'a>,
    /// Id of the last event, after which a new connection resumes.
    last_event: Option<String>,
    chunks: ArtifactChunks,
    /// State that was shown last.
    state: Option<ServerTaskState>,
    ended: Option<ServerTaskState>,
}

pub(super) async fn watch(
    server: &TaskServer,
    given: &str,
    as_json: bool,
    printer: &TaskPrinter<'_>,
) -> Result<u8, CliError> {
    let found = find(server, given).await?;
    let mut watch = TaskWatch {
        server,
        id: found.task.id.clone(),
        as_json,
        printer,
        last_event: None,
        chunks: ArtifactChunks::default(),
        state: None,
        ended: None,
    };
    if found.task.status.state.is_terminal() {
        watch.ended = Some(found.task.status.state.clone());
        watch.show_ended(&found);
    } else {
        watch.follow().await?;
    }
    Ok(exit_code(watch.ended.as_ref()))
}

fn exit_code(ended: Option<&ServerTaskState>) -> u8 {
    match ended.map(ServerTaskState::word).as_deref() {
        Some("completed") => 0,
        Some("canceled") => CANCELLED,
        _ => 1,
    }
}

/// Maximum bytes of an event, enough for a task with a long history. The server may be untrusted, so its data is
/// bounded.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Length of the current event in bytes. An empty line ends the event.
#[derive(Debug, Default)]
struct EventLength {
    bytes: usize,
    has_text: bool,
}

impl EventLength {
    /// Counts these bytes.
    ///
    /// # Errors
    /// If the event is too long.
    fn take(&mut self, chunk: &[u8]) -> io::Result<()> {
        for byte in chunk {
            self.bytes += 1;
            match byte {
                b'\n' if !self.has_text => self.bytes = 0,
                b'\n' => self.has_text = false,
                b'\r' => {}
                _ => self.has_text = true,
            }
            if self.bytes > EVENT_BYTES_MAX {
                return Err(io::Error::other("an event is too long"));
            }
        }
        Ok(())
    }
}

impl TaskWatch<'_> {
    /// Follows the task to its end. Reconnects if the connection is lost.
    async fn follow(&mut self) -> Result<(), CliError> {
        let mut pause = PAUSE_MIN;
        let mut lost_at = None;
        loop {
            let opened = self
                .server
                .events(&self.id, self.last_event.as_deref())
                .await;
            let followed = match opened {
                Ok(response) => {
                    if lost_at.take().is_some() {
                        self.printer.note("connected again");
                    }
                    let before = self.last_event.clone();
                    let followed = self.read(response).await;
                    if self.last_event != before {
                        pause = PAUSE_MIN;
                    }
                    followed
                }
                Err(error) => Err(error),
            };
            let reason = match followed {
                Ok(()) => return Ok(()),
                Err(RequestError::Connection(_)) => "the server does not answer".to_owned(),
                Err(RequestError::Refused { status, error }) if status.is_server_error() => {
                    error.message
                }
                Err(error) => {
                    // The task may have ended since the last request. In that case, a server without numbered events
                    // refuses the subscription.
                    return self.end_or(error).await;
                }
            };
            if lost_at.is_none() {
                let said = format!("{reason}; trying again for {} s", UNANSWERED_MAX.as_secs());
                self.printer.note(&said);
            }
            if lost_at.get_or_insert_with(Instant::now).elapsed() >= UNANSWERED_MAX {
                return Err(self.unanswered(&reason));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Error after [`UNANSWERED_MAX`].
    fn unanswered(&self, reason: &str) -> CliError {
        let seconds = UNANSWERED_MAX.as_secs();
        let error = CliError::failure(format!(
            "{reason}, for {seconds} s: the state of the task is unknown"
        ));
        let watch = format!(
            "allstop tasks --server {} watch {}",
            quoted(self.server.address()),
            self.id
        );
        error.hint(format!(
            "once the server runs again, continue with `{watch}`"
        ))
    }

    async fn end_or(&mut self, error: RequestError) -> Result<(), CliError> {
        let Ok(found) = self.server.task(&self.id).await else {
            return Err(error.into());
        };
        let found = FoundTask::of(found)?;
        if !found.task.status.state.is_terminal() {
            return Err(error.into());
        }
        self.ended = Some(found.task.status.state.clone());
        self.show_ended(&found);
        Ok(())
    }

    /// Shows the events of a connection until the task ends.
    ///
    /// # Errors
    /// If the connection or the stream ends first.
    async fn read(&mut self, response: Response) -> Result<(), RequestError> {
        let lost = |reason: String| RequestError::Connection(CliError::failure(reason));
        let mut length = EventLength::default();
        let bytes = response.bytes_stream().map(|chunk| {
            let chunk = chunk.map_err(io::Error::other)?;
            length.take(&chunk).map(|()| chunk)
        });
        let mut events = SseStream::from_bytes_stream(bytes);
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| {
                lost(format!("the connection was lost: {}", error_chain(&error)))
            })?;
            if self.take(&event)? {
                return Ok(());
            }
        }
        Err(lost("the connection was closed".to_owned()))
    }

    /// Shows an event. Returns true if the event was the last one of the task.
    ///
    /// # Errors
    /// If the server ends the stream with an error, such as a revoked token, or sends an unknown event.
    fn take(&mut self, event: &Sse) -> Result<bool, RequestError> {
        let Some(data) = event.data.as_deref() else {
            return Ok(false); // a comment
        };
        if event.event.as_deref() == Some("error") {
            return Err(self.server.stream_error(data));
        }
        let parsed: ServerEvent =
            serde_json::from_str(data).map_err(|error| RequestError::Refused {
                status: StatusCode::OK,
                error: CliError::failure(format!("the server sent an unknown event: {error}")),
            })?;
        if self.as_json {
            // The event is parsed again as the server sent it, so it keeps keys that this client does not know.
            let event: Value = serde_json::from_str(data).unwrap_or_default();
            self.printer.json(DocumentSchema::TaskEvent, &event);
        }
        self.last_event = event.id.clone().or(self.last_event.take());
        self.show(parsed);
        Ok(self.ended.is_some())
    }

    fn show(&mut self, event: ServerEvent) {
        let (style, width) = (self.printer.style, self.printer.width);
        let mut lines = Styled::default();
        match event {
            ServerEvent::Task(task) => {
                self.chunks = ArtifactChunks::default();
                lines.push(&view::show(&task, style, width));
                self.state = Some(task.status.state.clone());
                self.ended = Some(task.status.state).filter(ServerTaskState::is_terminal);
            }
            ServerEvent::StatusUpdate { status, metadata } => {
                for artifact in self.chunks.take_rest() {
                    lines.push(&view::said(artifact.name(), &artifact.text(), style));
                }
                if self.state.as_ref() != Some(&status.state) {
                    lines.push_line(&styled!["state: ", view::state(&status.state, style)]);
                }
                let end = TaskEndInfo::of(&metadata);
                if let Some(message) = view::said_by_agent(status.message.as_ref(), &end) {
                    lines.push(&view::said("agent", &message, style));
                }
                if status.state.is_terminal() {
                    lines.push(&view::end(&end, style, width));
                }
                self.state = Some(status.state.clone());
                self.ended = Some(status.state).filter(ServerTaskState::is_terminal);
            }
            ServerEvent::ArtifactUpdate {
                artifact,
                append,
                last_chunk,
            } => {
                if let Some(artifact) = self.chunks.take(artifact, append, last_chunk) {
                    lines.push(&view::said(artifact.name(), &artifact.text(), style));
                }
            }
            ServerEvent::Message(message) => {
                lines.push(&view::said("agent", &message.text(), style));
            }
        }
        if !self.as_json && !lines.is_empty() {
            self.printer.lines(lines);
        }
    }

    fn show_ended(&self, found: &FoundTask) {
        if self.as_json {
            let event = json!({"task": found.json});
            self.printer.json(DocumentSchema::TaskEvent, &event);
        } else {
            let (style, width) = (self.printer.style, self.printer.width);
            self.printer.lines(view::show(&found.task, style, width));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_event_without_an_end_is_too_long() {
        let mut length = EventLength::default();
        let half = vec![b'a'; EVENT_BYTES_MAX / 2];
        for end in ["\n\n", "\r\n\r\n"] {
            length.take(&half).unwrap();
            length.take(end.as_bytes()).unwrap();
        }
        // Several lines belong to the same event until an empty line ends it.
        length.take(&half).unwrap();
        length.take(b"\n").unwrap();
        length.take(&half).unwrap_err();
    }
}
