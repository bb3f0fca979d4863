//! Any sequence of events, cut anywhere, then stopped or crashed.

use std::sync::Arc;

use allstop_core::decision::Decision;
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{
    Budget, Draft, Next, SessionState, StopPolicy, TurnEvent, TurnLimits, TurnState, TurnStop,
};
use allstop_core::{CallId, Cause, CauseKind, Effect, StopReason, TurnNumber, Usage};
use proptest::prelude::*;
use serde_json::json;

use crate::driver::*;

/// One thing that a driver tries; what is illegal at that point is refused, and must leave no trace.
#[derive(Debug, Clone)]
enum Try {
    Step { estimate: u64 },
    Meter { tokens: u64 },
    Answer { calls: usize, cost: u64 },
    Abandon { cost: u64 },
    Begin(usize),
    Finish(usize),
    Deny(usize),
    Reject(usize),
    StopFalls,
}

fn tries() -> impl Strategy<Value = Try> {
    prop_oneof![
        3 => (0..40_u64).prop_map(|estimate| Try::Step { estimate }),
        1 => (0..40_u64).prop_map(|tokens| Try::Meter { tokens }),
        3 => (0..4_usize, 0..40_u64).prop_map(|(calls, cost)| Try::Answer { calls, cost }),
        1 => (0..40_u64).prop_map(|cost| Try::Abandon { cost }),
        3 => (0..4_usize).prop_map(Try::Begin),
        3 => (0..4_usize).prop_map(Try::Finish),
        1 => (0..4_usize).prop_map(Try::Deny),
        1 => (0..4_usize).prop_map(Try::Reject),
        1 => Just(Try::StopFalls),
    ]
}

#[derive(Debug, Clone, Copy)]
enum End {
    Commit,
    Stop(StopPolicy),
    Crash,
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Commit),
        1 => Just(End::Stop(StopPolicy::Rollback)),
        2 => Just(End::Stop(StopPolicy::Keep)),
        1 => Just(End::Crash),
    ]
}

/// The driver's own books, to compare with.
#[derive(Debug, Default)]
struct Books {
    asked: Vec<CallId>,
    metered: Usage,
}

fn attempt(
    draft: &mut Draft,
    decision: &Decision,
    books: &mut Books,
    what: &Try,
) -> Vec<SessionRecord> {
    let place = |n: &usize| {
        books
            .asked
            .get(*n)
            .cloned()
            .unwrap_or_else(|| "nobody".into())
    };
    match what {
        Try::Step { estimate } => draft
            .begin_step(&model(), *estimate, at())
            .map(|step| vec![step.record])
            .ok(),
        Try::Meter { tokens } => {
            draft.meter(usage(*tokens, 0));
            None
        }
        Try::Answer { calls, cost } => {
            // The provider numbers its calls from zero in each message.
            let calls = (0..*calls)
                .map(|n| call(&format!("call_{n}"), "read", json!({})))
                .collect();
            draft
                .finish_model("text", calls, usage(*cost, 1))
                .ok()
                .map(|answer| {
                    books.metered += usage(*cost, 1);
                    if let Next::Calls(calls) = answer.next {
                        books.asked = calls.into_iter().map(|call| call.id).collect();
                    }
                    vec![answer.record]
                })
        }
        Try::Abandon { cost } => draft
            .abandon_model(CallOutcome::Failed, usage(*cost, 0))
            .ok()
            .map(|record| {
                books.metered += usage(*cost, 0);
                vec![record]
            }),
        Try::Begin(n) => draft
            .begin_call(&place(n), Effect::Idempotent, at())
            .ok()
            .map(|r| vec![r]),
        Try::Finish(n) => {
            let result = result(&place(n), "done");
            draft
                .finish_call(result, CallOutcome::Succeeded)
                .ok()
                .map(|record| vec![record])
        }
        Try::Deny(n) => draft.deny_call(&place(n), "no", at()).ok().map(Vec::from),
        Try::Reject(n) => draft
            .reject_call(&place(n), "bad", at())
            .ok()
            .map(Vec::from),
        Try::StopFalls => {
            decision.stop(user());
            None
        }
    }
    .unwrap_or_default()
}

fn stop(draft: Draft, policy: StopPolicy, session: &mut Session) {
    let mut stopped = draft.stop(TurnStop::new(deadline(), policy, at()));
    session.log.append(&mut stopped.records);
    session.conversation = stopped.conversation;
}

fn endings(records: &[SessionRecord]) -> usize {
    let is_ending = |record: &&SessionRecord| {
        matches!(
            record,
            SessionRecord::TurnCommitted { .. } | SessionRecord::TurnStopped { .. }
        )
    };
    records.iter().filter(is_ending).count()
}

