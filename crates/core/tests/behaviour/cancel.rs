//! Cancels: the point at which the turn engine notices a cancel, and results that a cancel never changes.

use std::sync::Arc;

use allstop_core::decision::CommitDecision;
use allstop_core::turn::{Draft, DraftError, StartRefusal, StopPolicy, TurnLimits, TurnStop};
use allstop_core::{Cause, CauseKind, FinishReason, StopReason};

use crate::driver::*;

fn fallen(cause: Cause) -> Arc<CommitDecision> {
    let decision = Arc::new(CommitDecision::new());
    assert!(decision.stop(cause));
    decision
}

#[test]
fn turn_cancelled_before_its_start_changes_nothing() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("first", usage(10, 5));
    let before = session.state();

    let refusal = session
        .try_begin("second", fallen(user()))
        .expect_err("it was cancelled");

    assert_eq!(refusal, StartRefusal::Stopped(user()));
    assert_eq!(refusal.reason(), StopReason::Cancelled);
    session.check();
    assert_eq!(session.state().conversation(), before.conversation());
    assert_eq!(session.state().metered(), before.metered());
    assert_eq!(session.turn("third", usage(10, 5)), Outcome::Committed);
}

#[test]
fn cancel_after_the_budget_check_is_seen_before_the_commit() {
    let mut session = Session::new(TurnLimits::default());
    let decision = Arc::new(CommitDecision::new());
    let mut draft = session
        .try_begin("go", Arc::clone(&decision))
        .expect("not cancelled yet");
    let before = Arc::clone(draft.base());
    session.answer(&mut draft, "too late", usage(10, 5));

    decision.stop(user());

    assert_eq!(
        session.end(draft),
        Outcome::Stopped(StopReason::Cancelled, user())
    );
    assert_eq!(session.conversation, before);
    assert_eq!(
        session.conversation.usage,
        usage(0, 0),
        "the committed ledger is as it was"
    );
    assert_eq!(
        session.state().metered(),
        usage(10, 5),
        "the metered ledger is not"
    );
}

#[test]
fn cancel_after_the_commit_stops_only_the_next_turn() {
    let mut session = Session::new(TurnLimits::default());
    let decision = Arc::new(CommitDecision::new());
    let mut draft = session
        .try_begin("go", Arc::clone(&decision))
        .expect("not cancelled");
    session.answer(&mut draft, "done", usage(10, 5));
    assert_eq!(session.end(draft), Outcome::Committed);
    let committed = session.state();

    assert!(
        !decision.stop(user()),
        "the turn's decision has fallen: the stop learns it"
    );

    assert_eq!(session.state(), committed);
    // A stop of the run also decides for the stop of the next turn.
    let refusal = session
        .try_begin("next", fallen(user()))
        .expect_err("cancelled at its entry");
    assert_eq!(refusal.reason(), StopReason::Cancelled);
}

#[test]
fn cancel_precedes_the_max_turns_check() {
    let mut session = Session::new(TurnLimits::default().turns_max(1));
    session.turn("first", usage(1, 1));

    let refusal = session
        .try_begin("second", fallen(user()))
        .expect_err("refused");
    assert_eq!(refusal.reason(), StopReason::Cancelled);

    let refusal = session
        .try_begin("third", Arc::default())
        .expect_err("refused");
    assert_eq!(refusal, StartRefusal::TurnsMax { limit: 1 });
    assert_eq!(refusal.reason(), StopReason::MaxTurnsReached);
    session.check();
}

#[test]
fn cancel_precedes_the_budget_check() {
    let budget = allstop_core::turn::Budget::of_tokens(0);
    let limits = TurnLimits::default().budget(budget);
    let mut session = Session::new(limits);
    let refusal = session
        .try_begin("go", fallen(user()))
        .expect_err("refused");
    assert_eq!(refusal.reason(), StopReason::Cancelled);
}

#[test]
fn limit_before_the_start_wins_over_a_later_cancel() {
    let limits = TurnLimits::default().turns_max(0);
    let decision = Arc::new(CommitDecision::new());
    let refusal = Session::new(limits)
        .try_begin("go", Arc::clone(&decision))
        .expect_err("refused");
    assert!(!decision.stop(user()));
    assert_eq!(decision.stopped_by(), Some(&refusal.cause()));
}

#[test]
fn cancel_in_the_last_permitted_step_is_not_max_steps() {
    let mut session = Session::new(TurnLimits::default().steps_max(1));
    let decision = Arc::new(CommitDecision::new());
    let mut draft = session
        .try_begin("go", Arc::clone(&decision))
        .expect("not cancelled");
    let calls = session.ask(&mut draft, vec![call("a", "read", serde_json::json!({}))]);
    session.run_call(&mut draft, &calls[0].id);

    decision.stop(user());

    let refused = draft
        .begin_step(&model(), 1, at())
        .expect_err("it was cancelled");
    assert_eq!(refused, DraftError::Refused(StartRefusal::Stopped(user())));
    assert_eq!(session.stop(draft, user()).reason, StopReason::Cancelled);
}

