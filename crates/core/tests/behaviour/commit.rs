//! Commit or stop of a turn: one decision between them, and the effects of each decision.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use allstop_core::decision::{CommitDecision, CommitVerdict};
use allstop_core::record::CallOutcome;
use allstop_core::turn::{
    Draft, IllegalEvent, NotCommittedReason, SessionState, TurnEvent, TurnLimits, TurnState,
};
use allstop_core::{FinishReason, Message, StopReason, TurnNumber};

use crate::driver::*;

/// Number of races between the commit and the stop of one turn. The number is large, because a bug would only show if
/// both calls came within a few nanoseconds.
const RACES: u32 = 100_000;

#[test]
fn a_ghost_turn_is_impossible() {
    let mut committed = 0;
    let mut session = Session::new(TurnLimits::default());
    let barrier = Barrier::new(2);
    let slot: std::sync::Mutex<Option<Arc<CommitDecision>>> = std::sync::Mutex::default();
    let stops_won = AtomicU32::new(0);
    let base = Arc::clone(&session.conversation);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..RACES {
                barrier.wait();
                let decision = slot.lock().unwrap().clone().expect("it was put there");
                if decision.stop(user()) {
                    stops_won.fetch_add(1, Ordering::Relaxed);
                }
                barrier.wait();
            }
        });
        for _ in 0..RACES {
            let decision = Arc::new(CommitDecision::new());
            *slot.lock().unwrap() = Some(Arc::clone(&decision));
            let start = session.start("go");
            let mut draft =
                Draft::begin(Arc::clone(&base), &start, &session.limits, decision).expect("fresh");
            draft
                .begin_step(&model(), 1, at())
                .expect("nobody stops it yet");
            draft
                .finish_model("done", Vec::new(), usage(1, 1), FinishReason::Done)
                .expect("the call is open");
            barrier.wait();
            match draft.commit(at()) {
                Ok(commit) => {
                    committed += 1;
                    assert_eq!(commit.publish().messages.len(), 2);
                }
                Err(not) => {
                    assert_eq!(not.why, NotCommittedReason::Stopped(user()));
                    assert!(
                        not.draft.request_messages().len() == 2,
                        "the draft is as it was"
                    );
                }
            }
            barrier.wait();
        }
    });
    let stops_won = stops_won.into_inner();
    assert!(committed > 0 && stops_won > 0, "the race was none");
    assert_eq!(
        committed + stops_won,
        RACES,
        "exactly one side won each race"
    );
    assert_eq!(base, session.conversation, "and the base never changed");
    session.turn("after", usage(1, 1));
}

#[test]
fn one_of_many_deciders_wins_and_the_others_learn_it() {
    for _ in 0..1_000 {
        let decision = CommitDecision::new();
        let gate = Barrier::new(8);
        let wins = AtomicU32::new(0);
        thread::scope(|scope| {
            for n in 0..8 {
                let (decision, gate, wins) = (&decision, &gate, &wins);
                scope.spawn(move || {
                    gate.wait();
                    let won = match n % 2 {
                        0 => decision.commit().is_ok(),
                        _ => decision.stop(user()),
                    };
                    wins.fetch_add(u32::from(won), Ordering::Relaxed);
                    assert!(decision.verdict().is_some());
                });
            }
        });
        assert_eq!(wins.into_inner(), 1);
    }
}

#[test]
fn second_commit_of_a_decision_is_refused() {
    let decision = CommitDecision::new();
    decision.commit().map(drop).expect("the first");
    assert_eq!(decision.commit().map(drop), Err(CommitVerdict::Commit));
}

#[test]
fn each_turn_is_committed_once() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("one", usage(1, 1));
    session.turn("two", usage(1, 1));
    assert_eq!(session.conversation.messages.len(), 4);
    assert_eq!(session.conversation.turns, 2);
    assert_eq!(session.conversation.usage, usage(2, 2));
}

#[test]
fn a_dropped_draft_changes_nothing() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("one", usage(1, 1));
    let before = (*session.conversation).clone();
    drop(turn_in_two_tools(&mut session));
    assert_eq!(*session.conversation, before);
}

