//! The end of background work is the end of the call that has started it, also of a call that moved to the background
//! while it ran.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::message::Effect;
use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemState};
use allstop_core::record::{
    Attachment, BackgroundKind, CallOutcome, SessionRecord, StartedCall, StartedCallKind,
};
use allstop_core::turn::{CallSideData, Draft, LostTurn, SessionState, StopPolicy, TurnLimits};
use allstop_core::{ToolCall, TurnNumber};
use serde_json::json;

use crate::driver::*;
use crate::effects::{note_of, recovered};

/// The call that moves to the background while it runs.
fn pay() -> ToolCall {
    call("a", "shell", json!({"command": "pay"}))
}

fn started() -> SessionRecord {
    SessionRecord::BackgroundStarted {
        id: "bg_1".into(),
        turn: TurnNumber(1),
        call_id: "a".into(),
        name: "pay".into(),
        kind: BackgroundKind::Shell,
        attachment: Attachment::Attached,
        process: None,
        keeper: None,
        marker: None,
        output: None,
    }
}

fn ended(state: ItemState) -> SessionRecord {
    SessionRecord::BackgroundEnded {
        id: "bg_1".into(),
        state,
        exit_code: None,
        usage: None,
        answer: None,
    }
}

fn stopped() -> ItemState {
    ItemState::Stopped {
        how: EndMethod::Sigterm,
        evidence: Evidence::verified(EndProof::ProcessTreeEmpty),
        after_ms: Duration::ZERO.into(),
    }
}

/// The end that the next process records for work that a crash has ended.
fn unknown() -> ItemState {
    ItemState::Unknown {
        how: EndMethod::Dropped,
        after_ms: None,
    }
}

/// Appends a record about background work to the log, and lets the draft observe it.
fn record(session: &mut Session, draft: &mut Draft, record: SessionRecord) {
    draft.observe_background(std::slice::from_ref(&record));
    session.log.push(record);
}

/// A turn whose call has moved to the background.
fn promoted(session: &mut Session) -> Draft {
    let mut draft = session.begin("go");
    let calls = session.ask(&mut draft, vec![pay()]);
    session.run_call(&mut draft, &calls[0].id);
    record(session, &mut draft, started());
    draft
}

/// Continues after these records of the next process.
fn resume(session: &mut Session, records: impl IntoIterator<Item = SessionRecord>) {
    let recovery = SessionState::fold(&session.log)
        .expect("foldable")
        .recovery_records(at());
    session.log.extend(recovery);
    session.log.extend(records);
    session.conversation = Arc::clone(session.state().conversation());
}

#[test]
fn promoted_call_has_an_unknown_outcome_after_a_crash() {
    for policy in [StopPolicy::Rollback, StopPolicy::Keep] {
        let mut session = Session::new(TurnLimits::default());
        session.policy = policy;
        let mut draft = promoted(&mut session);
        if policy == StopPolicy::Keep {
            session.log.extend(draft.keep_messages());
        }
        let receipt = session.state().crash_receipt().expect("the turn is open");
        let note = receipt.items()[0].note.as_deref().unwrap_or_default();
        assert!(note.contains("outcome of the work is unknown"), "{note}");
        drop(draft);
        resume(&mut session, [ended(unknown())]);
        let draft = session.begin("again");
        assert!(draft.repeats_uncertain(&pay()).is_some(), "{policy:?}");
        if policy == StopPolicy::Rollback {
            let note = note_of(&draft, 0).expect("the call had an effect");
            assert!(note.contains("- shell `pay`: outcome unknown"), "{note}");
        }
    }
}

/// Regression: the work of a turn in the conversation was repeated silently after a crash during the wait for it.
#[test]
fn work_of_a_committed_turn_that_a_crash_has_ended_is_not_repeated_silently() {
    let in_background = json!({"command": "pay", "background": true});
    for pay in [pay(), call("a", "shell", in_background)] {
        for (end, is_uncertain) in [
            (unknown(), true),
            (stopped(), false),
            (ItemState::Finished { after_ms: None }, false),
        ] {
            let mut session = Session::new(TurnLimits::default());
            let mut draft = session.begin("go");
            let calls = session.ask(&mut draft, vec![pay.clone()]);
            session.run_call(&mut draft, &calls[0].id);
            record(&mut session, &mut draft, started());
            session.answer(&mut draft, "ok", usage(1, 1));
            session.end(draft);
            let draft = session.begin("while it runs");
            assert!(draft.repeats_uncertain(&pay).is_none(), "it runs");
            drop(draft);
            resume(&mut session, [ended(end.clone())]);
            let draft = session.begin("again");
            let repeats = draft.repeats_uncertain(&pay).is_some();
            assert_eq!(repeats, is_uncertain, "{pay:?} {end:?}");
        }
    }
}

