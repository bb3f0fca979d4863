//! The lines of `--stream-json`.

use allstop_agent::AgentEvent;
use schemars::JsonSchema;
use serde::Serialize;

use crate::envelope::Envelope;

/// One line of `--stream-json`: events as they come, and the envelope as the last line, which alone has a `schema`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "A line of allstop --stream-json")]
pub enum StreamLine {
    /// Something happened.
    Event(AgentEvent),
    /// Some events were missed.
    Missed(EventsMissed),
    /// The run has ended; nothing follows.
    End(Box<Envelope>),
}

/// The reader was too slow, and misses some events. What must not be lost is in the log and in the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename = "events_missed")]
pub struct EventsMissed {
    /// How many.
    pub count: u64,
}
