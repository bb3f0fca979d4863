//! A store that fails: the outcome of a turn claims only the facts that the log has confirmed.

use std::sync::Arc;

use allstop_agent::{EventSink, Run, RunHistory, RunRequest, Settings, TurnErrorKind, TurnOutcome};
use allstop_core::decision::DecisionState;
use allstop_core::receipt::ConversationEffect;
use allstop_core::turn::StopPolicy;
use allstop_core::{Cause, CauseKind, SessionId, StopReason, Timestamp};
use allstop_log::{MemoryLog, SessionWriter};
use allstop_model::{Pause, Reply, ScriptedModel};
use allstop_scope::{Scope, ScopeOptions, StopRequest};
use allstop_testkit::{FaultyLog, LogFault, ToolFn};

use crate::{agent, ended, root, settings};

fn model(replies: Vec<Reply>) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::in_order_of_calls(replies))
}

fn user() -> Cause {
    Cause::new(CauseKind::User)
}

async fn faulty() -> (Arc<FaultyLog>, RunHistory) {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let at = Timestamp::from_unix_ms(0);
    let session = SessionWriter::create(
        Arc::clone(&log) as _,
        SessionId::from("s1"),
        at,
        "/tmp",
        None,
    );
    let session = session.await.expect("a session in memory");
    (log, RunHistory::Logged(Box::new(session)))
}

fn keeping(policy: StopPolicy) -> Settings {
    settings().stop_policy(policy)
}

/// Checks that the next message is answered after the store works again, and that log and outcome agree.
async fn next_message_works(log: &FaultyLog, scope: &Scope, history: RunHistory) -> TurnOutcome {
    log.heal();
    let next = model(vec![Reply::text("fine")]);
    let run = agent(&next).build();
    let (turn, _) = crate::run(run, scope, history, "again").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    turn
}

#[tokio::test(start_paused = true)]
async fn refused_commit_is_an_error_and_changes_nothing() {
    let (log, history) = faulty().await;
    let (scope, first) = (root(), model(vec![Reply::text("before")]));
    let (before, history) = crate::run(agent(&first).build(), &scope, history, "one").await;

    log.fail_at("turn_committed", LogFault::Refuse);
    let model = model(vec![Reply::text("lost")]);
    let request = RunRequest::new(history, "go");
    let run = agent(&model)
        .build()
        .start(&scope, request, EventSink::none());
    let controls = Arc::clone(run.controls());
    // `ended` also compares the outcome with the log.
    let (turn, history) = ended(run.finish().await.expect("a finished run"));

    assert_eq!(turn.stop_reason, StopReason::Error);
    assert_eq!(turn.error.unwrap().kind, TurnErrorKind::Store);
    assert_eq!((&*turn.output, turn.is_ending_known), ("", true));
    assert_eq!(turn.conversation, before.conversation);
    assert_eq!(history.conversation(), before.conversation);
    assert_eq!(controls.decision_state(), Some(DecisionState::NotCommitted));

    let next = next_message_works(&log, &scope, history).await;
    let added = &next.conversation.messages[before.conversation.messages.len()..];
    assert_eq!(added.len(), 2, "nothing of the lost turn: {added:?}");
}

/// If the ending of a turn was not written, the next message first ends this turn. After a crash, the next start of the
/// session ends an open turn in the same way.
#[tokio::test(start_paused = true)]
async fn next_message_works_after_an_ending_was_not_written() {
    for refused in ["turn_committed", "call_finished"] {
        let (log, history) = faulty().await;
        log.fail_at(refused, LogFault::Refuse);
        let (scope, model) = (root(), model(vec![Reply::text("lost")]));
        let request = RunRequest::new(history, "go");
        let agent = agent(&model).build();
        let run = agent.start(&scope, request, EventSink::none());
        log.reached().await;
        log.fail_all(LogFault::Refuse);
        let mut outcome = run.finish().await.expect("a finished run");
        let turn = outcome.turns.pop().expect("a turn");
        assert_eq!(turn.error.expect("an error").kind, TurnErrorKind::Store);
        let next = next_message_works(&log, &scope, outcome.history).await;
        assert_eq!(
            next.conversation.messages.len(),
            2,
            "nothing of the lost turn"
        );
    }
}