#[test]
fn known_end_of_background_work_is_the_outcome_of_its_lost_call() {
    for (end, line) in [
        (stopped(), "- shell `pay`: was stopped"),
        (
            ItemState::Finished { after_ms: None },
            "- shell `pay`: completed",
        ),
        (unknown(), "- shell `pay`: outcome unknown"),
    ] {
        for is_before in [true, false] {
            let mut session = Session::new(TurnLimits::default());
            let mut draft = promoted(&mut session);
            if is_before {
                record(&mut session, &mut draft, ended(end.clone()));
            }
            session.stop(draft, user());
            if !is_before {
                session.log.push(ended(end.clone()));
            }
            session.conversation = Arc::clone(session.state().conversation());
            let draft = session.begin("again");
            let note = note_of(&draft, 0).expect("the call had an effect");
            assert!(note.contains(line), "{is_before} {end:?}: {note}");
            let repeats = draft.repeats_uncertain(&pay()).is_some();
            assert_eq!(repeats, end == unknown(), "{is_before} {end:?}");
        }
    }
}

/// The work may end before the record of its call's end.
#[test]
fn end_of_work_counts_also_before_the_end_of_its_call() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let calls = session.ask(&mut draft, vec![pay()]);
    session.begin_call(&mut draft, &calls[0].id);
    record(&mut session, &mut draft, started());
    record(&mut session, &mut draft, ended(stopped()));
    let end = draft.finish_call(result(&calls[0].id, "bg_1 runs"), CallOutcome::Succeeded);
    session.log.push(end.expect("it is open"));
    session.stop(draft, user());
    let lost = session.conversation.lost[0].to_string();
    assert!(lost.contains("shell `pay`: was stopped"), "{lost}");
}

/// Only leftover processes of the command run in the background. The command itself has exited.
#[test]
fn command_that_leaves_processes_behind_has_completed() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let calls = session.ask(&mut draft, vec![pay()]);
    session.begin_call(&mut draft, &calls[0].id);
    let exited = CallSideData {
        exit_code: Some(0),
        ..CallSideData::default()
    };
    draft.set_call_side_data(calls[0].id.clone(), exited);
    let end = draft.finish_call(result(&calls[0].id, "paid"), CallOutcome::Succeeded);
    session.log.push(end.expect("it is open"));
    record(&mut session, &mut draft, started());
    drop(draft);
    resume(&mut session, [ended(unknown())]);
    let draft = session.begin("again");
    let note = note_of(&draft, 0).expect("the call had an effect");
    assert!(note.contains("- shell `pay`: completed"), "{note}");
    assert!(draft.repeats_uncertain(&pay()).is_none());
}

/// The result of a promoted sub-agent names none of its calls, so it does not stand for them.
#[test]
fn calls_before_a_promotion_are_reported_after_a_crash() {
    for is_committed in [false, true] {
        let mut session = Session::new(TurnLimits::default());
        let mut draft = session.begin("go");
        let agent = call("a", "agent", json!({"prompt": "shop"}));
        let calls = session.ask(&mut draft, vec![agent.clone()]);
        session.begin_call(&mut draft, &calls[0].id);
        let nested = StartedCall {
            id: "a/n".into(),
            name: "shell".into(),
            kind: StartedCallKind::Tool {
                arguments: json!({"command": "pay"}).into(),
                effect: Effect::Irreversible,
            },
        };
        let begun = draft.begin_nested_call(nested, at());
        session.log.push(begun.expect("its agent runs"));
        let paid = "paid".into();
        let end = draft.finish_nested_call("a/n".into(), CallOutcome::Succeeded, &paid);
        session.log.push(end.expect("it is open"));
        let end = draft.finish_call(result(&calls[0].id, "bg_1 runs"), CallOutcome::Succeeded);
        session.log.push(end.expect("it is open"));
        record(&mut session, &mut draft, started());
        session.log.extend(draft.keep_messages());
        if is_committed {
            session.answer(&mut draft, "ok", usage(1, 1));
            session.end(draft);
        } else {
            drop(draft);
        }
        let before = recovered(&session.log);
        assert_eq!(before.conversation().lost, [], "the agent may run");
        resume(&mut session, [ended(unknown())]);
        let base = session.conversation.messages.len();
        let draft = session.begin("again");
        let note = note_of(&draft, base).expect("nothing else names the call");
        assert!(
            note.contains("Turn 1. Its message began with: go"),
            "{note}"
        );
        assert!(note.contains("- shell `pay`: completed"), "{note}");
        assert!(draft.repeats_uncertain(&agent).is_some());
        let lost: &[LostTurn] = &session.conversation.lost;
        assert!(lost[0].is_partly_kept, "{lost:?}");
    }
}
