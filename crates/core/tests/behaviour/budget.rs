//! Budgets under parallel calls.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use allstop_core::turn::{
    Budget, BudgetLimits, BudgetUnit, DraftError, Reservation, StartRefusal, TurnLimits,
};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

use crate::driver::*;

#[test]
fn parallel_calls_never_exceed_the_limit() {
    let of_calls = Budget::new(BudgetLimits::default().calls_max(150));
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
fn parallel_reservations_never_exceed_the_limit() {
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
fn dropped_reservation_gives_back_only_unmetered_tokens() {
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
fn draft_dropped_in_mid_stream_gives_back_only_unmetered_tokens() {
    let budget = Budget::of_tokens(100);
    let limits = TurnLimits::default().budget(budget.clone());
    let mut draft = Session::new(limits).begin("go");
    draft.begin_step(&model(), 80, at()).expect("it fits");
    draft.meter(usage(20, 5));
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (0, 80));
    drop(draft);
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (25, 0));
}

#[test]
fn usage_beyond_the_reservation_is_metered_in_full() {
    let budget = Budget::of_tokens(100);
    budget.reserve(60).expect("it fits").settle(usage(100, 50));
    assert_eq!(budget.spent_tokens(), 150);
    let refused = budget.reserve(0).map(drop).expect_err("nothing is left");
    assert_eq!((refused.unit, refused.spent), (BudgetUnit::Tokens, 150));
}

#[test]
fn model_calls_and_tool_calls_count_alike() {
    let budget = Budget::new(BudgetLimits::default().calls_max(3));
    let limits = TurnLimits::default().budget(budget.clone());
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
    let DraftError::Refused(StartRefusal::Budget(exceeded)) = refused else {
        panic!("{refused}")
    };
    assert_eq!((exceeded.unit, exceeded.limit), (BudgetUnit::Calls, 3));
    session.stop(draft, user());
}

#[test]
fn huge_numbers_neither_wrap_nor_panic() {
    let budget = Budget::of_tokens(u64::MAX);
    let all = budget.reserve(u64::MAX).expect("it fits exactly");
    all.settle(usage(u64::MAX, u64::MAX));
    assert_eq!(budget.spent_tokens(), u64::MAX);
}

#[test]
fn parallel_calls_of_descendants_never_exceed_the_limit() {
    let budget = Budget::new(BudgetLimits::default().calls_max(150).tokens_max(150 * 7));
    let ran = AtomicU64::new(0);
    let gate = Barrier::new(64);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                gate.wait();
                for at in 0..8 {
                    let Ok(child) = budget.child(Some(14)) else {
                        continue;
                    };
                    let spends = if at % 2 == 0 {
                        child.child(None).unwrap()
                    } else {
                        child
                    };
                    if let Ok(reservation) = spends.reserve(7) {
                        let used = budget.spent_tokens() + budget.reserved_tokens();
                        assert!(used <= 150 * 7, "{used} tokens at a limit of 1050");
                        ran.fetch_add(1, Ordering::SeqCst);
                        reservation.settle(usage(4, 3));
                    }
                }
            });
        }
    });
    let ran = ran.into_inner();
    assert!(ran <= 150, "{ran}");
    assert_eq!(budget.calls(), ran);
    assert_eq!(
        (budget.spent_tokens(), budget.reserved_tokens()),
        (7 * ran, 0)
    );
}

#[test]
fn child_gets_half_of_the_rest_and_returns_unspent_tokens() {
    let budget = Budget::of_tokens(100);
    let first = budget.child(None).expect("there is enough");
    let second = budget.child(Some(10)).expect("there is enough");
    let tokens = |budget: &Budget| budget.limits().tokens_max;
    assert_eq!((tokens(&first), tokens(&second)), (Some(50), Some(10)));
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (0, 60));

    first.reserve(20).expect("it fits").settle(usage(10, 5));
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (15, 45));
    let running = first.reserve(35).expect("what is left of its own");
    first.reserve(1).map(drop).expect_err("it has no more");
    drop(first);
    assert_eq!(budget.reserved_tokens(), 45, "a call can still spend it");
    drop(running);
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (15, 10));
    drop(second);
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (15, 0));

    budget.reserve(85).expect("all").settle(usage(85, 0));
    budget.child(None).map(drop).expect_err("nothing is left");
}

