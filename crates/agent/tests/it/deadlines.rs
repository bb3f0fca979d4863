//! The deadline of a step, and the inactivity limit: both stop the turn, and the receipt of the turn lists the stopped
//! work.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Deadlines, EventSink, RunRequest, Settings};
use allstop_core::receipt::ItemKind;
use allstop_core::turn::StopPolicy;
use allstop_core::{CauseKind, StopReason};
use allstop_log::MemoryLog;
use allstop_model::{Pause, Reply};
use allstop_testkit::{FaultyLog, LogFault, ToolFn};
use serde_json::json;

use crate::stops::hears;
use crate::{LONG, agent, history, history_on, model, root, run, settings, tools};

/// Settings with a step deadline of five seconds.
fn by_step() -> Settings {
    settings()
        .deadlines(Deadlines::default().step(Duration::from_secs(5)))
        .stop_policy(StopPolicy::Keep)
}

/// The store is slow at the time of the deadline, so that the deadline ends the call before the engine notices the
/// deadline.
#[tokio::test(start_paused = true)]
async fn receipt_lists_calls_stopped_by_a_step_deadline() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let history = history_on(Arc::clone(&log) as _).await;
    let quick = ToolFn::new("quick", |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "QUICK".to_owned()
    });
    let calls = Reply::text("")
        .call("quick", json!({}))
        .call("hears", json!({}));
    let agent = agent(&model(vec![calls]))
        .tools(tools(vec![quick, ToolFn::new("hears", hears)]))
        .settings(by_step());
    let request = RunRequest::new(history, "go");
    let run = agent.build().start(&root(), request, EventSink::none());
    tokio::time::sleep(Duration::from_millis(500)).await;
    log.fail_at("call_finished", LogFault::Hold);
    tokio::time::sleep(Duration::from_secs(7)).await;
    log.heal();
    log.release().await;
    let turn = run.finish().await.unwrap().turns.pop().unwrap();
    assert_eq!(turn.stop_reason, StopReason::Timeout);
    let receipt = turn.receipt.unwrap();
    let names: Vec<&str> = receipt.items().iter().map(|item| &*item.name).collect();
    assert_eq!(names, ["hears"], "{receipt:?}");
}

#[tokio::test(start_paused = true)]
async fn step_deadline_works_while_the_store_hangs() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let history = history_on(Arc::clone(&log) as _).await;
    log.fail_at("call_started", LogFault::Hold);
    let tool = ToolFn::new("t", |_| async { "x".to_owned() });
    let agent = agent(&model(vec![Reply::text("").call("t", json!({}))]))
        .tools(tools(vec![tool]))
        .settings(by_step());
    let request = RunRequest::new(history, "go");
    let mut run = agent.build().start(&root(), request, EventSink::none());
    let outcome = tokio::time::timeout(LONG, run.wait()).await;
    let outcome = outcome.expect("it was stopped").unwrap();
    let turn = outcome.turns.into_iter().next().unwrap();
    assert_eq!(turn.cause.unwrap().kind, CauseKind::Deadline);
}

#[tokio::test(start_paused = true)]
async fn receipt_lists_a_silent_model_call() {
    for deadlines in [
        Deadlines::default().inactivity(Duration::from_secs(5)),
        by_step().deadlines,
    ] {
        let silent = Reply::text("some words")
            .pause(Pause::Forever)
            .and_text("more");
        let settings = settings().deadlines(deadlines);
        let agent = agent(&model(vec![silent])).settings(settings).build();
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        let receipt = turn.receipt.unwrap();
        assert_eq!(receipt.items().len(), 1, "{deadlines:?}: {receipt:?}");
        assert_eq!(receipt.items()[0].kind, ItemKind::ModelCall);
        assert!(receipt.quiet());
    }
}
