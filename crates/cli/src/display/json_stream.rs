//! `--stream-json`: one line of JSON for each event, then a line with the envelope (the JSON object with the result of
//! the run).

use std::time::SystemTime;

use allstop_agent::AgentEvent;
use allstop_core::Timestamp;
use allstop_runtime::{EventLine, EventSchema, EventsMissed, StreamEvent, WatchStreamEvent};
use allstop_terminal::{OutputPriority, OutputQueue};
use allstop_tools::mcp::McpStatusEvent;
use serde_json::Value;

use super::watch::EventView;

/// Writes events as lines of JSON.
#[derive(Debug)]
pub(crate) struct JsonStream {
    queue: OutputQueue,
    missed: u64,
    /// True if a stop has begun.
    stopping: bool,
    now: fn() -> Timestamp,
}

impl JsonStream {
    /// Writes to this queue, which is standard output.
    pub(crate) fn new(queue: OutputQueue) -> Self {
        let now = || Timestamp::from(SystemTime::now());
        Self {
            queue,
            missed: 0,
            stopping: false,
            now,
        }
    }

    /// Because a stop has begun, drops the pieces of answers and the output of calls from now on, and counts them as
    /// missed. A command with much output leaves thousands of such events, and writing them would take longer than the
    /// stop itself.
    pub(crate) fn stopping(&mut self) {
        self.stopping = true;
    }

    /// Writes the last line, the envelope. This line is queued even if the queue is full.
    pub(crate) fn envelope(&mut self, envelope: &Value) {
        self.write_missed_count(OutputPriority::Last);
        self.queue.json(&envelope.to_string(), OutputPriority::Last);
    }

    /// Writes a line about an MCP server that became unavailable or available again. Returns true if the line was
    /// queued.
    pub(crate) fn server(&self, change: &McpStatusEvent) -> bool {
        self.line(
            StreamEvent::McpServer(change.into()),
            OutputPriority::Required,
        )
    }

    /// Writes an event that only a watching terminal (`allstop watch`) receives.
    pub(crate) fn watched(&mut self, event: WatchStreamEvent<'_>) {
        self.write_missed_count(OutputPriority::Required);
        if !self.line(StreamEvent::Watch(event), OutputPriority::Required) {
            self.missed += 1;
        }
    }

    fn line(&self, event: StreamEvent<'_>, priority: OutputPriority) -> bool {
        let (schema, at) = (EventSchema::V1, (self.now)());
        let line = serde_json::to_string(&EventLine { schema, at, event });
        // Events contain only strings and numbers, so serialisation cannot fail.
        line.is_ok_and(|line| self.queue.json(&line, priority))
    }

    /// Writes the number of missed events as soon as the queue has room.
    fn write_missed_count(&mut self, priority: OutputPriority) {
        let count = self.missed;
        if count > 0 && self.line(StreamEvent::Missed(EventsMissed { count }), priority) {
            self.missed = 0;
        }
    }
}

impl EventView for JsonStream {
    fn event(&mut self, event: &AgentEvent) {
        let is_delta = matches!(
            event,
            AgentEvent::TextDelta { .. } | AgentEvent::ReasoningDelta { .. }
        );
        let is_output = is_delta
            || matches!(
                event,
                AgentEvent::ToolOutput { .. } | AgentEvent::ToolProgress { .. }
            );
        if self.stopping && is_output {
            self.missed += 1;
            return;
        }
        let priority = if is_delta {
            OutputPriority::IfRoom
        } else {
            OutputPriority::Required
        };
        // The line with the count comes before this event, at the position of the missed events.
        self.write_missed_count(priority);
        if !self.line(StreamEvent::Agent(event), priority) {
            self.missed += 1;
        }
    }

    fn missed(&mut self, count: u64) {
        self.missed += count;
    }
}

#[cfg(test)]
mod tests;
