//! Checks of the messages in requests to a model.

use serde_json::Value;

/// Checks that every call has exactly one result, that this result comes before the next message of another role, and
/// that every result has a call.
#[track_caller]
pub(crate) fn assert_valid(messages: &[Value]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message["role"].as_str() {
            Some("tool") => {
                let id = message["tool_call_id"]
                    .as_str()
                    .expect("a result names its call");
                let at = open.iter().position(|call| *call == id);
                let at = at.unwrap_or_else(|| {
                    panic!("{id} was not asked for, or twice answered: {messages:#?}")
                });
                open.remove(at);
            }
            role => {
                assert!(
                    open.is_empty(),
                    "{open:?} unanswered before {role:?}: {messages:#?}"
                );
                let calls = message["tool_calls"].as_array();
                for call in calls.into_iter().flatten() {
                    open.push(call["id"].as_str().expect("a call has an id"));
                    let arguments = call["function"]["arguments"].as_str().expect("text");
                    serde_json::from_str::<Value>(arguments).expect("arguments are JSON");
                }
            }
        }
    }
    assert!(
        open.is_empty(),
        "{open:?} unanswered at the end: {messages:#?}"
    );
}

/// Texts of the user's messages.
pub(crate) fn prompts(messages: &[Value]) -> Vec<String> {
    messages
        .iter()
        .filter(|message| message["role"] == "user")
        .map(text_of)
        .collect()
}

/// Text of a message, whose content may be a string or a list of parts.
pub(crate) fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

/// The text without the note about the effects of earlier turns, which providers receive in the same message.
pub(crate) fn without_note(text: &str) -> &str {
    if text.starts_with("Note of Allstop") {
        text.rsplit_once("\n\n").map_or(text, |(_, prompt)| prompt)
    } else {
        text
    }
}