/// If the store refuses the record of a step's cost, the record is written with the turn's ending, because the cost is
/// real.
#[tokio::test(start_paused = true)]
async fn refused_records_are_written_with_the_ending() {
    let (log, history) = faulty().await;
    let model = model(vec![
        Reply::text("I look.")
            .call("look", serde_json::json!({}))
            .usage(10, 5),
    ]);
    let faulty = Arc::clone(&log);
    let look = ToolFn::new("look", move |_| {
        faulty.fail_once(LogFault::Refuse);
        async { "seen".to_owned() }
    });
    let agent = agent(&model).tools(crate::tools(vec![look])).build();
    let scope = root();
    // `run` also compares the usage with the log.
    let (turn, history) = crate::run(agent, &scope, history, "go").await;
    assert_eq!(turn.error.expect("an error").kind, TurnErrorKind::Store);
    assert_eq!(turn.usage.output_tokens, 5);
    let RunHistory::Logged(session) = &history else {
        panic!("not logged")
    };
    assert!(
        session.state().open_turn().is_none(),
        "the turn has an ending"
    );
    next_message_works(&log, &scope, history).await;
}

/// Starts a turn, and returns its run when the write of the commit has reached the faulty store.
async fn committing(fault: LogFault) -> (Arc<FaultyLog>, Scope, Run) {
    let (log, history) = faulty().await;
    log.fail_at("turn_committed", fault);
    let (scope, model) = (root(), model(vec![Reply::text("an answer")]));
    let request = RunRequest::new(history, "go");
    let run = agent(&model)
        .build()
        .start(&scope, request, EventSink::none());
    log.reached().await;
    (log, scope, run)
}

fn check_ending_unknown(turn: &TurnOutcome) {
    assert_eq!(turn.stop_reason, StopReason::Error, "never cancelled");
    let error = turn.error.as_ref().expect("an error");
    assert_eq!(error.kind, TurnErrorKind::Store);
    assert!(error.message.contains("has not confirmed"), "{error}");
    let hint = error.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("allstop sessions show"), "{hint}");
    assert_eq!((&*turn.output, turn.is_ending_known), ("", false));
    assert!(turn.conversation.messages.is_empty());
}

#[tokio::test(start_paused = true)]
async fn stop_during_an_unconfirmed_commit_is_never_cancelled() {
    let (log, scope, run) = committing(LogFault::Hold).await;
    let controls = Arc::clone(run.controls());
    assert_eq!(controls.decision_state(), Some(DecisionState::Committing));
    let _stop = run.stop(user());
    let outcome = run.finish().await.expect("a finished run");
    assert_eq!(controls.decision_state(), Some(DecisionState::Committing));
    check_ending_unknown(&outcome.turns[0]);

    let next = next_message_works(&log, &scope, outcome.history).await;
    assert_eq!(next.conversation.turns, 2, "the commit was settled first");
}

#[tokio::test(start_paused = true)]
async fn commit_without_an_answer_is_unknown() {
    let (log, scope, run) = committing(LogFault::LoseAnswer).await;
    let outcome = run.finish().await.expect("a finished run");
    check_ending_unknown(&outcome.turns[0]);
    let next = next_message_works(&log, &scope, outcome.history).await;
    assert_eq!(next.conversation.turns, 2);
}

#[tokio::test(start_paused = true)]
async fn decision_distinguishes_running_stopped_and_committed() {
    let (_, history) = faulty().await;
    let answers = model(vec![Reply::text("yes")]);
    let scope = root();
    let request = RunRequest::new(history, "go");
    let controls = Arc::clone(&request.controls);
    assert_eq!(controls.decision_state(), None);
    let run = agent(&answers)
        .build()
        .start(&scope, request, EventSink::none());
    let (_, history) = ended(run.finish().await.expect("a finished run"));
    assert_eq!(controls.decision_state(), Some(DecisionState::Committed));

    let waits = model(vec![Reply::text("yes").pause(Pause::Forever)]);
    let (sink, mut events) = EventSink::channel();
    let run = agent(&waits)
        .build()
        .start(&scope, RunRequest::new(history, "go"), sink);
    events.recv().await.expect("the turn has begun");
    assert_eq!(
        run.controls().decision_state(),
        Some(DecisionState::Undecided)
    );
    let _stop = run.stop(user());
    assert_eq!(
        run.controls().decision_state(),
        Some(DecisionState::Stopped(user()))
    );
    let _ended = run.finish().await.expect("a finished run");
}

/// Stops a turn in the middle of its answer, while the ending of the turn cannot be written. Returns the effect that
/// the receipt contains.
async fn stopped_with(policy: StopPolicy, fault: LogFault) -> ConversationEffect {
    let (log, history) = faulty().await;
    let waits = model(vec![Reply::text("some words").pause(Pause::Forever)]);
    let (sink, mut events) = EventSink::channel();
    let agent = agent(&waits).settings(keeping(policy)).build();
    let scope = root();
    let run = agent.start(&scope, RunRequest::new(history, "go"), sink);
    while !matches!(
        events.recv().await.expect("it streams"),
        allstop_agent::AgentEvent::TextDelta { .. }
    ) {}
    log.fail_at("turn_stopped", fault);
    let _stop = run.stop(user());
    let mut outcome = run.finish().await.expect("a finished run");
    let turn = outcome.turns.pop().expect("a turn");
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    // Under `keep`, the next start of the session keeps the messages that are already in the log.
    let is_known = fault == LogFault::Refuse && policy == StopPolicy::Rollback;
    assert_eq!(turn.is_ending_known, is_known);
    assert!(turn.conversation.messages.is_empty());
    assert_eq!(turn.error.expect("an error").kind, TurnErrorKind::Store);
    turn.receipt.expect("a receipt").conversation()
}

