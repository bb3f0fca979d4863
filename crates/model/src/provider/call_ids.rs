//! Gives the tool calls of a conversation unique ids.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_core::{CallId, Message};

/// Call ids that the conversation already contains.
pub(super) struct CallIds {
    taken: HashSet<CallId>,
}

impl CallIds {
    pub(super) fn avoiding(messages: &[Arc<Message>]) -> Self {
        let taken = messages
            .iter()
            .filter_map(|message| match &**message {
                Message::Assistant { tool_calls, .. } => Some(tool_calls),
                _ => None,
            })
            .flatten()
            .map(|call| call.id.clone())
            .collect();
        Self { taken }
    }

    /// Returns the provider's id. If the conversation already contains this id, adds a number. Many servers start again
    /// at `call_0` in each answer, and some servers send no id.
    pub(super) fn unique(&mut self, given: &str) -> CallId {
        let base = if given.trim().is_empty() {
            "call"
        } else {
            given
        };
        let mut id: CallId = base.into();
        let mut n = 1;
        while !self.taken.insert(id.clone()) {
            n += 1;
            id = format!("{base}_{n}").into();
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::ToolCall;
    use allstop_core::message::Arguments;
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_unique_in_the_conversation() {
        let call = ToolCall {
            id: "call_0".into(),
            name: "t".into(),
            arguments: Arguments::from(json!({})),
        };
        let before = Message::Assistant {
            text: "".into(),
            tool_calls: vec![call],
        };
        let mut ids = CallIds::avoiding(&[Arc::new(before)]);
        assert_eq!(ids.unique("call_0").as_str(), "call_0_2");
        assert_eq!(ids.unique("call_1").as_str(), "call_1");
        assert_eq!(ids.unique("").as_str(), "call");
        assert_eq!(ids.unique("").as_str(), "call_2");
    }
}
