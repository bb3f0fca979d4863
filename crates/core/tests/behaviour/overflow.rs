//! If a budget or a limit is reached, nothing changes, and the turn engine continues to work.

use allstop_core::StopReason;
use allstop_core::turn::{
    Budget, BudgetExceeded, BudgetUnit, DraftError, StartRefusal, TurnLimits,
};

use crate::driver::*;

fn limits(tokens: u64) -> TurnLimits {
    TurnLimits::default().budget(Budget::of_tokens(tokens))
}

#[test]
fn overflow_changes_nothing_and_reports_the_earlier_usage() {
    let mut session = Session::new(limits(100));
    session.turn("first", usage(40, 20));
    let before = session.state();
    let mut draft = session.begin("second");

    let refused = draft
        .begin_step(&model(), 41, at())
        .expect_err("41 of 40 left");

    let exceeded = BudgetExceeded {
        unit: BudgetUnit::Tokens,
        limit: 100,
        spent: 60,
        reserved: 0,
        requested: 41,
    };
    assert_eq!(refused, DraftError::Refused(StartRefusal::Budget(exceeded)));
    let stop = allstop_core::turn::TurnStop::refused(
        &StartRefusal::Budget(exceeded),
        allstop_core::turn::StopPolicy::Rollback,
        at(),
    );
    let stopped = draft.stop(stop);
    assert_eq!(stopped.reason, StopReason::MaxBudgetReached);
    assert_eq!(stopped.conversation, *before.conversation());
    assert_eq!(stopped.state.metered(), usage(0, 0));
    session.log.extend(stopped.records);
    session.check();
    assert_eq!(session.state().metered(), before.metered());
}

#[test]
fn an_overflowing_first_turn_persists_an_empty_session() {
    let mut session = Session::new(limits(10));
    assert_eq!(
        session.turn("first", usage(10, 5)).reason(),
        StopReason::MaxBudgetReached
    );
    let state = session.state();
    assert_eq!(
        **state.conversation(),
        allstop_core::turn::Conversation::default()
    );
    assert_eq!(
        state.session_id().map(ToString::to_string),
        Some("s".into())
    );
    assert_eq!(state.turns().len(), 1, "the turn is told, with its reason");
}

#[test]
fn the_engine_works_after_an_overflow() {
    let mut session = Session::new(limits(100));
    assert_eq!(
        session.turn("big", usage(90, 20)).reason(),
        StopReason::MaxBudgetReached
    );
    assert_eq!(session.turn("small", usage(50, 20)), Outcome::Committed);
    assert_eq!(session.conversation.turns, 1);
}

#[test]
fn repeated_overflows_leave_no_residue() {
    let mut session = Session::new(limits(100));
    session.turn("first", usage(40, 20));
    let before = session.conversation.clone();
    for _ in 0..50 {
        assert_eq!(
            session.turn("big", usage(40, 20)).reason(),
            StopReason::MaxBudgetReached
        );
    }
    assert_eq!(session.conversation, before);
    let budget = session.limits.budget.clone().expect("there is one");
    assert_eq!(
        (
            budget.spent_tokens(),
            budget.reserved_tokens(),
            budget.calls()
        ),
        (60, 0, 1)
    );
    assert_eq!(session.turn("small", usage(20, 20)), Outcome::Committed);
}

#[test]
fn exhausted_budget_refuses_the_next_turn() {
    let mut session = Session::new(limits(60));
    session.turn("first", usage(40, 20));
    let refusal = session
        .try_begin("second", std::sync::Arc::default())
        .expect_err("no token left");
    assert_eq!(refusal.reason(), StopReason::MaxBudgetReached);
    session.check();
}

#[test]
fn turn_limit_counts_turns_and_not_messages() {
    let mut session = Session::new(TurnLimits::default().turns_max(30));
    for _ in 0..30 {
        assert_eq!(session.turn("go", usage(1, 1)), Outcome::Committed);
    }
    assert_eq!(
        session.turn("go", usage(1, 1)).reason(),
        StopReason::MaxTurnsReached
    );
    // The number of turns is independent of the number of messages.
    let mut shorter = (*session.conversation).clone();
    shorter.messages.clear();
    session.conversation = std::sync::Arc::new(shorter);
    let refusal = session
        .try_begin("go", std::sync::Arc::default())
        .expect_err("still 30 turns");
    assert_eq!(refusal, StartRefusal::TurnsMax { limit: 30 });
}

#[test]
fn rolled_back_turns_do_not_count_for_the_turn_limit() {
    let mut session = Session::new(TurnLimits::default().turns_max(1));
    for _ in 0..3 {
        let draft = session.begin("go");
        session.stop(draft, user());
    }
    assert_eq!(session.turn("go", usage(1, 1)), Outcome::Committed);
}

#[test]
fn step_limit_refuses_the_next_step_and_rolls_back() {
    let mut session = Session::new(TurnLimits::default().steps_max(2));
    let mut draft = session.begin("go");
    for _ in 0..2 {
        let calls = session.ask(&mut draft, vec![call("a", "read", serde_json::json!({}))]);
        session.run_call(&mut draft, &calls[0].id);
    }
    let refused = draft
        .begin_step(&model(), 1, at())
        .expect_err("two steps are the limit");
    let DraftError::Refused(refusal) = refused else {
        panic!("{refused}")
    };
    assert_eq!(refusal.reason(), StopReason::MaxStepsReached);
    let rollback = allstop_core::turn::StopPolicy::Rollback;
    let stopped = draft.stop(allstop_core::turn::TurnStop::refused(
        &refusal,
        rollback,
        at(),
    ));
    assert_eq!(stopped.reason, StopReason::MaxStepsReached);
    session.log.extend(stopped.records);
    session.conversation = stopped.conversation;
    session.check();
    assert!(session.conversation.messages.is_empty());
}
