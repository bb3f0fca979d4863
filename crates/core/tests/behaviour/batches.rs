//! Batches of tool calls: after any stop, each call has exactly one result in the history.

use allstop_core::message::check_history;
use allstop_core::receipt::{
    EndMethod, EndProof, Evidence, ItemKind, ItemState, NotStoppedReason, ReceiptItem,
    StopFindings, StopInfo,
};
use allstop_core::record::CallOutcome;
use allstop_core::turn::{
    DraftError, IllegalEvent, NextAction, NotCommittedReason, StopPolicy, StoppedTurn, TurnLimits,
    TurnStop,
};
use allstop_core::{CallId, Extent, FinishReason, Message, Receipt, StopReason};
use allstop_core::{Cause, CauseKind};
use serde_json::json;
use std::time::Duration;

use crate::driver::*;

fn keep() -> Session {
    Session {
        policy: StopPolicy::Keep,
        ..Session::new(TurnLimits::default())
    }
}

fn texts(session: &Session) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User { text, .. } => format!("user: {text}"),
        Message::Assistant { text, tool_calls } => {
            let ids: Vec<_> = tool_calls.iter().map(|call| call.id.as_str()).collect();
            format!("model: {text}{}", ids.join(","))
        }
        Message::Tool(result) => format!("{}: {}", result.call_id, result.content),
        Message::Note { text } => format!("note: {text}"),
        Message::Summary { text } => format!("summary: {text}"),
        Message::StopMarker { text } => format!("marker: {text}"),
    };
    session
        .conversation
        .messages
        .iter()
        .map(|message| text(message))
        .collect()
}

fn receipt_of(items: &[(&str, ItemState)]) -> Receipt {
    let request = StopInfo {
        stop_id: "stop".into(),
        target: "session/s/turn/1".into(),
        extent: Extent::Turn,
        cause: user(),
        requested_at: at(),
    };
    let items = items
        .iter()
        .map(|(id, state)| ReceiptItem::new(ItemKind::ToolCall, *id, "shell", state.clone()));
    let findings = StopFindings {
        items: items.collect(),
        elapsed: Duration::from_millis(3),
    };
    Receipt::of_stop(request, findings)
}

fn ended() -> ItemState {
    ItemState::Stopped {
        how: EndMethod::Sigterm,
        evidence: Evidence::verified(EndProof::ProcessTreeEmpty),
        after_ms: Duration::from_millis(3).into(),
    }
}

fn outcome_of(stopped: &StoppedTurn, wanted: &str) -> Option<CallOutcome> {
    stopped.records.iter().find_map(|record| match record {
        allstop_core::record::SessionRecord::CallFinished { id, outcome, .. }
            if id.as_str() == wanted =>
        {
            Some(*outcome)
        }
        _ => None,
    })
}

#[test]
fn cancel_in_mid_batch_leaves_no_call_without_result() {
    let mut session = keep();
    let draft = turn_in_two_tools(&mut session);
    session.stop(draft, user());
    assert_eq!(
        texts(&session),
        [
            "user: go",
            "model: a",
            "a: done",
            "model: b,c",
            "b: Stopped without a result (user (ctrl-c)); it may have completed. Check before repeating it.",
            "c: Not run: the turn was stopped before (user (ctrl-c)).",
            "marker: The turn was stopped here (user (ctrl-c)).",
        ]
    );
    assert_eq!(
        session.conversation.usage,
        usage(16, 4),
        "the completed steps"
    );
    assert_eq!(session.conversation.turns, 1);
    assert_eq!(session.turn("next", usage(1, 1)), Outcome::Committed);
}

#[test]
fn rollback_in_mid_batch_leaves_only_the_metered_usage() {
    let mut session = Session::new(TurnLimits::default());
    let draft = turn_in_two_tools(&mut session);
    session.stop(draft, user());
    assert!(session.conversation.messages.is_empty());
    assert_eq!(session.conversation.usage, usage(0, 0));
    let state = session.state();
    let unknown: Vec<_> = state.turns()[0]
        .unknown_calls
        .iter()
        .map(|c| c.id.as_str())
        .collect();
    assert_eq!(unknown, ["b"], "effects are never forgotten");
    assert_eq!(state.metered(), usage(16, 4));
}

