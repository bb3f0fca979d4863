//! Random sequences of events over several turns. Each sequence is cut at any point, and then the turn is committed,
//! stopped or crashed.

mod transitions;
mod tries;
mod turn;

use std::sync::Arc;

use allstop_core::turn::{Budget, BudgetLimits, SessionState, TurnLimits};
use proptest::prelude::*;

use crate::driver::*;
use tries::{Try, tries};
use turn::{ALL_ENDS, End, ends, run_turn};

/// Limits of a session. Each test run creates a new budget from these limits, because a run spends its budget.
#[derive(Debug, Clone, Copy)]
struct Limits {
    steps_max: Option<u32>,
    turns_max: Option<u32>,
    budget: Option<BudgetLimits>,
}

fn limits() -> impl Strategy<Value = Limits> {
    let budget = (prop::option::of(0..200_u64), prop::option::of(0..12_u64)).prop_map(
        |(tokens_max, calls_max)| {
            BudgetLimits::default()
                .tokens_max(tokens_max)
                .calls_max(calls_max)
        },
    );
    (
        prop::option::of(0..4_u32),
        prop::option::of(0..4_u32),
        prop::option::of(budget),
    )
        .prop_map(|(steps_max, turns_max, budget)| Limits {
            steps_max,
            turns_max,
            budget,
        })
}

type Turn = (Vec<Try>, End);

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    prop::collection::vec((prop::collection::vec(tries(), 0..24), ends()), 1..5)
}

/// Runs these turns in a new session and returns the session for more turns.
fn run(limits: Limits, turns: &[Turn]) -> Session {
    let budget = limits.budget.map(Budget::new);
    let mut session = Session::new(
        TurnLimits::default()
            .steps_max(limits.steps_max)
            .turns_max(limits.turns_max)
            .budget(budget),
    );
    for (steps, end) in turns {
        run_turn(&mut session, steps, *end);
        if let Some(budget) = &session.limits.budget {
            assert_eq!(budget.reserved_tokens(), 0, "a reservation leaked");
        }
    }
    session
}

/// Checks that the next turn works after any history.
fn check_next_turn(session: &mut Session) {
    session.limits = TurnLimits::default();
    let turns = session.conversation.turns;
    assert_eq!(session.turn("next", usage(3, 1)), Outcome::Committed);
    assert_eq!(session.conversation.turns, turns + 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn turn_cut_anywhere_is_committed_or_never_happened(turns in turns(), limits in limits()) {
        let mut session = run(limits, &turns);
        check_next_turn(&mut session);
    }

    #[test]
    fn turn_can_end_in_every_way_at_every_point(
        before in prop::collection::vec((prop::collection::vec(tries(), 0..12), ends()), 0..2),
        steps in prop::collection::vec(tries(), 0..16),
        limits in limits(),
    ) {
        for cut in 0..=steps.len() {
            for end in ALL_ENDS {
                let mut session = run(limits, &before);
                run_turn(&mut session, &steps[..cut], end);
                check_next_turn(&mut session);
            }
        }
    }

    #[test]
    fn a_crash_at_any_record_recovers_to_a_whole_number_of_turns(
        turns in turns(),
        limits in limits(),
    ) {
        let session = run(limits, &turns);
        for cut in 1..=session.log.len() {
            let log = &session.log[..cut];
            let crashed = SessionState::fold(log).expect("a prefix is legal");
            let records = crashed.recovery_records(at());
            let mut recovered = crashed.clone();
            for (written, record) in records.iter().enumerate() {
                // If a crash interrupts the recovery, the next recovery writes exactly the remaining records.
                prop_assert_eq!(&recovered.recovery_records(at())[..], &records[written..]);
                recovered.apply(record).expect("recovery is legal");
            }
            prop_assert_eq!(recovered.recovery_records(at()), []);
            prop_assert_eq!(shown(recovered.conversation()), shown(crashed.conversation()));
            prop_assert_eq!(recovered.metered(), crashed.metered());
            prop_assert!(recovered.turns().iter().all(|turn| turn.ending.is_some()));
            let whole = [log, &records].concat();
            prop_assert_eq!(&SessionState::fold(&whole).expect("it can be folded"), &recovered);
            let mut next = Session::new(TurnLimits::default());
            next.conversation = Arc::clone(recovered.conversation());
            next.log = whole;
            check_next_turn(&mut next);
        }
    }
}
