//! Answers with a required format: the check, the second request in the same turn, and stops of that request.

use std::sync::Arc;

use allstop_agent::{AnswerSchema, EventSink, RunError, RunRequest, TurnErrorKind};
use allstop_core::turn::StopPolicy;
use allstop_core::{Message, StopReason};
use allstop_model::{Pause, Reply, RequestSettings, ToolChoice};
use allstop_testkit::ToolFn;
use serde_json::json;

use crate::stops::user;
use crate::*;

const VALID: &str = r#"{"n": 1}"#;
const INVALID: &str = r#"{"n": "one"}"#;

#[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
struct Count {
    n: u32,
}

fn format() -> AnswerSchema {
    AnswerSchema::from_schema(json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
    }))
    .expect("a valid schema")
}

fn with_format(model: &Arc<ScriptedModel>) -> Agent {
    agent(model).answer_schema(format()).build()
}

#[tokio::test(start_paused = true)]
async fn valid_answer_is_committed_without_its_code_fence() {
    let model = model(vec![Reply::text("```json\n{\"n\": 1}\n```")]);
    let (turn, _) = run(with_format(&model), &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert_eq!((&*turn.output, turn.steps), (VALID, 1));
    let schema = model.requests()[0].output_schema.clone().expect("a schema");
    assert_eq!(schema, *format().schema());
}

#[tokio::test(start_paused = true)]
async fn wrong_answer_is_corrected_in_the_same_turn() {
    let model = model(vec![Reply::text(INVALID), Reply::text(VALID)]);
    let (turn, history) = run(with_format(&model), &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert_eq!((&*turn.output, turn.steps, turn.turn.0), (VALID, 2, 1));
    check_requests(&model);
    let requests = model.requests();
    let Some(Message::Note { text }) = requests[1].messages.last().map(|last| &**last) else {
        panic!("{requests:?}")
    };
    assert!(text.contains("`n` must be of type integer"), "{text}");
    assert_eq!(history.conversation().messages.len(), 4);
    assert_eq!(history.next_turn().0, 2);
}

#[tokio::test(start_paused = true)]
async fn second_wrong_answer_is_an_error_and_leaves_nothing() {
    let model = model(vec![
        Reply::text("no"),
        Reply::text(INVALID),
        Reply::text(VALID),
    ]);
    let (turn, _) = run(with_format(&model), &root(), history().await, "go").await;
    assert_eq!((turn.stop_reason, &*turn.output), (StopReason::Error, ""));
    let error = turn.error.expect("an error");
    assert_eq!(error.kind, TurnErrorKind::AnswerMismatch);
    assert!(
        error.message.contains("`n` must be of type integer"),
        "{error}"
    );
    assert!(turn.conversation.messages.is_empty());
    assert_eq!(model.requests().len(), 2);
}

/// Runs a turn whose second answer never ends, and stops it there.
async fn stopped_in_the_second_request(policy: StopPolicy) -> (TurnOutcome, RunHistory) {
    let second = Reply::text("{").pause(Pause::Forever);
    let model = model(vec![Reply::text(INVALID), second]);
    let settings = settings().stop_policy(policy).answer(format());
    let agent = agent(&model).settings(settings).build();
    let (sink, mut events) = EventSink::channel();
    let run = agent.start(&root(), RunRequest::new(history().await, "go"), sink);
    let mut pieces = 0;
    while pieces < 2 {
        let event = events.recv().await.expect("two answers begin");
        pieces += u32::from(matches!(event, allstop_agent::AgentEvent::TextDelta { .. }));
    }
    let stop = run.stop(user());
    let ended = ended(run.finish().await.expect("no panic"));
    let receipt = ended.0.receipt.clone().expect("a receipt");
    assert!(receipt.quiet() && receipt.cancel_observed());
    assert_eq!(receipt.stop_id(), stop.receipt().await.stop_id());
    assert_eq!(ended.0.stop_reason, StopReason::Cancelled);
    ended
}

#[tokio::test(start_paused = true)]
async fn stop_of_the_second_request_commits_nothing() {
    let (turn, history) = stopped_in_the_second_request(StopPolicy::Rollback).await;
    assert!(turn.conversation.messages.is_empty());
    let next = model(vec![Reply::text(VALID)]);
    let (turn, _) = run(with_format(&next), &root(), history, "again").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn stop_of_the_second_request_keeps_the_completed_step() {
    let (turn, _) = stopped_in_the_second_request(StopPolicy::Keep).await;
    let messages = &turn.conversation.messages;
    assert_eq!(
        *messages[1],
        Message::Assistant {
            text: INVALID.into(),
            tool_calls: vec![]
        }
    );
    assert!(matches!(
        **messages.last().expect("a marker"),
        Message::StopMarker { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn step_limit_also_bounds_the_second_request() {
    let model = model(vec![Reply::text(INVALID), Reply::text(VALID)]);
    let agent = agent(&model).max_steps(1).answer_schema(format()).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::MaxStepsReached);
}

#[tokio::test]
async fn typed_answers_are_values() {
    let model = model(vec![Reply::text(INVALID), Reply::text(VALID)]);
    let count: Count = agent(&model).build().ask_as("go").await.expect("an answer");
    assert_eq!(count, Count { n: 1 });
    let wrong = crate::model(vec![Reply::text("one"), Reply::text("one")]);
    let asked = agent(&wrong).build().ask_as::<Count>("go").await;
    let Err(RunError::Failed(failure)) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!(failure.kind, Some(TurnErrorKind::AnswerMismatch));
}

#[test]
fn invalid_schema_is_an_error() {
    let error = AnswerSchema::from_schema(json!({"type": 1})).expect_err("no schema");
    assert!(
        error
            .to_string()
            .starts_with("invalid JSON schema of the answer: "),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn required_call_is_only_for_the_first_step() {
    let model = model(vec![
        Reply::text("").call("t", json!({})),
        Reply::text("done"),
    ]);
    let choice = RequestSettings::default()
        .temperature(0.5)
        .tool_choice(ToolChoice::Required);
    let tool = ToolFn::new("t", |_| async { "x".to_owned() });
    let agent = agent(&model)
        .request(choice)
        .tools(tools(vec![tool]))
        .build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(&*turn.output, "done");
    let requests = model.requests();
    let choices = requests
        .iter()
        .map(|request| request.settings.tool_choice.clone());
    let expected = [ToolChoice::Required, ToolChoice::Auto];
    assert_eq!(choices.collect::<Vec<_>>(), expected);
    assert!(
        requests
            .iter()
            .all(|request| request.settings.temperature == Some(0.5))
    );
}