#[tokio::test(start_paused = true)]
async fn keep_claims_only_what_the_store_confirmed() {
    use ConversationEffect::{Unchanged, Unknown};
    for (policy, fault, effect) in [
        (StopPolicy::Keep, LogFault::Refuse, Unknown),
        (StopPolicy::Keep, LogFault::Hold, Unknown),
        (StopPolicy::Keep, LogFault::LoseAnswer, Unknown),
        // With or without a written ending, the conversation contains nothing of the turn.
        (StopPolicy::Rollback, LogFault::Refuse, Unchanged),
        (StopPolicy::Rollback, LogFault::Hold, Unchanged),
    ] {
        assert_eq!(
            stopped_with(policy, fault).await,
            effect,
            "{policy:?} {fault:?}"
        );
    }
}

/// Requests a turn in a scope that is already stopped, because a newer message supersedes it. The stop policy is `keep`.
async fn refused_at_entry(history: RunHistory) -> TurnOutcome {
    let scope = root();
    let above = scope
        .child("session", ScopeOptions::default())
        .expect("open");
    let cause = Cause::new(CauseKind::Superseded);
    let _stop = above.stop(StopRequest::new(allstop_core::Extent::Session, cause));
    let agent = agent(&model(vec![]))
        .settings(keeping(StopPolicy::Keep))
        .build();
    let run = agent.start(&above, RunRequest::new(history, "go"), EventSink::none());
    let mut outcome = run.finish().await.expect("a finished run");
    let turn = outcome.turns.pop().expect("a turn");
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    assert_eq!(outcome.history.conversation(), turn.conversation);
    turn
}

#[tokio::test(start_paused = true)]
async fn refused_turn_claims_only_what_was_written() {
    let (log, history) = faulty().await;
    log.fail_at("turn_stopped", LogFault::Refuse);
    let turn = refused_at_entry(history).await;
    let receipt = turn.receipt.expect("a receipt");
    assert_eq!(receipt.conversation(), ConversationEffect::Unchanged);
    assert!(turn.conversation.messages.is_empty());

    let (_, history) = faulty().await;
    let bare = RunHistory::bare(SessionId::from("s2"), Arc::default());
    for history in [history, bare] {
        let turn = refused_at_entry(history).await;
        let receipt = turn.receipt.expect("a receipt");
        let kept = ConversationEffect::KeptCompletedSteps;
        assert_eq!(receipt.conversation(), kept);
        assert_eq!(
            turn.conversation.messages.len(),
            2,
            "the message and the marker"
        );
    }
}

/// The run that fails names its own completed calls, because no later run of this process may do it.
#[tokio::test(start_paused = true)]
async fn completed_calls_of_a_turn_that_the_store_did_not_take_are_lost() {
    let policies = [StopPolicy::Rollback, StopPolicy::Keep];
    let faults = [LogFault::Refuse, LogFault::LoseAnswer];
    for (policy, fault) in policies
        .into_iter()
        .flat_map(|policy| faults.map(|fault| (policy, fault)))
    {
        let (log, history) = faulty().await;
        let pays = Reply::text("I pay.").call("pay", serde_json::json!({}));
        let model = model(vec![pays, Reply::text("Paid.")]);
        let pay = ToolFn::new("pay", |_| async { "paid".to_owned() });
        let agent = agent(&model).settings(keeping(policy));
        let agent = agent.tools(crate::tools(vec![pay])).build();
        log.fail_at("turn_committed", fault);
        let scope = root();
        let run = agent.start(&scope, RunRequest::new(history, "go"), EventSink::none());
        let mut outcome = run.finish().await.expect("a finished run");
        let turn = outcome.turns.pop().expect("a turn");
        assert_eq!(turn.error.expect("an error").kind, TurnErrorKind::Store);
        let lost = turn.lost.map(|lost| lost.to_string());
        let is_named = lost.is_some_and(|lost| lost.contains("pay: completed"));
        // Without a confirmed ending, the next start of the session keeps the completed step, which is in the log.
        let is_kept = policy == StopPolicy::Keep && fault == LogFault::LoseAnswer;
        assert_eq!(is_named, !is_kept, "{policy:?} {fault:?}");
    }
}
