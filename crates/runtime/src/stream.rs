//! The lines of `--stream-json`.

use allstop_agent::AgentEvent;
use allstop_core::Timestamp;
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
}

/// The reader was too slow: so many events before this line are not in the stream. What counts is in the answers of
/// the steps, in the envelope and in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename = "events_missed")]
pub struct EventsMissed {
    /// How many.
    pub count: u64,
}
