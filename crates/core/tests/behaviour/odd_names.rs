//! A strict provider refuses a whole history if one name or id is invalid. A request never contains an invalid name or
//! id.

use std::sync::Arc;

use allstop_core::message::{Message, ToolCall, ToolResult, check_history};
use allstop_core::turn::{Conversation, TurnLimits};
use allstop_core::{CallId, Images, ToolCall as Call};
use serde_json::json;

use crate::driver::*;

fn odd_names() -> [String; 6] {
    [
        "functions.shell".to_owned(),
        String::new(),
        "x".repeat(5_000),
        "shell\n\u{1b}[31m".to_owned(),
        "größe".to_owned(),
        "a b/c".to_owned(),
    ]
}

/// Checks that names match `^[a-zA-Z0-9_-]{1,64}$` and that ids have at most 40 characters.
fn check_request(messages: &[Arc<Message>]) {
    let is_plain = |text: &str, max: usize| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (1..=max).contains(&text.len()) && text.chars().all(fits)
    };
    for message in messages {
        match &**message {
            Message::Assistant { tool_calls, .. } => {
                for call in tool_calls {
                    assert!(is_plain(&call.name, 64), "{:?}", call.name);
                    assert!(is_plain(call.id.as_str(), 40), "{:?}", call.id);
                }
            }
            Message::Tool(result) => assert!(is_plain(result.call_id.as_str(), 40)),
            _ => {}
        }
    }
    check_history(messages.iter().map(AsRef::as_ref)).expect("one result for each call");
}

fn call(id: &str, name: &str) -> ToolCall {
    Call {
        id: CallId::from(id),
        name: name.into(),
        arguments: json!({}).into(),
    }
}

#[test]
fn invented_tool_name_is_valid_in_the_next_request() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let asked = odd_names();
    let calls = asked.iter().map(|name| call(name, name)).collect();
    let calls = session.ask(&mut draft, calls);
    for (call, asked) in calls.iter().zip(&asked) {
        assert!(call.name.len() <= 131, "a label has a bound");
        let kept = call.name.trim_end_matches('…');
        assert!(asked.starts_with(kept), "the log has what the model said");
        let records = draft.reject_call(&call.id, "unknown tool", at());
        session.log.extend(records.expect("it awaits its result"));
    }
    check_request(&draft.request_messages());
    session.answer(&mut draft, "sorry", usage(1, 1));
    assert_eq!(session.end(draft), Outcome::Committed);
    let again = session.begin("again");
    check_request(&again.request_messages());
    assert_eq!(again.request_messages(), again.request_messages());
}

#[test]
fn stored_odd_names_are_valid_in_a_request() {
    let mut messages = vec![Arc::new(Message::user("go"))];
    let ids = odd_names();
    messages.push(Arc::new(Message::Assistant {
        text: "".into(),
        tool_calls: ids.iter().map(|id| call(id, id)).collect(),
    }));
    messages.extend(ids.iter().map(|id| {
        Arc::new(Message::Tool(ToolResult {
            images: Images::default(),
            call_id: CallId::from(id.as_str()),
            content: "there is no such tool".into(),
            is_error: true,
        }))
    }));
    let stored = Conversation {
        messages,
        turns: 1,
        ..Conversation::default()
    };
    let mut session = Session::new(TurnLimits::default());
    session.conversation = Arc::new(stored);
    let draft = session.begin("and now?");
    check_request(&draft.request_messages());
    // A valid message is shared, not copied.
    assert!(Arc::ptr_eq(
        &draft.request_messages()[0],
        &session.conversation.messages[0]
    ));
}