#[test]
fn overdraft_of_a_child_counts_for_its_parent() {
    let budget = Budget::of_tokens(100);
    let child = budget.child(Some(10)).expect("there is enough");
    child.reserve(10).expect("it fits").settle(usage(30, 0));
    assert_eq!((budget.spent_tokens(), budget.reserved_tokens()), (30, 0));
    child.reserve(1).map(drop).expect_err("it has overdrawn");
}

#[test]
fn call_refused_by_the_parent_leaves_the_child_unchanged() {
    let budget = Budget::new(BudgetLimits::default().calls_max(1));
    let child = budget.child(Some(10)).expect("there is enough");
    let running = budget.reserve(0).expect("the first");
    let refused = child.reserve(5).map(drop).expect_err("the second");
    assert_eq!(refused.unit, BudgetUnit::Calls);
    child.check_remaining().expect_err("none is left above");
    assert_eq!((child.calls(), child.reserved_tokens()), (0, 0));
    drop(running);
    child
        .reserve(5)
        .map(drop)
        .expect("the first had cost nothing");
}

/// An operation on a tree of budgets. The numbers select one of the existing budgets and calls.
#[derive(Debug, Clone)]
enum Deed {
    Child(usize, Option<u64>),
    Reserve(usize, u64),
    /// The second number is the metered share of the reserved tokens, in percent.
    Meter(usize, u64),
    EndCall(usize),
    DropBudget(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        1 => (any::<usize>(), proptest::option::of(1..400_u64)).prop_map(|(at, max)| Deed::Child(at, max)),
        3 => (any::<usize>(), 0..200_u64).prop_map(|(at, tokens)| Deed::Reserve(at, tokens)),
        2 => (any::<usize>(), 0..=100_u64).prop_map(|(at, share)| Deed::Meter(at, share)),
        2 => any::<usize>().prop_map(Deed::EndCall),
        1 => any::<usize>().prop_map(Deed::DropBudget),
    ];
    proptest::collection::vec(deed, 1..120)
}

proptest! {
    #[test]
    fn parents_and_children_together_never_exceed_the_limit(deeds in deeds()) {
        const TOKENS: u64 = 1000;
        const CALLS: u64 = 30;
        let root = Budget::new(BudgetLimits::default().tokens_max(TOKENS).calls_max(CALLS));
        let mut budgets = vec![Arc::clone(&root)];
        let mut calls: Vec<(Reservation, u64)> = Vec::new();
        let (mut spent, mut ran) = (0, 0);
        let mut end = |(call, metered): (Reservation, u64)| {
            spent += metered;
            ran += u64::from(metered > 0);
            drop(call);
        };
        for deed in deeds {
            match deed {
                Deed::Child(at, max) => budgets.extend(budgets[at % budgets.len()].child(max)),
                Deed::Reserve(at, tokens) => {
                    let reserved = budgets[at % budgets.len()].reserve(tokens);
                    calls.extend(reserved.map(|call| (call, 0)));
                }
                Deed::Meter(at, share) if !calls.is_empty() => {
                    let at = at % calls.len();
                    let (call, metered) = &mut calls[at];
                    *metered = (*metered).max(call.tokens() * share / 100);
                    call.meter(*metered);
                }
                Deed::EndCall(at) if !calls.is_empty() => end(calls.swap_remove(at % calls.len())),
                Deed::DropBudget(at) if budgets.len() > 1 => {
                    drop(budgets.swap_remove(1 + at % (budgets.len() - 1)));
                }
                Deed::Meter(..) | Deed::EndCall(_) | Deed::DropBudget(_) => {}
            }
            for budget in &budgets {
                let used = budget.spent_tokens() + budget.reserved_tokens();
                prop_assert!(Some(used) <= budget.limits().tokens_max, "{budget:?}");
            }
            prop_assert!(root.calls() <= CALLS);
        }
        calls.into_iter().for_each(&mut end);
        budgets.clear();
        prop_assert_eq!((root.spent_tokens(), root.reserved_tokens(), root.calls()), (spent, 0, ran));
    }
}
