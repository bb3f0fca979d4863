//! If the arguments of a call are not JSON, they are never replaced by `{}`.

use allstop_core::message::{Arguments, Message};
use allstop_core::record::{CallOutcome, SessionRecord, StartedCallKind};
use allstop_core::turn::{DraftError, IllegalEvent, TurnLimits};
use allstop_core::{CallId, Effect};
use serde_json::json;

use crate::driver::*;

const TRUNCATED: &str = r#"{"path": "/etc/pas"#;

#[test]
fn truncated_arguments_never_become_empty_ones() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let calls = session.ask(&mut draft, vec![malformed("a", "write", TRUNCATED)]);
    assert_eq!(
        calls[0].arguments,
        Arguments::Malformed(TRUNCATED.into()),
        "kept as they came"
    );

    let refused = draft.begin_call(&calls[0].id, Effect::ReadOnly, at());

    let illegal = IllegalEvent::MalformedArguments("a".into());
    assert_eq!(
        refused,
        Err(DraftError::Illegal(illegal)),
        "the tool cannot be run with them"
    );
    assert!(draft.state().open_calls().is_empty());
    let records = draft.reject_call(&calls[0].id, "the arguments are no JSON", at());
    let records = records.expect("it awaits its result");
    let SessionRecord::CallStarted { call, .. } = &records[0] else {
        panic!("{records:?}")
    };
    let StartedCallKind::Tool { arguments, .. } = &call.kind else {
        panic!("{call:?}")
    };
    assert_eq!(
        *arguments,
        Arguments::Malformed(TRUNCATED.into()),
        "the log has what was asked"
    );
    session.log.extend(records);

    session.answer(&mut draft, "sorry", usage(1, 1));
    assert_eq!(session.end(draft), Outcome::Committed);
    let Message::Tool(result) = &*session.conversation.messages[2] else {
        panic!("no result")
    };
    assert!(result.is_error);
}

#[test]
fn arguments_nested_too_deeply_are_malformed() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inside, _| json!([inside]));
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let asked = vec![
        call("a", "read", nested(128)),
        call("b", "read", nested(129)),
    ];
    let calls = session.ask(&mut draft, asked);
    assert_eq!(calls[0].arguments, nested(128).into());
    assert!(matches!(calls[1].arguments, Arguments::Malformed(_)));
}

#[test]
fn a_rejected_call_does_not_disturb_its_siblings() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let asked = vec![
        malformed("a", "write", TRUNCATED),
        call("b", "read", json!({})),
    ];
    let calls = session.ask(&mut draft, asked);
    session.begin_call(&mut draft, &calls[1].id);
    let records = draft
        .reject_call(&calls[0].id, "no JSON", at())
        .expect("it awaits its result");
    session.log.extend(records);
    let end = draft.finish_call(result(&calls[1].id, "done"), CallOutcome::Succeeded);
    session.log.push(end.expect("it is open"));
    session.answer(&mut draft, "ok", usage(1, 1));
    assert_eq!(session.end(draft), Outcome::Committed);
}

#[test]
fn denied_call_is_answered_once_and_never_unknown() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let calls = session.ask(
        &mut draft,
        vec![call("a", "shell", json!({"command": "rm"}))],
    );
    let records = draft.deny_call(&calls[0].id, "denied by the policy", at());
    let records = records.expect("it awaits its result");
    assert!(matches!(
        &records[1],
        SessionRecord::CallFinished {
            outcome: CallOutcome::Denied,
            ..
        }
    ));
    session.log.extend(records);
    let a = CallId::from("a");
    assert_eq!(
        draft.deny_call(&a, "again", at()),
        Err(IllegalEvent::NotAsked(a))
    );
    session.stop(draft, user());
    assert!(
        session.state().turns()[0].unknown_calls.is_empty(),
        "it never ran, and that is known"
    );
}