fn run_turn(session: &mut Session, steps: &[Try], end: End) {
    let before = session.state();
    let first = session.log.len();
    let decision = Arc::new(Decision::new());
    let Ok(mut draft) = session.try_begin("go", Arc::clone(&decision)) else {
        assert_eq!(endings(&session.log[first..]), 1);
        return;
    };
    let mut books = Books::default();
    let mut metered = Usage::default();
    for what in steps {
        let records = attempt(&mut draft, &decision, &mut books, what);
        session.log.extend(records);
        check_request(&draft);
        let now = draft.state().metered();
        assert!(
            now.total_tokens() >= metered.total_tokens(),
            "the metered ledger shrank"
        );
        metered = now;
        // Live work and the fold are in the same place after each event.
        assert_eq!(session.state().open_turn(), Some(draft.state()));
        assert_eq!(*draft.base(), *before.conversation());
    }
    assert_eq!(metered, books.metered);
    let mut kept = false;
    match end {
        End::Commit => match draft.commit(at()) {
            Ok(commit) => {
                assert!(decision.stopped_by().is_none());
                kept = true;
                session.log.push(commit.record().clone());
                session.conversation = commit.publish();
            }
            Err(not) => stop(not.draft, StopPolicy::Rollback, session),
        },
        End::Stop(policy) => {
            kept = policy == StopPolicy::Keep;
            stop(draft, policy, session);
        }
        End::Crash => {
            drop(draft);
            let records = session.state().recovery_records(at());
            session.log.extend(records);
        }
    }
    session.check();
    let after = session.state();
    assert_eq!(endings(&session.log[first..]), 1);
    assert!(
        after.metered().total_tokens() >= before.metered().total_tokens() + metered.total_tokens()
    );
    if kept {
        assert_eq!(after.conversation().turns, before.conversation().turns + 1);
        let added =
            after.conversation().usage.total_tokens() - before.conversation().usage.total_tokens();
        assert!(
            added <= metered.total_tokens(),
            "more is committed than was metered"
        );
    } else {
        assert_eq!(after.conversation(), before.conversation(), "no half turn");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_turn_cut_anywhere_is_whole_or_never_was(
        turns in prop::collection::vec((prop::collection::vec(tries(), 0..24), ends()), 1..5),
        steps_max in prop::option::of(0..4_u32),
        turns_max in prop::option::of(0..4_u32),
        tokens in prop::option::of(0..200_u64),
    ) {
        let budget = tokens.map(Budget::of_tokens);
        let mut session = Session::new(TurnLimits { steps_max, turns_max, budget: budget.clone() });
        for (steps, end) in &turns {
            run_turn(&mut session, steps, *end);
        }
        if let Some(budget) = budget {
            prop_assert_eq!(budget.reserved_tokens(), 0, "a reservation leaked");
        }
        // A crash at any record of all this recovers to a whole number of turns.
        for cut in 1..=session.log.len() {
            let mut state = SessionState::fold(&session.log[..cut]).expect("a prefix is legal");
            let conversation = Arc::clone(state.conversation());
            for record in state.recovery_records(at()) {
                state.apply(&record).expect("recovery is legal");
            }
            prop_assert_eq!(state.conversation(), &conversation);
            prop_assert!(state.open_turn().is_none());
            prop_assert!(state.turns().iter().all(|turn| turn.ending.is_some()));
        }
    }

    #[test]
    fn the_transition_function_refuses_or_moves_on_and_never_ends_twice(
        events in prop::collection::vec((0..6_u8, 0..4_u8), 0..60),
    ) {
        let mut turn = TurnState::new(TurnNumber(1));
        let mut accepted_endings = 0;
        for (what, id) in events {
            let before = turn.clone();
            let id = CallId::from(format!("c{id}"));
            let model = allstop_core::record::StartedCallKind::Model { reserved_tokens: 0 };
            let tool = allstop_core::record::StartedCallKind::Tool {
                arguments: json!({}).into(),
                effect: Effect::ReadOnly,
            };
            let kind = if what == 0 { model } else { tool };
            let call = allstop_core::record::StartedCall { id: id.clone(), name: "x".into(), kind };
            let cause = Cause::new(CauseKind::User);
            let reason = cause.kind.stop_reason().unwrap_or(StopReason::Error);
            let outcome = if what == 2 { CallOutcome::Succeeded } else { CallOutcome::Unknown };
            let event = match what {
                0 | 1 => TurnEvent::CallStarted(&call),
                2 | 3 => TurnEvent::CallFinished { id: &id, outcome, usage: Some(usage(1, 0)) },
                4 => TurnEvent::Committed,
                _ => TurnEvent::Stopped(reason),
            };
            if turn.apply(event).is_ok() {
                accepted_endings += u32::from(what >= 4);
            } else {
                prop_assert_eq!(&turn, &before, "a refused event changes nothing");
            }
            prop_assert!(turn.metered().total_tokens() >= before.metered().total_tokens());
        }
        prop_assert!(accepted_endings <= 1);
        prop_assert_eq!(turn.ending().is_some(), accepted_endings == 1);
        prop_assert!(turn.ending().is_none() || turn.open_calls().is_empty());
    }
}