#[test]
fn failed_append_ends_the_turn_and_keeps_the_conversation() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("one", usage(1, 1));
    let before = Arc::clone(&session.conversation);
    let decision = Arc::new(CommitDecision::new());
    let mut draft = session
        .try_begin("two", Arc::clone(&decision))
        .expect("not stopped");
    session.answer(&mut draft, "done", usage(2, 2));
    let commit = draft.commit(at()).expect("nobody stopped it");

    assert!(!decision.stop(user()), "it can no longer be stopped");
    let stopped = commit.fail("the store is full", at());

    assert_eq!(stopped.reason, StopReason::Error);
    assert_eq!(stopped.conversation, before);
    session.log.extend(stopped.records);
    session.check();
    assert_eq!(session.conversation.usage, usage(1, 1));
    assert_eq!(
        session.state().metered(),
        usage(3, 3),
        "what it used is on the bill all the same"
    );
    assert_eq!(session.turn("three", usage(1, 1)), Outcome::Committed);
}

#[test]
fn turn_without_final_answer_can_be_stopped_but_not_committed() {
    let mut session = Session::new(TurnLimits::default());
    let draft = session.begin("go");
    let not = draft.commit(at()).expect_err("the model said nothing");
    assert_eq!(not.why, NotCommittedReason::Illegal(IllegalEvent::NoAnswer));
    session.stop(not.draft, user());

    let draft = turn_in_two_tools(&mut session);
    let not = draft.commit(at()).expect_err("two calls have no result");
    assert_eq!(
        not.why,
        NotCommittedReason::Illegal(IllegalEvent::CallOpen("b".into()))
    );
    session.stop(not.draft, user());
}

#[test]
fn turn_with_calls_not_begun_cannot_commit() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    session.ask(&mut draft, vec![call("a", "read", serde_json::json!({}))]);
    let not = draft.commit(at()).expect_err("the call has no result");
    assert_eq!(
        not.why,
        NotCommittedReason::Illegal(IllegalEvent::CallOpen("a".into()))
    );
    session.stop(not.draft, user());
}

#[test]
fn committed_usage_counts_only_committed_messages() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let step = draft.begin_step(&model(), 10, at()).expect("it begins");
    let end = draft
        .abandon_model(CallOutcome::Failed, usage(7, 0))
        .expect("it is open");
    session.log.extend([step.record, end]);
    session.answer(&mut draft, "done", usage(2, 2));
    session.end(draft);
    assert_eq!(session.conversation.usage, usage(2, 2));
    assert_eq!(session.state().metered(), usage(9, 2));
}

#[test]
fn ended_turn_refuses_every_event() {
    let mut turn = TurnState::new(TurnNumber(1));
    turn.apply(TurnEvent::Stopped(StopReason::Cancelled))
        .expect("a turn can be stopped at once");
    let ended = turn.clone();
    let late = TurnEvent::CallFinished {
        id: &"a".into(),
        outcome: CallOutcome::Succeeded,
        usage: Some(usage(1, 1)),
        has_exited: false,
        result: None,
    };
    for event in [
        late,
        TurnEvent::Committed,
        TurnEvent::Stopped(StopReason::Timeout),
    ] {
        assert!(matches!(turn.apply(event), Err(IllegalEvent::Ended(_))));
        assert_eq!(turn, ended, "a refused event changes nothing");
    }
}

#[test]
fn cancelled_is_never_overwritten_by_completed_in_the_log() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    session.answer(&mut draft, "done", usage(1, 1));
    session.stop(draft, user());
    let forged = allstop_core::record::SessionRecord::TurnCommitted {
        turn: TurnNumber(1),
        at: at(),
        messages: vec![Arc::new(Message::user("go"))],
        usage: usage(1, 1),
    };
    let mut state = session.state();
    let before = state.clone();
    assert!(state.apply(&forged).is_err());
    assert_eq!(state, before);
    assert!(SessionState::fold(session.log.iter().chain([&forged])).is_err());
}

#[test]
fn messages_are_shared_and_never_cloned() {
    let mut session = Session::new(TurnLimits::default());
    for _ in 0..3 {
        session.turn("go", usage(1, 1));
    }
    let before = Arc::clone(&session.conversation);
    let mut draft = session.begin("again");
    let request = draft.request_messages();
    assert!(
        request
            .iter()
            .zip(&before.messages)
            .all(|(sent, held)| Arc::ptr_eq(sent, held))
    );
    session.answer(&mut draft, "done", usage(1, 1));
    session.end(draft);
    let after = &session.conversation.messages;
    assert!(
        after
            .iter()
            .zip(&before.messages)
            .all(|(next, held)| Arc::ptr_eq(next, held))
    );
}
