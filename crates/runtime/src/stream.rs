//! The lines of `--stream-json`.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::Timestamp;
use allstop_tools::mcp::{McpChange, McpState};
use schemars::JsonSchema;
use serde::Serialize;

use crate::envelope::Envelope;

/// One line of `--stream-json`: events as they come, and the envelope as the last line.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "A line of allstop --stream-json")]
pub enum StreamLine<'a> {
    /// Something happened.
    Event(EventLine<'a>),
    /// The run has ended; nothing follows.
    End(Box<Envelope>),
}

/// The version of an event line's form.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub enum EventSchema {
    /// The first.
    #[default]
    #[serde(rename = "allstop.event/1")]
    V1,
}

/// An event, and when its line was made.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventLine<'a> {
    /// The version of this form.
    pub schema: EventSchema,
    /// When the line was made.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub event: StreamEvent<'a>,
}

/// What happened.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StreamEvent<'a> {
    /// In the run.
    Agent(&'a AgentEvent),
    /// Some events were missed.
    Missed(EventsMissed),
    /// Of a server of tools.
    McpServer(McpServerEvent),
}

/// The reader was too slow: so many events before this line are not in the stream. What counts is in the answers of
/// the steps, in the envelope and in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename = "events_missed")]
pub struct EventsMissed {
    /// How many.
    pub count: u64,
}

/// A server of tools is not available, or is there again. Each outage is told once, and once more when only a call tries
/// the server again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename = "mcp_server")]
pub struct McpServerEvent {
    /// Its name.
    pub server: Arc<str>,
    /// Whether its tools can be called.
    pub available: bool,
    /// Why not.
    pub why: Option<Arc<str>>,
    /// In how many milliseconds it is tried again; `null`: at the next call of one of its tools, or it is available.
    pub next_try_ms: Option<u64>,
    /// Its tools, as models call them. While it is not available their calls fail.
    pub tools: Vec<Arc<str>>,
}

impl From<&McpChange> for McpServerEvent {
    fn from(change: &McpChange) -> Self {
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
