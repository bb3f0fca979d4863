//! A crash can cut the log at any record. The next start writes the turn's ending. A receipt is the result of a stop.

use std::sync::Arc;

use allstop_core::receipt::{StopFindings, StopInfo};
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{SessionState, StopPolicy, TurnLimits};
use allstop_core::{CauseKind, Extent, Receipt, StopId, StopReason, Timestamp, TurnNumber};

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
        *state.conversation(),
        session.conversation,
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
fn a_turn_without_an_ending_is_named_until_the_next_turn() {
    let mut session = crashed();
    let log = &session.log;
    let state = SessionState::fold(log).expect("the log can be folded");
    assert_eq!(state.turn_cut_off(), Some(TurnNumber(4)));
    let (state, records) = recover(log);
    assert_eq!(state.turn_cut_off(), Some(TurnNumber(4)));
    session.log.extend(records);
    let stopped = log_with_a_late_receipt(&session.log);
    assert_eq!(stopped.turn_cut_off(), None, "the log has its receipt");
    session.turn("five", usage(10, 1));
    let state = SessionState::fold(&session.log).expect("the log can be folded");
    assert_eq!(state.turn_cut_off(), None);
}

/// State of this log with one more receipt. The stop of this receipt is later than all turns.
fn log_with_a_late_receipt(log: &[SessionRecord]) -> SessionState {
    let request = StopInfo {
        stop_id: StopId::new("late"),
        target: "session/s/turn/4".into(),
        extent: Extent::Turn,
        cause: user(),
        requested_at: Timestamp::from_unix_ms(at().unix_ms() + 1),
    };
    let receipt = Receipt::of_stop(request, StopFindings::default());
    let mut state = SessionState::fold(log).expect("the log can be folded");
    let receipt = Arc::new(receipt);
    let applied = state.apply(&SessionRecord::Stopped { receipt });
    applied.expect("a receipt may come between turns");
    state
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
            state.conversation(),
            committed.conversation(),
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
    };
    assert!(state.apply(&late).is_err());
    assert_eq!(state, before);
}

#[test]
fn the_next_turn_works_after_a_recovery() {
    let mut session = crashed();
    let (_, records) = recover(&session.log);
    session.log.extend(records);
    session.check();
    assert_eq!(session.turn("five", usage(1, 1)), Outcome::Committed);
    assert_eq!(session.state().turns().len(), 5);
}
