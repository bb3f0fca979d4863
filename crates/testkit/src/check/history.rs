//! Requests to the model have exactly one result for each tool call, in place (invariant 7).

use std::sync::Arc;

use allstop_core::Message;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "history",
    invariant: Invariant::NoInvalidHistory,
    class: FailureClass::CorruptHistory,
    needs: &[EvidenceKind::Records],
    check,
};

/// Checks that a provider would take these messages: each message with tool calls is followed by exactly one result for
/// each of them, and there is no other result.
///
/// Written anew and not taken from the engine, so that the two cannot be wrong together.
///
/// # Errors
/// The first violation, in words.
pub fn history(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        at += 1;
        let Message::Assistant { tool_calls, .. } = &**message else {
            if let Message::Tool(result) = &**message {
                return Err(format!(
                    "message {at} answers {}, which nobody asked",
                    result.call_id
                ));
            }
            continue;
        };
        let mut asked: Vec<&str> = tool_calls.iter().map(|call| call.id.as_str()).collect();
        while let Some(Message::Tool(result)) = messages.get(at).map(AsRef::as_ref) {
            let Some(open) = asked.iter().position(|id| *id == result.call_id.as_str()) else {
                return Err(format!(
                    "message {} answers {}, which is not open",
                    at + 1,
                    result.call_id
                ));
            };
            asked.remove(open);
            at += 1;
        }
        if !asked.is_empty() {
            return Err(format!(
                "no result for {} before message {}",
                asked.join(", "),
                at + 1
            ));
        }
    }
    Ok(())
}

fn check(observation: &RunObservation) -> Result<(), String> {
    for (number, request) in observation.requests.iter().enumerate() {
        history(request).map_err(|wrong| format!("request {}: {wrong}", number + 1))?;
    }
    history(&super::conversation_of(&observation.records_after_next))
}
