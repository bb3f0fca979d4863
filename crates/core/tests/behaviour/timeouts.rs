//! Deadlines. For the turn engine, a deadline is a decision for a stop with the cause `deadline`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::StopReason;
use allstop_core::decision::CommitDecision;
use allstop_core::record::CallOutcome;
use allstop_core::turn::TurnLimits;

use crate::driver::*;

#[test]
fn zero_and_negative_deadlines_stop_the_first_turn() {
    // The caller of the engine decides for the stop before the turn begins. The cause must be the deadline, even if a
    // limit of the engine is also reached.
    for limits in [
        TurnLimits::default(),
        TurnLimits::default().turns_max(0).steps_max(0),
    ] {
        let mut session = Session::new(limits);
        let decision = Arc::new(CommitDecision::new());
        decision.stop(deadline());
        let refusal = session
            .try_begin("go", decision)
            .expect_err("the deadline has passed");
        assert_eq!(refusal.reason(), StopReason::Timeout);
        session.check();
        assert!(session.conversation.messages.is_empty());
    }
}

#[test]
fn the_deadline_is_cumulative_over_turns() {
    // One run with two turns. The first turn commits. Then the deadline passes, and the second turn is refused at its
    // start.
    let mut session = Session::new(TurnLimits::default());
    assert_eq!(session.turn("first", usage(3, 4)), Outcome::Committed);
    let decision = Arc::new(CommitDecision::new());
    decision.stop(deadline());
    let refusal = session
        .try_begin("second", decision)
        .expect_err("the run's time is over");
    assert_eq!(refusal.reason(), StopReason::Timeout);
    assert_eq!(session.conversation.turns, 1);
}

#[test]
fn a_timeout_result_keeps_the_accumulated_usage() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("first", usage(100, 20));
    let mut draft = session.begin("second");
    let calls = session.ask(&mut draft, vec![call("a", "read", serde_json::json!({}))]);
    session.run_call(&mut draft, &calls[0].id);
    let step = draft.begin_step(&model(), 50, at()).expect("it begins");
    session.log.push(step.record);
    let half = allstop_core::Usage {
        estimated: true,
        ..usage(12, 3)
    };
    let end = draft
        .abandon_model(CallOutcome::Stopped, half)
        .expect("the model call is open");
    session.log.push(end);

    let stopped = session.stop(draft, deadline());

    assert_eq!(stopped.reason, StopReason::Timeout);
    let of_turn = allstop_core::Usage {
        estimated: true,
        ..usage(8 + 12, 2 + 3)
    };
    assert_eq!(stopped.state.metered(), of_turn);
    assert_eq!(session.conversation.usage, usage(100, 20), "committed");
    assert_eq!(
        session.state().metered(),
        usage(100, 20) + of_turn,
        "metered"
    );
}

#[test]
fn model_call_dropped_by_a_stop_costs_its_metered_usage() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let step = draft.begin_step(&model(), 50, at()).expect("it begins");
    session.log.push(step.record);
    draft.meter(usage(12, 1));
    draft.meter(usage(12, 7));
    session.stop(draft, deadline());
    let metered = allstop_core::Usage {
        estimated: true,
        ..usage(12, 7)
    };
    assert_eq!(session.state().metered(), metered);
}

#[test]
fn a_timeout_result_carries_the_right_prompt() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("first", usage(1, 1));
    let draft = session.begin("the second prompt");
    session.stop(draft, deadline());
    session.turn("third", usage(1, 1));
    let state = session.state();
    let timed_out = &state.turns()[1];
    assert_eq!(&*timed_out.input, "the second prompt");
    assert_eq!(
        timed_out.ending.as_ref().map(|e| e.reason),
        Some(StopReason::Timeout)
    );
}

#[test]
fn timeout_of_the_provider_is_an_error_and_no_deadline() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = session.begin("go");
    let step = draft.begin_step(&model(), 50, at()).expect("it begins");
    let end = draft
        .abandon_model(CallOutcome::TimedOut, usage(0, 0))
        .expect("it is open");
    session.log.extend([step.record, end]);
    let cause = allstop_core::Cause::new(allstop_core::CauseKind::Failure);
    let stopped = session.stop(draft, cause.detail("provider_timeout"));
    assert_eq!(stopped.reason, StopReason::Error);
}

#[test]
fn engine_never_waits() {
    // The caller of the engine, not the engine, drops a call that hangs. Therefore stopping the turn takes no time.
    let mut session = Session::new(TurnLimits::default());
    let draft = turn_in_two_tools(&mut session);
    let before = Instant::now();
    session.stop(draft, deadline());
    assert!(before.elapsed() < Duration::from_secs(1));
}
