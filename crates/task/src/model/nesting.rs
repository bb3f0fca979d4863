//! Limit for the nesting of JSON from executors. With this limit, every stored value can be parsed again.

use serde_json::Value;

use super::event::TaskEvent;
use super::message::{JsonMap, MessagePart, PartContent, TaskMessage};

/// Maximum nesting of a JSON value. The parser reads 128 levels. A record adds at most six levels around a value, and
/// an answer of a protocol adds at most ten.
pub(crate) const NESTING_MAX: usize = 100;

/// True if the nesting of a value in the event is too deep for the parser.
pub(crate) fn is_too_deep(event: &TaskEvent) -> bool {
    match event {
        TaskEvent::Status(update) => {
            has_deep_field(&update.metadata)
                || update.message.as_deref().is_some_and(has_deep_message)
        }
        TaskEvent::Artifact(update) => {
            has_deep_field(&update.metadata)
                || has_deep_field(&update.artifact.metadata)
                || update.artifact.parts.iter().any(has_deep_part)
        }
        TaskEvent::Reply(message) => has_deep_message(message),
        TaskEvent::Stopped(work) => work.message.as_deref().is_some_and(has_deep_message),
    }
}

fn has_deep_message(message: &TaskMessage) -> bool {
    has_deep_field(&message.metadata) || message.parts.iter().any(has_deep_part)
}

fn has_deep_part(part: &MessagePart) -> bool {
    let is_deep = matches!(&part.content, PartContent::Data(data) if exceeds(data, NESTING_MAX));
    is_deep || has_deep_field(&part.metadata)
}

fn has_deep_field(map: &JsonMap) -> bool {
    map.values().any(|value| exceeds(value, NESTING_MAX - 1))
}

/// True if a value has more than `levels` levels. The search stops at this number, so the recursion is limited.
fn exceeds(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(values) => values.iter().any(|value| exceeds(value, below)),
        Value::Object(fields) => fields.values().any(|value| exceeds(value, below)),
        _ => false,
    }
}
