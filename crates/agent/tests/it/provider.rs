//! A provider over HTTP: the cost of its answers, and answers that are cut off.

use std::sync::Arc;

use allstop_agent::{AgentBuilder, TurnOutcome};
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::Budget;
use allstop_core::{FinishReason, Message, StopReason};
use allstop_log::MemoryLog;
use allstop_model::{ProviderModel, ProviderOptions};
use allstop_testkit::ToolFn;
use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use crate::{agent_of, history, history_on, records, root, run, settings, tools};

fn agent_at(server: &OpenAiServer) -> AgentBuilder {
    let options = ProviderOptions::default().base_url(server.url());
    let model = ProviderModel::new("some-model", options).expect("a URL");
    let write = ToolFn::new("write", |_| async { "written".to_owned() });
    agent_of(Arc::new(model)).tools(tools(vec![write]))
}

/// Runs a turn whose model writes a file of 20 kB in pieces of 8 bytes.
async fn writes_a_file(
    last: ServerAnswer,
    call_usage: Option<(u64, u64)>,
) -> (TurnOutcome, Arc<Budget>) {
    let call = ServerAnswer::stream().half_tool_call("call_1", "write", r#"{"text":""#);
    let call = (0..2_500).fold(call, |call, _| call.more_arguments("12345678"));
    let call = call.more_arguments(r#""}"#);
    let call = match call_usage {
        Some((input_tokens, output_tokens)) => call.usage(input_tokens, output_tokens),
        None => call.without_usage(),
    };
    let server = OpenAiServer::start([call, last]);
    let budget = Budget::of_tokens(20_000);
    let settings = settings().budget(Arc::clone(&budget));
    let agent = agent_at(&server).settings(settings).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    (turn, budget)
}

#[tokio::test]
async fn streamed_call_is_metered_once_and_fits_its_budget() {
    let done = || ServerAnswer::text("Done.");
    let (turn, budget) = writes_a_file(done().usage(6_000, 2), Some((10, 5_100))).await;
    assert_eq!(turn.stop_reason, StopReason::Completed, "{:?}", turn.cause);
    assert_eq!(turn.usage.total_tokens(), 10 + 5_100 + 6_000 + 2);
    assert!(!turn.usage.estimated);
    assert_eq!(budget.spent_tokens(), turn.usage.total_tokens());

    // The provider reported no usage, so the usage is estimated: four bytes per token, and each byte is counted once.
    let (turn, _) = writes_a_file(done().without_usage(), None).await;
    assert_eq!(turn.stop_reason, StopReason::Completed, "{:?}", turn.cause);
    assert!(turn.usage.estimated);
    let output = turn.usage.output_tokens;
    assert!((5_000..5_100).contains(&output), "{output}");
}

/// Returns the recorded finish reason of each model call; `None` for a complete answer.
fn cuts(records: &[SessionRecord]) -> Vec<Option<FinishReason>> {
    let cuts = records.iter().filter_map(|record| match record {
        SessionRecord::CallFinished { id, finish, .. } if id.as_str().starts_with("step_") => {
            Some(*finish)
        }
        _ => None,
    });
    cuts.collect()
}

#[tokio::test]
async fn truncated_answer_is_marked_for_the_model() {
    for (finish, reason, words) in [
        ("length", FinishReason::Length, "limit of output tokens"),
        (
            "content_filter",
            FinishReason::ContentFilter,
            "content filter",
        ),
    ] {
        let server = OpenAiServer::start([
            ServerAnswer::text("Once upon").finish(finish),
            ServerAnswer::text("a time."),
        ]);
        let log = Arc::new(MemoryLog::new());
        let agent = agent_at(&server).build();
        let scope = root();
        let history = history_on(Arc::clone(&log) as _).await;
        let (turn, history) = run(agent.clone(), &scope, history, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Completed);
        assert_eq!((&*turn.output, turn.finish), ("Once upon", Some(reason)));
        assert_eq!(cuts(&records(&*log).await), [Some(reason)]);

        let (next, _) = run(agent, &scope, history, "go on").await;
        assert_eq!(next.finish, Some(FinishReason::Done));
        assert_eq!(cuts(&records(&*log).await), [Some(reason), None]);
        let sent = format!("{:?}", server.requests()[1].messages());
        assert!(
            sent.contains(words) && sent.contains("is incomplete"),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn fully_filtered_answer_is_an_error() {
    let server = OpenAiServer::start([ServerAnswer::stream().finish("content_filter")]);
    let history = history_on(Arc::new(MemoryLog::new())).await;
    let (turn, _) = run(agent_at(&server).build(), &root(), history, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Error);
    let error = turn.error.expect("an error").to_string();
    assert!(error.contains("content filter"), "{error}");
    assert!(turn.conversation.messages.is_empty());
}

#[tokio::test]
async fn truncated_call_gets_an_error_result_and_does_not_run() {
    for finish in ["length", "content_filter"] {
        let half = ServerAnswer::stream().half_tool_call("call_1", "write", r#"{"text":"Once"#);
        let server =
            OpenAiServer::start([half.finish(finish), ServerAnswer::text("Shorter, then.")]);
        let log = Arc::new(MemoryLog::new());
        let history = history_on(Arc::clone(&log) as _).await;
        let (turn, _) = run(agent_at(&server).build(), &root(), history, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Completed, "{:?}", turn.error);
        assert_eq!(turn.finish, Some(FinishReason::Done));
        let results = turn
            .conversation
            .messages
            .iter()
            .filter_map(|message| match &**message {
                Message::Tool(result) => Some(result),
                _ => None,
            });
        let [result] = results.collect::<Vec<_>>()[..] else {
            panic!("one result: {:?}", turn.conversation.messages)
        };
        assert!(
            result.is_error && result.content.contains("cut off"),
            "{result:?}"
        );
        assert!(!result.content.contains("written"), "it did not run");
        let failed = |record: &SessionRecord| {
            matches!(record, SessionRecord::CallFinished { id, outcome: CallOutcome::Failed, .. }
                if id.as_str() == "call_1")
        };
        assert_eq!(
            records(&*log)
                .await
                .iter()
                .filter(|record| failed(record))
                .count(),
            1
        );
    }
}