#[test]
fn open_call_ends_as_listed_in_its_receipt() {
    for (state, outcome, told) in [
        (
            ended(),
            CallOutcome::Stopped,
            "Stopped by SIGTERM before it had a result (user (ctrl-c)). Nothing of it runs any more.",
        ),
        (
            ItemState::Unknown {
                how: EndMethod::Dropped,
                after_ms: None,
            },
            CallOutcome::Unknown,
            "Stopped without a result (user (ctrl-c)); it may have completed. Check before repeating it.",
        ),
        (
            ItemState::StillRunning {
                why: NotStoppedReason::BlockingThread,
            },
            CallOutcome::Unknown,
            "The turn was stopped (user (ctrl-c)), but this call could not be and may still run.",
        ),
    ] {
        let mut session = keep();
        let draft = turn_in_two_tools(&mut session);
        let receipt = receipt_of(&[("b", state)]);
        let stopped = draft.stop(TurnStop::new(user(), StopPolicy::Keep, at()).receipt(receipt));
        assert_eq!(outcome_of(&stopped, "b"), Some(outcome));
        assert_eq!(outcome_of(&stopped, "c"), None, "it never started");
        let receipt = stopped.receipt.clone().expect("there was one");
        let kept = allstop_core::receipt::ConversationEffect::KeptCompletedSteps;
        assert_eq!(
            (receipt.conversation(), receipt.usage()),
            (kept, usage(16, 4))
        );
        session.conversation = stopped.conversation;
        session.log.extend(stopped.records);
        session.check();
        assert_eq!(texts(&session)[4], format!("b: {told}"));
    }
}

#[test]
fn missing_results_in_mid_batch_are_filled_in_call_order() {
    let mut session = keep();
    let mut draft = session.begin("go");
    let calls = ["a", "b", "c", "d"]
        .map(|id| call(id, "read", json!({})))
        .to_vec();
    let calls = session.ask(&mut draft, calls);
    // The last call finishes first, and the first call finishes last. The two calls between them do not finish.
    session.run_call(&mut draft, &calls[3].id);
    session.begin_call(&mut draft, &calls[1].id);
    session.run_call(&mut draft, &calls[0].id);
    check_request(&draft);
    session.stop(draft, user());
    let ids: Vec<String> = texts(&session)[2..6]
        .iter()
        .map(|t| t[..1].to_owned())
        .collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
}

#[test]
fn the_request_is_valid_at_every_point_of_a_batch() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    check_request(&draft);
    let calls = ["a", "b", "c"]
        .map(|id| call(id, "read", json!({})))
        .to_vec();
    let calls = session.ask(&mut draft, calls);
    for call in calls.iter().rev() {
        check_request(&draft);
        session.begin_call(&mut draft, &call.id);
        check_request(&draft);
        let record = draft.finish_call(result(&call.id, "done"), CallOutcome::Succeeded);
        session.log.push(record.expect("it is open"));
    }
    check_request(&draft);
    assert_eq!(draft.request_messages().len(), 5);
    session.answer(&mut draft, "done", usage(1, 1));
    session.end(draft);
    let order: Vec<String> = texts(&session)[2..5]
        .iter()
        .map(|t| t[..1].to_owned())
        .collect();
    assert_eq!(
        order,
        ["a", "b", "c"],
        "results are in the order of the calls"
    );
}

#[test]
fn a_step_cannot_begin_while_a_call_has_no_result() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = turn_in_two_tools(&mut session);
    let steps = draft.state().steps();
    let refused = draft
        .begin_step(&model(), 1, at())
        .expect_err("b and c have no result");
    assert_eq!(
        refused,
        DraftError::Illegal(IllegalEvent::CallOpen("b".into()))
    );
    assert_eq!(draft.state().steps(), steps);
}

