//! Budgets under fan-out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use allstop_core::turn::{Budget, BudgetLimits, BudgetUnit};

use crate::driver::usage;

#[test]
fn of_512_calls_at_a_limit_of_150_not_one_too_many_runs() {
    let budget = Budget::new(BudgetLimits {
        calls_max: Some(150),
        tokens_max: Some(150 * 7),
    });
    let (running, most, refused) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let gate = std::sync::Barrier::new(64);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                gate.wait();
                for _ in 0..8 {
                    match budget.reserve(7) {
                        Ok(reservation) => {
                            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(now, Ordering::SeqCst);
                            assert!(budget.spent_tokens() + budget.reserved_tokens() <= 150 * 7);
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
    assert_eq!(running.into_inner(), 150);
    assert_eq!(refused.into_inner(), 512 - 150);
    assert_eq!(
        (
            budget.calls(),
            budget.spent_tokens(),
            budget.reserved_tokens()
        ),
        (150, 1050, 0)
    );
}

#[test]
fn of_512_concurrent_reservations_no_more_are_held_than_fit() {
    let budget = Budget::of_tokens(150);
    let gate = std::sync::Barrier::new(64);
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
fn a_call_that_used_more_than_was_set_aside_is_metered_in_full() {
    let budget = Budget::of_tokens(100);
    budget.reserve(60).expect("it fits").settle(usage(100, 50));
    assert_eq!(budget.spent_tokens(), 150);
    let refused = budget.reserve(0).map(drop).expect_err("nothing is left");
    assert_eq!((refused.unit, refused.spent), (BudgetUnit::Tokens, 150));
}

#[test]
fn absurd_figures_neither_wrap_nor_panic() {
    let budget = Budget::of_tokens(u64::MAX);
    let all = budget.reserve(u64::MAX).expect("it fits exactly");
    all.settle(usage(u64::MAX, u64::MAX));
    assert_eq!(budget.spent_tokens(), u64::MAX);
}