#[test]
fn cancel_during_the_last_model_call_is_not_lost() {
    let mut session = Session::new(TurnLimits::default());
    let decision = Arc::new(CommitDecision::new());
    let mut draft = session
        .try_begin("go", Arc::clone(&decision))
        .expect("not cancelled");
    let step = draft.begin_step(&model(), 10, at()).expect("it begins");
    decision.stop(user());
    // The answer still arrives. The draft (the running turn) accepts the answer, but the commit is refused.
    let answer = draft
        .finish_model("done", Vec::new(), usage(5, 5), FinishReason::Done)
        .expect("the call is open");
    session.log.extend([step.record, answer.record]);
    assert_eq!(
        session.end(draft),
        Outcome::Stopped(StopReason::Cancelled, user())
    );
}

#[test]
fn nothing_starts_after_a_stop() {
    let mut session = Session::new(TurnLimits::default());
    let decision = Arc::new(CommitDecision::new());
    let mut draft = session
        .try_begin("go", Arc::clone(&decision))
        .expect("not cancelled");
    let calls = session.ask(&mut draft, vec![call("a", "shell", serde_json::json!({}))]);
    decision.stop(user());
    let refused = draft.begin_call(&calls[0].id, allstop_core::Effect::ReadOnly, at());
    assert_eq!(
        refused,
        Err(DraftError::Refused(StartRefusal::Stopped(user())))
    );
    assert!(draft.state().open_calls().is_empty());
}

#[test]
fn deadline_and_user_cancel_have_different_reasons() {
    for (cause, reason) in [
        (user(), StopReason::Cancelled),
        (Cause::new(CauseKind::Superseded), StopReason::Cancelled),
        (Cause::new(CauseKind::Parent), StopReason::Cancelled),
        (Cause::new(CauseKind::Disconnect), StopReason::Cancelled),
        (deadline(), StopReason::Timeout),
        (Cause::new(CauseKind::Inactivity), StopReason::Timeout),
        (Cause::new(CauseKind::Budget), StopReason::MaxBudgetReached),
        (Cause::new(CauseKind::Guardrail), StopReason::Guardrail),
        (Cause::new(CauseKind::Shutdown), StopReason::Shutdown),
        (Cause::new(CauseKind::Failure), StopReason::Error),
    ] {
        let mut session = Session::new(TurnLimits::default());
        let draft = session.begin("go");
        let stopped = session.stop(draft, cause.clone());
        assert_eq!((stopped.reason, &stopped.cause), (reason, &cause));
        let ending = session.state().turns()[0]
            .ending
            .clone()
            .expect("the turn has ended");
        assert_eq!((ending.reason, ending.cause), (reason, Some(cause)));
    }
}

#[test]
fn the_first_cause_wins_and_is_never_overwritten() {
    let mut session = Session::new(TurnLimits::default());
    let decision = Arc::new(CommitDecision::new());
    let draft = session
        .try_begin("go", Arc::clone(&decision))
        .expect("not stopped");
    decision.stop(deadline());
    // The caller passes the user's cancel, because it does not know the earlier cause.
    let stopped = session.stop(draft, user());
    assert_eq!(
        (stopped.reason, stopped.cause),
        (StopReason::Timeout, deadline())
    );
}

#[test]
fn limit_that_ends_a_turn_wins_over_a_later_cancel() {
    let mut session = Session::new(TurnLimits::default().steps_max(0));
    let decision = Arc::new(CommitDecision::new());
    let draft = session
        .try_begin("go", Arc::clone(&decision))
        .expect("not stopped");
    let stopped = session.stop(draft, StartRefusal::StepsMax { limit: 0 }.cause());
    assert!(!decision.stop(user()), "the turn has ended");
    assert_eq!(decision.stopped_by(), Some(&stopped.cause));
}

#[test]
fn lost_lease_writes_no_ending() {
    let lost = || Cause::new(CauseKind::LeaseLost);
    let session = Session::new(TurnLimits::default());
    let start = session.start("go");
    let draft = allstop_core::turn::Draft::begin(
        Arc::clone(&session.conversation),
        &start,
        &session.limits,
        Arc::default(),
    );
    let keep = allstop_core::turn::StopPolicy::Keep;
    let stop = allstop_core::turn::TurnStop::new(lost(), keep, at());
    let stopped = draft.expect("nothing refuses it").stop(stop);
    assert!(stopped.records.is_empty());
    assert_eq!(stopped.conversation, session.conversation);
    assert!(
        StartRefusal::Stopped(lost())
            .stop(&start, keep, None, Arc::clone(&session.conversation))
            .records
            .is_empty()
    );
}

#[test]
fn a_failure_before_the_first_answer_keeps_nothing() {
    let mut session = Session::new(TurnLimits::default());
    session.turn("first", usage(10, 5));
    let before = Arc::clone(&session.conversation);
    let failure = || Cause::new(CauseKind::Failure).detail("400: your secret is long");
    let keep = |draft: Draft| draft.stop(TurnStop::new(failure(), StopPolicy::Keep, at()));

    let stopped = keep(session.begin("what the provider refuses"));
    assert_eq!(stopped.conversation, before);

    // The conversation keeps an answer and the effects of the calls in it. It does not contain the error text of the
    // provider.
    let mut draft = session.begin("look");
    session.ask(&mut draft, vec![call("a", "shell", serde_json::json!({}))]);
    let stopped = keep(draft);
    let kept = &stopped.conversation.messages[before.messages.len()..];
    let shown = format!("{kept:?}");
    assert!(
        shown.contains("The turn was stopped here (failure)."),
        "{shown}"
    );
    assert!(!shown.contains("secret"), "{shown}");
}
