//! Endings that are neither a commit nor a stop from outside.

use allstop_agent::TurnErrorKind;
use allstop_core::StopReason;
use allstop_core::turn::Budget;
use allstop_model::{ModelError, ModelErrorKind, Pause, Reply, RetryPolicy};
use allstop_testkit::ToolFn;
use serde_json::json;
use std::time::Duration;

use crate::{agent, history, model, root, run, settings, tools};

fn failing(kind: ModelErrorKind) -> Reply {
    Reply::error(ModelError::new(kind, "it failed".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn provider_failure_is_an_error_and_leaves_nothing() {
    let model = model(vec![failing(ModelErrorKind::Unauthorized)]);
    let (turn, _) = run(agent(&model).build(), &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Error);
    assert_eq!(turn.error.unwrap().kind, TurnErrorKind::Unauthorized);
    assert!(turn.conversation.messages.is_empty());
}

#[tokio::test(start_paused = true)]
async fn provider_timeout_is_an_error_and_not_a_deadline() {
    let deadlines = allstop_agent::Deadlines::default()
        .run(Duration::from_mins(1))
        .between_tokens(Duration::from_secs(2));
    let model = model(vec![Reply::text("x").pause(Pause::Forever)]);
    let settings = settings().deadlines(deadlines).retry(RetryPolicy::never());
    let (turn, _) = run(
        agent(&model).settings(settings).build(),
        &root(),
        history().await,
        "go",
    )
    .await;
    assert_eq!(turn.stop_reason, StopReason::Error);
    assert_eq!(turn.error.unwrap().kind, TurnErrorKind::ProviderTimeout);
}

#[tokio::test(start_paused = true)]
async fn transient_failure_is_retried_and_its_cost_is_kept() {
    let flaky = Reply::text("fine").failing_first(
        2,
        ModelError::new(ModelErrorKind::Unavailable, "busy".to_owned()),
    );
    let model = model(vec![flaky]);
    let (turn, _) = run(agent(&model).build(), &root(), history().await, "go").await;
    assert_eq!(
        (turn.stop_reason, &*turn.output),
        (StopReason::Completed, "fine")
    );
    assert_eq!(model.requests().len(), 3);
}

/// A provider that has begun to answer may charge for the request.
#[tokio::test(start_paused = true)]
async fn usage_of_a_call_that_fails_at_once_is_estimated() {
    let cut = || ModelError::new(ModelErrorKind::Disconnected, "cut".to_owned());
    let begun = vec![Reply::text("").fail(cut())];
    let refused = vec![Reply::error(cut())];
    for (replies, may_cost) in [(begun, true), (refused, false)] {
        let once = settings().retry(RetryPolicy::never());
        let agent = agent(&model(replies)).settings(once).build();
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Error);
        assert_eq!(turn.usage.input_tokens > 0, may_cost, "{:?}", turn.usage);
        assert_eq!(turn.usage.estimated, may_cost, "{:?}", turn.usage);
    }
}

#[tokio::test(start_paused = true)]
async fn broken_stream_is_retried_without_its_partial_call() {
    let model = model(vec![Reply::text("half").disconnect()]);
    let settings = settings().retry(RetryPolicy::never());
    let (turn, _) = run(
        agent(&model).settings(settings).build(),
        &root(),
        history().await,
        "go",
    )
    .await;
    assert_eq!(turn.error.unwrap().kind, TurnErrorKind::Disconnected);
    assert!(turn.conversation.messages.is_empty());
    assert!(turn.usage.output_tokens > 0, "what was received is metered");
}

#[tokio::test(start_paused = true)]
async fn step_limit_ends_the_turn() {
    let model = model(vec![
        Reply::text("").call("t", json!({"n": 1})),
        Reply::text("").call("t", json!({"n": 2})),
    ]);
    let tool = ToolFn::new("t", |_| async { "x".to_owned() });
    let settings = settings().steps_max(1);
    let agent = agent(&model)
        .tools(tools(vec![tool]))
        .settings(settings)
        .build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::MaxStepsReached);
    assert!(turn.conversation.messages.is_empty());
}

#[tokio::test(start_paused = true)]
async fn turn_limit_ends_the_next_turn_at_its_start() {
    let model = model(vec![Reply::text("one"), Reply::text("two")]);
    let settings = settings().turns_max(1);
    let agent = agent(&model).settings(settings).build();
    let scope = root();
    let (_, history) = run(agent.clone(), &scope, history().await, "a").await;
    let (turn, history) = run(agent, &scope, history, "b").await;
    assert_eq!(turn.stop_reason, StopReason::MaxTurnsReached);
    assert_eq!(history.conversation().messages.len(), 2);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn budget_is_reserved_before_it_is_spent() {
    let model = model(vec![Reply::text("one").usage(10, 10)]);
    let settings = settings()
        .budget(Budget::of_tokens(50))
        .output_tokens_max(100);
    let agent = agent(&model).settings(settings).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::MaxBudgetReached);
    assert!(
        model.requests().is_empty(),
        "it was refused before it was sent"
    );
}

#[tokio::test(start_paused = true)]
async fn number_of_a_refused_turn_is_not_reused() {
    let model = model(vec![failing(ModelErrorKind::NotFound)]);
    let scope = root();
    let (first, history) = run(agent(&model).build(), &scope, history().await, "a").await;
    let (second, _) = run(agent(&model).build(), &scope, history, "b").await;
    assert_eq!((first.turn.0, second.turn.0), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn endless_answer_cannot_overdraw_the_budget() {
    let endless = (0..1000).fold(Reply::text(""), |reply, _| reply.and_text("x".repeat(400)));
    let model = model(vec![endless]);
    let budget = Budget::of_tokens(5_000);
    let settings = settings().budget(std::sync::Arc::clone(&budget));
    let agent = agent(&model).settings(settings).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::MaxBudgetReached);
    assert!(
        turn.usage.total_tokens() > 4_000,
        "most of the budget was used"
    );
    assert!(turn.usage.total_tokens() <= 5_000 + 100, "{:?}", turn.usage);
    assert_eq!(budget.spent_tokens(), turn.usage.total_tokens());
    assert_eq!(budget.reserved_tokens(), 0);
}
