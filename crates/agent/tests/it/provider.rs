//! A provider over HTTP: what its answers cost, and answers that it cuts off.

use std::sync::Arc;

use allstop_agent::{AgentBuilder, Settings, TurnOutcome};
use allstop_core::StopReason;
use allstop_core::turn::Budget;
use allstop_model::{ProviderModel, ProviderOptions};
use allstop_testkit::ToolFn;
use allstop_testkit::openai_server::{Answer, OpenAiServer};

use crate::{agent_of, history, root, run, settings, tools};

fn agent_at(server: &OpenAiServer) -> AgentBuilder {
    let options = ProviderOptions {
        base_url: Some(server.url()),
        ..ProviderOptions::default()
    };
    let model = ProviderModel::new("some-model", options).expect("a URL");
    let write = ToolFn::new("write", |_| async { "written".to_owned() });
    agent_of(Arc::new(model)).tools(tools(vec![write]))
}

/// A turn whose model writes a file of 20 kB in pieces of 8 bytes.
async fn writes_a_file(last: Answer, call_usage: Option<(u64, u64)>) -> (TurnOutcome, Arc<Budget>) {
    let call = Answer::stream().half_tool_call("call_1", "write", r#"{"text":""#);
    let call = (0..2_500).fold(call, |call, _| call.more_arguments("12345678"));
    let call = call.more_arguments(r#""}"#);
    let call = match call_usage {
        Some((input_tokens, output_tokens)) => call.usage(input_tokens, output_tokens),
        None => call.without_usage(),
    };
    let server = OpenAiServer::start([call, last]);
    let budget = Budget::of_tokens(20_000);
    let settings = Settings {
        budget: Some(Arc::clone(&budget)),
        ..settings()
    };
    let agent = agent_at(&server).settings(settings).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    (turn, budget)
}

#[tokio::test]
async fn streamed_call_is_metered_once_and_fits_its_budget() {
    let done = || Answer::text("Done.");
    let (turn, budget) = writes_a_file(done().usage(6_000, 2), Some((10, 5_100))).await;
    assert_eq!(turn.stop_reason, StopReason::Completed, "{:?}", turn.cause);
    assert_eq!(turn.usage.total_tokens(), 10 + 5_100 + 6_000 + 2);
    assert!(!turn.usage.estimated);
    assert_eq!(budget.spent_tokens(), turn.usage.total_tokens());

    // Without a word of the provider: four bytes a token, each byte once.
    let (turn, _) = writes_a_file(done().without_usage(), None).await;
    assert_eq!(turn.stop_reason, StopReason::Completed, "{:?}", turn.cause);
    assert!(turn.usage.estimated);
    let output = turn.usage.output_tokens;
    assert!((5_000..5_100).contains(&output), "{output}");
}
