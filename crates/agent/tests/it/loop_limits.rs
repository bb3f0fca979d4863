//! Repeated identical calls.

use allstop_core::StopReason;
use allstop_core::turn::LoopLimits;
use allstop_model::{Reply, ScriptedModel};
use allstop_testkit::ToolFn;
use serde_json::json;
use std::sync::Arc;

use crate::{agent, history, root, run, settings, tools};

#[tokio::test(start_paused = true)]
async fn repeated_identical_calls_end_the_run() {
    let reply = || Reply::text("").call("t", json!({"same": true}));
    let model = Arc::new(ScriptedModel::new((0..20).map(|_| reply()).collect()).keeping_requests());
    let tool = ToolFn::new("t", |_| async { "x".to_owned() });
    let loop_limits = LoopLimits::default().repeats_max(3);
    let settings = settings().loop_limits(loop_limits);
    let agent = agent(&model)
        .tools(tools(vec![tool]))
        .settings(settings)
        .build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::LoopDetected);
    assert_eq!(model.requests().len(), 3);
    assert!(turn.conversation.messages.is_empty());
}
