//! A crash can cut the log at any record. The next start writes the turn's ending. A receipt is the result of a stop.

use std::sync::Arc;

use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{SessionState, StopPolicy, TurnLimits};
use allstop_core::{CauseKind, Effect, StopReason};

use crate::driver::*;

/// A log with two committed turns, a stopped turn, and a turn that crashed in the middle of a batch of calls.
fn crashed() -> Session {
    let mut session = Session::new(TurnLimits::default());
    session.turn("one", usage(10, 1));
    session.policy = StopPolicy::Keep;
    let draft = turn_in_two_tools(&mut session);
    session.stop(draft, user());
    session.turn("three", usage(10, 1));
    drop(turn_in_two_tools(&mut session));
    session
}

fn recover(log: &[SessionRecord]) -> (SessionState, Vec<SessionRecord>) {
    let mut state = SessionState::fold(log).expect("the log can be folded");
    let records = state.recovery_records(at());
    for record in &records {
        state
            .apply(record)
            .expect("recovery passes through the same transition function");
    }
    (state, records)
}

#[test]
fn a_crashed_turn_gets_one_ending_and_its_calls_are_unknown() {
    let session = crashed();
    let (state, records) = recover(&session.log);

    assert_eq!(
        shown(state.conversation()),
        shown(&session.conversation),
        "equal to the last committed turn"
    );
    let turn = state.turns().last().expect("there are four");
    let ending = turn.ending.clone().expect("it has one now");
    assert_eq!(ending.reason, StopReason::Error);
    let cause = ending.cause.expect("a stop has one");
    assert_eq!(
        (cause.kind, cause.detail.as_deref()),
        (CauseKind::Failure, Some("crash"))
    );
    let unknown: Vec<_> = turn
        .unknown_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    assert_eq!(unknown, ["call_14"], "its id was taken in turn two");
    assert_eq!(records.len(), 2);
    assert_eq!(
        state.recovery_records(at()),
        [],
        "a second recovery has nothing to do"
    );
}

#[test]
fn receipt_of_a_crash_lists_the_running_calls_and_the_completed_effects() {
    let session = crashed();
    let before = SessionState::fold(&session.log).expect("the log can be folded");
    let receipt = before.crash_receipt().expect("the turn has no ending");
    let items: Vec<_> = receipt
        .items()
        .iter()
        .map(|item| (&*item.name, item.state.as_str(), item.label.as_deref()))
        .collect();
    assert_eq!(
        items,
        [("read", "finished", Some("x")), ("shell", "unknown", None)]
    );
    assert_eq!(receipt.items()[1].effect, Some(Effect::Irreversible));
    let (state, _) = recover(&session.log);
    assert_eq!(state.last_receipt().map(AsRef::as_ref), Some(&receipt));
    assert_eq!(state.crash_receipt(), None);
}

#[test]
fn a_crash_at_any_record_leaves_the_last_committed_turn() {
    let session = crashed();
    let mut committed = SessionState::new();
    for cut in 1..=session.log.len() {
        let log = &session.log[..cut];
        if matches!(
            log.last(),
            Some(SessionRecord::TurnCommitted { .. } | SessionRecord::TurnStopped { .. })
        ) {
            committed = SessionState::fold(log).expect("it can be folded");
        }
        let before = SessionState::fold(log).expect("it can be folded");
        let (state, records) = recover(log);
        assert_eq!(
            shown(state.conversation()),
            shown(committed.conversation()),
            "cut at {cut}"
        );
        assert_eq!(
            state.metered(),
            before.metered(),
            "recovery neither bills nor refunds"
        );
        assert!(state.open_turn().is_none());
        assert!(records.len() != 1 || before.open_turn().is_some());
        assert_eq!(state.next_turn().0, before.turns().len() as u32 + 1);
    }
}

#[test]
fn recovery_continues_after_a_crash_in_it() {
    let session = crashed();
    let (whole, records) = recover(&session.log);
    for cut in 0..records.len() {
        let mut log = session.log.clone();
        log.extend_from_slice(&records[..cut]);
        let (state, rest) = recover(&log);
        assert_eq!(rest, records[cut..]);
        assert_eq!(state, whole);
    }
}

#[test]
fn late_result_of_a_recovered_turn_is_refused() {
    let session = crashed();
    let (mut state, _) = recover(&session.log);
    let before = state.clone();
    let turn = state.turns().last().expect("there are four").turn;
    let late = SessionRecord::CallFinished {
        turn,
        id: "call_14".into(),
        outcome: CallOutcome::Succeeded,
        usage: Some(usage(1, 1)),
        finish: None,
        exit_code: None,
        result: None,
    };
    assert!(state.apply(&late).is_err());
    assert_eq!(state, before);
}

#[test]
fn the_next_turn_works_after_a_recovery() {
    let mut session = crashed();
    let (_, records) = recover(&session.log);
    session.log.extend(records);
    session.conversation = Arc::clone(session.state().conversation());
    session.check();
    assert_eq!(session.turn("five", usage(1, 1)), Outcome::Committed);
    assert_eq!(session.state().turns().len(), 5);
}
