//! Turns that complete.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_agent::{EventSink, RunRequest};
use allstop_core::message::Arguments;
use allstop_core::{Message, StopReason};
use allstop_model::Reply;
use allstop_testkit::ToolFn;
use serde_json::json;

use crate::{agent, check_requests, ended, history, model, root, run, settings, tools};

fn echo() -> ToolFn {
    ToolFn::new(
        "echo",
        |call| async move { call.arguments["text"].to_string() },
    )
}

#[tokio::test(start_paused = true)]
async fn turn_with_two_calls_commits_once() {
    let model = model(vec![
        Reply::text("Let me ask.")
            .call("echo", json!({"text": "a"}))
            .call("echo", json!({"text": "b"}))
            .usage(10, 5),
        Reply::text("Done.").usage(20, 2),
    ]);
    let agent = agent(&model).tools(tools(vec![echo()])).build();
    let (turn, history) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert_eq!((&*turn.output, turn.steps), ("Done.", 2));
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (30, 7));
    assert!(!turn.usage.estimated && turn.receipt.is_none());
    assert_eq!(history.conversation().messages.len(), 5);
    check_requests(&model);
}

#[tokio::test(start_paused = true)]
async fn malformed_arguments_never_run_the_tool() {
    let model = model(vec![
        Reply::text("").malformed_call("never", "{\"path\": \"/tm"),
        Reply::text("Sorry."),
    ]);
    let never = ToolFn::new("never", |_| async {
        unreachable!("it ran with made-up arguments")
    });
    let agent = agent(&model).tools(tools(vec![never])).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let Message::Tool(result) = &*turn.conversation.messages[2] else {
        panic!()
    };
    assert!(result.is_error && result.content.contains("not JSON"));
    let Message::Assistant { tool_calls, .. } = &*turn.conversation.messages[1] else {
        panic!()
    };
    assert!(matches!(tool_calls[0].arguments, Arguments::Malformed(_)));
}

#[tokio::test(start_paused = true)]
async fn unknown_tools_errors_and_panics_become_results() {
    let model = model(vec![
        Reply::text("")
            .call("nothing", json!({}))
            .call("fails", json!({}))
            .call("panics", json!({})),
        Reply::text("I see."),
    ]);
    let fails = ToolFn::fallible("fails", |_| async { Err("no such file".to_owned()) });
    let panics = ToolFn::new("panics", |_| async { panic!("boom") });
    let agent = agent(&model).tools(tools(vec![fails, panics])).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let results: Vec<_> = turn.conversation.messages[2..5]
        .iter()
        .map(|message| match &**message {
            Message::Tool(result) => (result.is_error, &*result.content),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(results.iter().all(|(is_error, _)| *is_error));
    assert_eq!(results[1].1, "no such file");
    assert_eq!(results[2].1, "the tool panicked");
}

#[tokio::test(start_paused = true)]
async fn prompts_are_consecutive_turns_and_context_is_not_stored() {
    let model = model(vec![Reply::text("one"), Reply::text("two")]);
    let agent = agent(&model).settings(settings().system("Be brief."));
    let mut request = RunRequest::new(history().await, "first");
    request.prompts = VecDeque::from(["first".into(), "second".into()]);
    request.context = Some("It is Saturday.".into());
    let run = agent.build().start(&root(), request, EventSink::none());
    let outcome = run.finish().await.unwrap();
    assert_eq!(outcome.turns.len(), 2);
    let (turn, history) = ended(outcome);
    assert_eq!(&*turn.output, "two");
    assert_eq!(history.conversation().messages.len(), 4);
    let requests = model.requests();
    assert_eq!(requests[1].messages.len(), 3);
    assert_eq!(
        requests[0].system.as_deref(),
        Some("Be brief.\n\nIt is Saturday.")
    );
}

#[tokio::test(start_paused = true)]
async fn missing_usage_is_estimated_and_marked() {
    let model = model(vec![Reply::text("12345678")]);
    let (turn, _) = run(agent(&model).build(), &root(), history().await, "12345").await;
    assert!(turn.usage.estimated);
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn non_parallel_tool_never_overlaps_another() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let inside = Arc::new(AtomicUsize::new(0));
    let make = |name: &str| {
        let inside = Arc::clone(&inside);
        ToolFn::new(name, move |_| {
            let inside = Arc::clone(&inside);
            async move {
                let others = inside.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                others.to_string()
            }
        })
    };
    let model = model(vec![
        Reply::text("")
            .call("beside", json!({}))
            .call("beside", json!({"n": 2}))
            .call("alone", json!({}))
            .call("beside", json!({"n": 3})),
        Reply::text("ok"),
    ]);
    let registry = tools(vec![make("beside"), make("alone").alone()]);
    let (turn, _) = run(
        agent(&model).tools(registry).build(),
        &root(),
        history().await,
        "go",
    )
    .await;
    let answers: Vec<_> = turn.conversation.messages[2..6]
        .iter()
        .map(|message| match &**message {
            Message::Tool(result) => result.content.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(answers, ["0", "1", "0", "0"]);
}
