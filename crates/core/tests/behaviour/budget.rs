//! Budgets under fan-out.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use allstop_core::turn::{Budget, BudgetLimits, BudgetUnit, DraftError, Refusal, TurnLimits};
use serde_json::json;

use crate::driver::*;

#[test]
fn of_512_calls_at_a_limit_of_150_not_one_too_many_runs() {
    let of_calls = Budget::new(BudgetLimits {
        calls_max: Some(150),
        tokens_max: None,
    });
    for budget in [of_calls, Budget::of_tokens(150 * 7)] {
        let refused = AtomicU64::new(0);
        let gate = Barrier::new(64);
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    gate.wait();
                    for _ in 0..8 {
                        match budget.reserve(7) {
                            Ok(reservation) => {
                                let used = budget.spent_tokens() + budget.reserved_tokens();
                                assert!(used <= 150 * 7, "{used} tokens at a limit of 1050");
                                reservation.settle(usage(4, 3));
                            }
                            Err(exceeded) => {
                                assert!(exceeded.spent + exceeded.reserved <= exceeded.limit);
                                refused.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!((budget.calls(), refused.into_inner()), (150, 512 - 150));
        assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (1050, 0));
    }
}

#[test]
fn of_512_concurrent_reservations_no_more_are_held_than_fit() {
    let budget = Budget::of_tokens(150);
    let gate = Barrier::new(64);
    let held: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|_| {
                scope.spawn(|| {
                    gate.wait();
                    (0..8)
                        .filter_map(|_| budget.reserve(1).ok())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert_eq!(held.len(), 150);
    assert_eq!(budget.reserved_tokens(), 150);
    drop(held);
    assert_eq!(
        (
            budget.reserved_tokens(),
            budget.spent_tokens(),
            budget.calls()
        ),
        (0, 0, 0)
    );
}

#[test]
fn a_dropped_reservation_gives_back_what_was_not_used_and_keeps_what_was_metered() {
    let budget = Budget::of_tokens(100);
    let mut reservation = budget.reserve(60).expect("it fits");
    reservation.meter(25);
    reservation.meter(5);
    drop(reservation);
    assert_eq!(
        (
            budget.spent_tokens(),
            budget.reserved_tokens(),
            budget.calls()
        ),
        (25, 0, 1)
    );
}

#[test]
fn a_draft_that_is_dropped_in_mid_stream_gives_back_only_what_was_not_metered() {
    let budget = Budget::of_tokens(100);
    let limits = TurnLimits {
        budget: Some(budget.clone()),
        ..TurnLimits::default()
    };
    let mut draft = Session::new(limits).begin("go");
    draft.begin_step(&model(), 80, at()).expect("it fits");
    draft.meter(usage(20, 5));
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (0, 80));
    drop(draft);
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (25, 0));
}

#[test]
fn a_call_that_used_more_than_was_set_aside_is_metered_in_full() {
    let budget = Budget::of_tokens(100);
    budget.reserve(60).expect("it fits").settle(usage(100, 50));
    assert_eq!(budget.spent_tokens(), 150);
    let refused = budget.reserve(0).map(drop).expect_err("nothing is left");
    assert_eq!((refused.unit, refused.spent), (BudgetUnit::Tokens, 150));
}

#[test]
fn model_calls_and_tool_calls_count_alike() {
    let budget = Budget::new(BudgetLimits {
        calls_max: Some(3),
        tokens_max: None,
    });
    let limits = TurnLimits {
        budget: Some(budget.clone()),
        ..TurnLimits::default()
    };
    let mut session = Session::new(limits);
    let mut draft = session.begin("go");
    let asked = vec![call("a", "read", json!({})), call("b", "read", json!({}))];
    for call in session.ask(&mut draft, asked) {
        session.run_call(&mut draft, &call.id);
    }
    assert_eq!(budget.calls(), 3);
    let refused = draft
        .begin_step(&model(), 1, at())
        .expect_err("it would be the fourth call");
    let DraftError::Refused(Refusal::Budget(exceeded)) = refused else {
        panic!("{refused}")
    };
    assert_eq!((exceeded.unit, exceeded.limit), (BudgetUnit::Calls, 3));
    session.stop(draft, user());
}

#[test]
fn absurd_figures_neither_wrap_nor_panic() {
    let budget = Budget::of_tokens(u64::MAX);
    let all = budget.reserve(u64::MAX).expect("it fits exactly");
    all.settle(usage(u64::MAX, u64::MAX));
    assert_eq!(budget.spent_tokens(), u64::MAX);
}
