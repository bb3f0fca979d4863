//! The state of a session, computed by applying the records of its log: which records are refused, and the resulting
//! state.

use std::sync::Arc;

use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemState};
use allstop_core::record::{Attachment, CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use allstop_core::turn::{IllegalEvent, IllegalRecord, SessionState, TurnLimits};
use allstop_core::{Message, SessionId, TurnNumber, Usage};

use crate::driver::*;

fn opened() -> SessionRecord {
    SessionRecord::SessionOpened {
        session_id: SessionId::new("s"),
        at: at(),
        folder: "/".into(),
    }
}

fn started(turn: u32) -> SessionRecord {
    let turn = TurnNumber(turn);
    SessionRecord::TurnStarted {
        turn,
        at: at(),
        input: "go".into(),
        images: Vec::new(),
        owner: None,
        message: None,
        origin: allstop_core::record::TurnOrigin::User,
        reported: Vec::new(),
    }
}

fn model_started(turn: u32, id: &str) -> SessionRecord {
    let kind = StartedCallKind::Model { reserved_tokens: 1 };
    let call = StartedCall {
        id: id.into(),
        name: model(),
        kind,
    };
    SessionRecord::CallStarted {
        turn: TurnNumber(turn),
        call,
        at: at(),
    }
}

fn tool_started(turn: u32, id: &str) -> SessionRecord {
    let arguments = serde_json::json!({}).into();
    let kind = StartedCallKind::Tool {
        arguments,
        effect: allstop_core::Effect::ReadOnly,
    };
    let call = StartedCall {
        id: id.into(),
        name: "read".into(),
        kind,
    };
    SessionRecord::CallStarted {
        turn: TurnNumber(turn),
        call,
        at: at(),
    }
}

fn finished(turn: u32, id: &str) -> SessionRecord {
    SessionRecord::CallFinished {
        turn: TurnNumber(turn),
        id: id.into(),
        outcome: CallOutcome::Succeeded,
        usage: None,
        finish: None,
        exit_code: None,
        result: None,
    }
}

fn committed(turn: u32, messages: Vec<Arc<Message>>) -> SessionRecord {
    SessionRecord::TurnCommitted {
        turn: TurnNumber(turn),
        at: at(),
        messages,
        usage: Usage::default(),
    }
}

fn background(id: &str) -> SessionRecord {
    SessionRecord::BackgroundStarted {
        id: id.into(),
        turn: TurnNumber(1),
        call_id: "a".into(),
        name: "npm run dev".into(),
        kind: allstop_core::record::BackgroundKind::Shell,
        attachment: Attachment::Attached,
        process: None,
        keeper: None,
        marker: None,
        output: None,
    }
}

fn background_ended(id: &str) -> SessionRecord {
    let state = ItemState::Stopped {
        how: EndMethod::Sigterm,
        evidence: Evidence::verified(EndProof::ProcessTreeEmpty),
        after_ms: std::time::Duration::ZERO.into(),
    };
    SessionRecord::BackgroundEnded {
        id: id.into(),
        state,
        exit_code: Some(143),
        usage: None,
        answer: None,
    }
}

/// Applies all records except the last one. Checks that the last record is refused and that the state does not change.
fn refuses(records: &[SessionRecord]) -> IllegalRecord {
    let (last, before) = records.split_last().expect("there is a last record");
    let mut state = SessionState::fold(before).expect("what comes before is legal");
    let unchanged = state.clone();
    let illegal = state.apply(last).expect_err("the last record is illegal");
    assert_eq!(state, unchanged, "a refused record changes nothing");
    illegal
}

#[test]
fn illegal_records_are_refused_without_a_trace() {
    let turn = |source| IllegalRecord::Turn {
        turn: TurnNumber(1),
        source,
    };
    let one = TurnNumber(1);
    let cases: [(Vec<SessionRecord>, IllegalRecord); 13] = [
        (vec![started(1)], IllegalRecord::NotOpened),
        (vec![opened(), opened()], IllegalRecord::OpenedTwice),
        (
            vec![opened(), started(2)],
            IllegalRecord::NotTheNextTurn {
                turn: TurnNumber(2),
                expected: one,
            },
        ),
        (
            vec![opened(), started(1), started(2)],
            IllegalRecord::TurnStillOpen {
                turn: TurnNumber(2),
                open: one,
            },
        ),
        (
            vec![opened(), finished(1, "a")],
            IllegalRecord::TurnNotOpen(one),
        ),
        (
            vec![opened(), started(1), model_started(2, "step_1")],
            IllegalRecord::TurnNotOpen(TurnNumber(2)),
        ),
        (
            vec![opened(), started(1), finished(1, "a")],
            turn(IllegalEvent::CallNotOpen("a".into())),
        ),
        (
            vec![opened(), started(1), tool_started(1, "a")],
            turn(IllegalEvent::NoAnswer),
        ),
        (
            vec![
                opened(),
                started(1),
                model_started(1, "step_1"),
                model_started(1, "step_2"),
            ],
            turn(IllegalEvent::CallOpen("step_1".into())),
        ),
        (
            vec![
                opened(),
                started(1),
                model_started(1, "a"),
                finished(1, "a"),
                tool_started(1, "a"),
            ],
            turn(IllegalEvent::CallStartedTwice("a".into())),
        ),
        (
            vec![opened(), started(1), committed(1, Vec::new())],
            turn(IllegalEvent::NoAnswer),
        ),
        (
            vec![opened(), background("bg_1"), background("bg_1")],
            IllegalRecord::BackgroundStartedTwice("bg_1".into()),
        ),
        (
            vec![
                opened(),
                background("bg_1"),
                background_ended("bg_1"),
                background_ended("bg_1"),
            ],
            IllegalRecord::BackgroundNotRunning("bg_1".into()),
        ),
    ];
    for (records, illegal) in cases {
        assert_eq!(refuses(&records), illegal);
    }
}

#[test]
fn a_commit_of_an_invalid_history_is_refused() {
    let orphan = Message::Assistant {
        text: "".into(),
        tool_calls: vec![call("a", "read", serde_json::json!({}))],
    };
    let records = [
        opened(),
        started(1),
        model_started(1, "step_1"),
        finished(1, "step_1"),
        committed(1, vec![Arc::new(Message::user("go")), Arc::new(orphan)]),
    ];
    assert!(matches!(refuses(&records), IllegalRecord::History { .. }));

    let [opened, started, .., committed] = records;
    let SessionRecord::TurnCommitted { messages: kept, .. } = committed else {
        unreachable!()
    };
    let stopped = SessionRecord::TurnStopped {
        turn: TurnNumber(1),
        at: at(),
        reason: allstop_core::StopReason::Cancelled,
        cause: user(),
        receipt: None,
        kept,
        usage: Usage::default(),
    };
    assert!(matches!(
        refuses(&[opened, started, stopped]),
        IllegalRecord::History { .. }
    ));
}

#[test]
fn open_calls_are_listed_in_start_order() {
    let mut records = vec![
        opened(),
        started(1),
        model_started(1, "step_1"),
        finished(1, "step_1"),
    ];
    records.extend(["a", "b", "c"].map(|id| tool_started(1, id)));
    records.push(finished(1, "a"));
    let state = SessionState::fold(&records).expect("legal");
    let open = state.open_turn().expect("it has no ending").open_calls();
    let ids: Vec<_> = open.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["b", "c"]);
}

