//! Images of a message: the request contains them, and a stop keeps or drops them with the message.

use std::sync::Arc;

use allstop_agent::{EventSink, Prompt, RunRequest};
use allstop_core::turn::StopPolicy;
use allstop_core::{Cause, CauseKind, Extent, Image, Images, StopReason};
use allstop_model::{ModelRequest, Pause, Reply};
use allstop_scope::{Scope, StopRequest};
use serde_json::json;

use super::*;

fn images() -> Images {
    Image::new(*b"\x89PNG\r\n\x1a\n").expect("a PNG").into()
}

fn prompt(text: &str) -> Prompt {
    Prompt {
        images: images(),
        ..Prompt::from(text)
    }
}

fn image_count(request: &ModelRequest) -> usize {
    let messages = request.messages.iter();
    messages.map(|message| message.images().len()).sum()
}

/// Runs a turn with an image and stops it after the first answer of the model. Returns the images of the next request.
async fn images_after_a_stop(policy: StopPolicy) -> usize {
    let scope = root();
    let stopped = scope.clone();
    let stop = ToolFn::new("stop", move |_| {
        let stopped: Scope = stopped.clone();
        async move {
            drop(stopped.stop(StopRequest::new(Extent::Turn, Cause::new(CauseKind::User))));
            std::future::pending::<String>().await
        }
    });
    let model = model(vec![
        Reply::text("I see.").call("stop", json!({})),
        Reply::text("ok"),
        Reply::text("ok").pause(Pause::Forever),
    ]);
    let settings = settings().stop_policy(policy);
    let agent = agent(&model).settings(settings).tools(tools(vec![stop]));
    let agent = agent.build();
    let request = RunRequest::new(history().await, prompt(""));
    let run = agent.start(&scope, request, EventSink::none());
    let (turn, history) = ended(run.finish().await.expect("no panic"));
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    let (turn, _) = run_next(&agent, history).await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    check_requests(&model);
    let requests = model.requests();
    assert_eq!(image_count(&requests[0]), 1);
    image_count(&requests[1])
}

async fn run_next(agent: &Agent, history: RunHistory) -> (TurnOutcome, RunHistory) {
    run(agent.clone(), &root(), history, "and now?").await
}

#[tokio::test(start_paused = true)]
async fn stop_keeps_or_drops_an_image_with_its_message() {
    assert_eq!(images_after_a_stop(StopPolicy::Rollback).await, 0);
    assert_eq!(images_after_a_stop(StopPolicy::Keep).await, 1);
}

#[tokio::test]
async fn log_contains_the_image_and_the_start_only_its_size() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let model = model(vec![Reply::text("a dot")]);
    let history = history_on(Arc::clone(&log)).await;
    let request = RunRequest::new(history, prompt("look"));
    let run = agent(&model)
        .build()
        .start(&root(), request, EventSink::none());
    ended(run.finish().await.expect("no panic"));
    let records = records(&*log).await;
    let written: Vec<_> = records
        .iter()
        .map(|record| serde_json::to_string(record).expect("JSON"))
        .collect();
    let has = |text: &str| {
        written
            .iter()
            .filter(|record| record.contains(text))
            .count()
    };
    assert_eq!(has("iVBORw0KGgo="), 1);
    assert_eq!(has(r#""images":[{"media_type":"image/png","bytes":8}]"#), 1);
}