#[test]
fn partial_answer_is_dropped_with_its_calls() {
    let mut session = keep();
    let mut draft = session.begin("go");
    let calls = session.ask(&mut draft, vec![call("a", "read", json!({}))]);
    session.run_call(&mut draft, &calls[0].id);
    let step = draft.begin_step(&model(), 10, at()).expect("it begins");
    session.log.push(step.record);
    let end = draft
        .abandon_model(CallOutcome::Stopped, usage(5, 1))
        .expect("it is open");
    session.log.push(end);
    session.stop(draft, user());
    assert_eq!(texts(&session).len(), 4, "{:?}", texts(&session));
    assert_eq!(
        session.conversation.usage,
        usage(8, 2),
        "the completed step"
    );
    assert_eq!(
        session.state().metered(),
        usage(13, 3),
        "and the dropped one on the bill"
    );
}

#[test]
fn an_answer_dropped_in_mid_stream_never_counts_as_succeeded() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    draft.begin_step(&model(), 10, at()).expect("it begins");
    draft
        .abandon_model(CallOutcome::Succeeded, usage(5, 1))
        .expect("it is open");
    assert!(draft.commit(at()).is_err());
}

#[test]
fn each_call_gets_exactly_one_result() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = turn_in_two_tools(&mut session);
    let (b, c) = (CallId::from("b"), CallId::from("c"));
    let mut finish = |id: &CallId| draft.finish_call(result(id, "done"), CallOutcome::Succeeded);
    assert_eq!(
        finish(&c),
        Err(IllegalEvent::CallNotOpen(c.clone())),
        "it never began"
    );
    assert_eq!(finish(&"x".into()), Err(IllegalEvent::NotAsked("x".into())));
    assert!(finish(&b).is_ok());
    assert_eq!(
        finish(&b),
        Err(IllegalEvent::NotAsked(b.clone())),
        "answered before"
    );
    let again = draft.begin_call(&b, allstop_core::Effect::ReadOnly, at());
    assert_eq!(again, Err(DraftError::Illegal(IllegalEvent::NotAsked(b))));
    drop(draft);
}

#[test]
fn ids_of_sloppy_providers_are_made_unique() {
    let mut session = Session::new(TurnLimits::default());
    for _ in 0..3 {
        let mut draft = session.begin("go");
        for _ in 0..3 {
            let ids = ["call_0", "call_0", "", "step_7", "call_1", "call_0/call_1"];
            let calls = ids.map(|id| call(id, "read", json!({}))).to_vec();
            for call in session.ask(&mut draft, calls) {
                session.run_call(&mut draft, &call.id);
            }
            check_request(&draft);
        }
        session.answer(&mut draft, "done", usage(1, 1));
        session.end(draft);
    }
    let mut seen = std::collections::HashSet::new();
    for message in &session.conversation.messages {
        if let Message::Assistant { tool_calls, .. } = &**message {
            for call in tool_calls {
                let id = call.id.as_str();
                assert!(!id.is_empty() && !id.starts_with("step_"));
                assert!(!id.contains('/'), "that is the path of a call in a call");
                assert!(
                    seen.insert(call.id.clone()),
                    "{} comes twice in the session",
                    call.id
                );
            }
        }
    }
    assert_eq!(seen.len(), 3 * 3 * 6);
}

#[test]
fn new_id_of_the_model_is_kept() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let asked = vec![
        call("toolu_01", "read", json!({})),
        call("toolu_02", "read", json!({})),
    ];
    let step = draft.begin_step(&model(), 10, at()).expect("it begins");
    let answer = draft
        .finish_model("", asked.clone(), usage(1, 1), FinishReason::Done)
        .expect("it is open");
    session.log.extend([step.record, answer.record]);
    assert_eq!(answer.next, NextAction::Calls(asked));
    session.stop(draft, user());
}

#[test]
fn a_guardrails_stop_keeps_nothing() {
    let mut session = keep();
    let draft = turn_in_two_tools(&mut session);
    let refused = allstop_core::Cause::new(allstop_core::CauseKind::Guardrail);
    let stopped = session.stop(draft, refused);
    assert_eq!(stopped.reason, StopReason::Guardrail);
    assert!(session.conversation.messages.is_empty());
}