#[test]
fn background_work_is_found_by_id_with_its_state() {
    let mut state =
        SessionState::fold([&opened(), &background("bg_1"), &background("bg_2")]).expect("legal");
    let detached = SessionRecord::BackgroundDetached { id: "bg_2".into() };
    state.apply(&detached).expect("it runs");
    state.apply(&background_ended("bg_1")).expect("it runs");
    let [one, two] = state.background() else {
        panic!("there are two")
    };
    assert_eq!(
        (one.attachment, one.ended.is_some()),
        (Attachment::Attached, true)
    );
    assert_eq!(
        (two.attachment, two.ended.is_some()),
        (Attachment::Detached, false)
    );
}

#[test]
fn records_survive_their_json() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("first", usage(1, 2));
    session.policy = allstop_core::turn::StopPolicy::Keep;
    let mut draft = turn_in_two_tools(&mut session);
    session.log.push(background("bg_1"));
    let end = draft.finish_call(result(&"b".into(), "ok"), CallOutcome::Failed);
    session.log.push(end.expect("it is open"));
    session.stop(draft, deadline());
    session.log.push(background_ended("bg_1"));
    let read: Vec<SessionRecord> = session
        .log
        .iter()
        .map(|record| {
            let json = serde_json::to_vec(record).expect("a record can be written");
            serde_json::from_slice(&json).expect("and read")
        })
        .collect();
    assert_eq!(read, session.log);
    assert_eq!(SessionState::fold(&read), Ok(session.state()));
}

#[test]
fn long_input_is_cut_at_a_character_boundary() {
    let mut session = Session::new(TurnLimits::default());
    session.turn(&"ß".repeat(10_000_000), usage(1, 1));
    let state = session.state();
    assert_eq!(state.turns()[0].input.chars().count(), 121);
    assert!(state.turns()[0].input.ends_with('…'));
}
