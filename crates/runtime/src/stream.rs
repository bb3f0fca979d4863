//! The lines of `--stream-json`.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::{CallId, Receipt, Timestamp};
use allstop_tools::mcp::{McpState, McpStatusEvent};
use schemars::JsonSchema;
use serde::Serialize;

use crate::envelope::Envelope;

/// One line of `--stream-json`: an event when it happens, and the envelope as the last line.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "A line of allstop --stream-json")]
pub enum StreamLine<'a> {
    /// An event.
    Event(EventLine<'a>),
    /// End of the run, which is the last line.
    End(Box<Envelope>),
}

/// Version of the format of an event line.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub enum EventSchema {
    /// Version 1.
    #[default]
    #[serde(rename = "allstop.event/1")]
    V1,
}

/// An event, with the time of its line.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventLine<'a> {
    /// Version of this format.
    pub schema: EventSchema,
    /// Creation time of the line.
    pub at: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub event: StreamEvent<'a>,
}

/// Kinds of events.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StreamEvent<'a> {
    /// Event of the run.
    Agent(&'a AgentEvent),
    /// Gap in the stream.
    Missed(EventsMissed),
    /// State change of an MCP server.
    McpServer(McpServerEvent),
    /// Event of a watch.
    Watch(WatchStreamEvent<'a>),
}

/// Events that occur only in `allstop watch --json`, which watches a session of another process.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchStreamEvent<'a> {
    /// The user sent a message, which the running turn answers.
    UserMessage {
        /// The message.
        text: &'a str,
    },
    /// A permission question is open.
    QuestionOpened {
        /// Id of the question.
        question_id: &'a QuestionId,
        /// The call.
        call_id: &'a CallId,
        /// The question.
        text: &'a str,
    },
    /// A question was answered or withdrawn.
    QuestionClosed {
        /// Id of the question.
        question_id: &'a QuestionId,
        /// True if the call may run; `null` if the question was withdrawn.
        allowed: Option<bool>,
        /// Name of the person or client that answered; `null` for the terminal of the session.
        by: Option<&'a str>,
    },
    /// A line that the terminal of the session displays.
    Note {
        /// The line.
        text: &'a str,
    },
    /// A stop has begun.
    StopBegun {
        /// Milliseconds until the stop uses force.
        force_in_ms: u64,
    },
    /// The receipt of a stop is complete.
    Receipt {
        /// The receipt.
        receipt: &'a Receipt,
    },
    /// The session was closed. This is the last event.
    SessionEnded,
}

/// The reader was too slow: `count` events before this line are missing in the stream. The answers of the steps, the
/// envelope and the log still contain all results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename = "events_missed")]
pub struct EventsMissed {
    /// Number of missed events.
    pub count: u64,
}

/// An MCP server became unavailable, or is available again. Each outage is reported once. A second report follows when
/// the automatic attempts end; from then on only a tool call tries the server again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename = "mcp_server")]
pub struct McpServerEvent {
    /// Name of the server.
    pub server: Arc<str>,
    /// True if the server's tools can be called.
    pub available: bool,
    /// Reason for the outage.
    pub why: Option<Arc<str>>,
    /// Milliseconds until the next attempt to start the server; `null` if the server is available, or if only a call of
    /// one of its tools tries again.
    pub next_try_ms: Option<u64>,
    /// Tools of the server, by the names that models use. Their calls fail while the server is unavailable.
    pub tools: Vec<Arc<str>>,
}

impl From<&McpStatusEvent> for McpServerEvent {
    fn from(change: &McpStatusEvent) -> Self {
        let (why, next_try) = match &change.state {
            McpState::Degraded { why, next_try } => (Some(Arc::clone(why)), *next_try),
            _ => (None, None),
        };
        let left = next_try.map(|at| at.saturating_duration_since(tokio::time::Instant::now()));
        Self {
            server: Arc::clone(&change.server),
            available: why.is_none(),
            why,
            next_try_ms: left.and_then(|left| left.as_millis().try_into().ok()),
            tools: change.tools.clone(),
        }
    }
}