#[test]
fn stop_before_the_first_answer_keeps_the_users_message() {
    let mut session = keep();
    let mut draft = session.begin("go");
    let step = draft.begin_step(&model(), 10, at()).expect("it begins");
    session.log.push(step.record);
    session.stop(draft, user());
    let marker = "marker: The turn was stopped here (user (ctrl-c)).";
    assert_eq!(texts(&session), ["user: go", marker]);
    check_history(session.conversation.messages.iter().map(AsRef::as_ref)).expect("valid");
}

/// Regression: a message that a user had taken back before any model call was in the next request.
#[test]
fn a_stop_keeps_no_message_that_no_model_call_has_seen() {
    let mut session = keep();
    let draft = session.begin("taken back");
    session.stop(draft, user());
    assert!(session.conversation.messages.is_empty());

    let mut draft = session.begin("go");
    session.answer(&mut draft, "first answer", usage(1, 1));
    for text in ["one more", "another"] {
        let steered = draft.steer(
            text.into(),
            text.into(),
            allstop_core::Images::default(),
            at(),
        );
        session.log.push(steered.expect("it continues"));
    }
    session.stop(draft, user());
    let marker = "marker: The turn was stopped here (user (ctrl-c)).";
    let kept = texts(&session);
    assert_eq!(kept.first().map(String::as_str), Some("user: go"));
    assert_eq!(kept.last().map(String::as_str), Some(marker));
    assert!(
        !kept.iter().any(|text| text.contains("one more")),
        "{kept:?}"
    );
    assert!(
        !kept.iter().any(|text| text.contains("another")),
        "{kept:?}"
    );

    // A newer message does not take back the older one.
    let draft = session.begin("older");
    session.stop(draft, Cause::new(CauseKind::Superseded));
    let kept = texts(&session);
    assert!(kept.contains(&"user: older".to_owned()), "{kept:?}");
}

#[test]
fn note_after_an_answer_needs_another_answer() {
    let mut session = keep();
    let mut draft = session.begin("go");
    session.answer(&mut draft, "wrong", usage(1, 1));
    draft.add_note("answer again").expect("it continues");
    let refused = draft.commit(at()).expect_err("no answer to the note");
    assert_eq!(
        refused.why,
        NotCommittedReason::Illegal(IllegalEvent::NoAnswer)
    );
    let mut draft = refused.draft;
    session.answer(&mut draft, "right", usage(1, 1));
    session.end(draft);
    assert_eq!(
        texts(&session),
        [
            "user: go",
            "model: wrong",
            "note: answer again",
            "model: right"
        ]
    );

    let mut session = keep();
    let mut draft = session.begin("go");
    session.answer(&mut draft, "wrong", usage(1, 1));
    draft.add_note("answer again").expect("it continues");
    session.stop(draft, user());
    let kept = texts(&session);
    assert!(!kept.iter().any(|text| text.contains("again")), "{kept:?}");
}

#[test]
fn history_check_finds_each_violation() {
    use allstop_core::message::InvalidHistory;
    let asks = |ids: &[&str]| Message::Assistant {
        text: "".into(),
        tool_calls: ids.iter().map(|id| call(id, "read", json!({}))).collect(),
    };
    let answers = |id: &str| Message::Tool(result(&id.into(), "ok"));
    let says = || Message::user("go");
    let check = |messages: &[Message]| check_history(messages);
    let missing = |id: &str| Err(InvalidHistory::MissingResult(id.into()));
    let stray = |id: &str| Err(InvalidHistory::StrayResult(id.into()));

    assert_eq!(
        check(&[
            says(),
            asks(&["a", "b"]),
            answers("b"),
            answers("a"),
            says()
        ]),
        Ok(())
    );
    assert_eq!(check(&[asks(&["a"])]), missing("a"));
    assert_eq!(
        check(&[asks(&["a", "b"]), answers("a"), says(), answers("b")]),
        missing("b")
    );
    assert_eq!(
        check(&[asks(&["a"]), asks(&["b"]), answers("a"), answers("b")]),
        missing("a")
    );
    assert_eq!(check(&[answers("a")]), stray("a"));
    assert_eq!(
        check(&[asks(&["a"]), answers("a"), answers("a")]),
        stray("a")
    );
    assert_eq!(
        check(&[asks(&["a", "a"])]),
        Err(InvalidHistory::DuplicateCall("a".into()))
    );
}
