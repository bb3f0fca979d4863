//! A file with spans: one line of JSON for each span, with or without the texts of the conversation.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use allstop_agent::Agent;
use allstop_model::{Reply, from_fn};
use allstop_otel::{TraceExporter, TraceFile};
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::FACT_MAX;

fn trace_file(path: PathBuf, keeps_texts: bool) -> TraceFile {
    TraceFile {
        path,
        source: "test-source".to_owned(),
        keeps_texts,
    }
}

/// Runs an agent, and returns the spans in the file.
async fn spans_of_a_run(folder: &Path, keeps_texts: bool) -> Vec<Value> {
    let path = folder.join("traces.jsonl");
    let file = trace_file(path.clone(), keeps_texts);
    let traces = TraceExporter::to_file(file, |lost| panic!("{lost}"));
    let traces = traces.expect("a file");
    registry().with(traces.layer()).init();
    let model = from_fn("test", async |_| Ok(Reply::text("a secret answer")));
    let agent = Agent::new(model).spans(traces.links()).build();
    let run = agent.run("a secret \"prompt\"");
    run.await.into_result().expect("an answer");
    traces.flush_file();
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&path).expect("the file");
    traces.close(FACT_MAX);
    let spans = text.lines().map(serde_json::from_str);
    spans.collect::<Result<_, _>>().expect("JSON")
}

#[tokio::test]
async fn file_contains_the_texts_of_model_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let spans = spans_of_a_run(folder.path(), true).await;
    let of = |operation: &str| {
        let mut found = spans
            .iter()
            .filter(|span| span["attributes"]["gen_ai.operation.name"] == operation);
        let span = found.next().expect("a span");
        assert_eq!(found.next(), None);
        span
    };
    let (turn, call) = (of("invoke_agent"), of("chat"));
    assert_eq!(turn["parentSpanId"], Value::Null);
    // Steps have no spans, so the call is below the turn.
    assert_eq!(call["parentSpanId"], turn["spanId"]);
    assert_eq!(call["traceId"], turn["traceId"]);
    assert_eq!(call["instrumentationScope"]["name"], "test-source");
    assert_eq!(
        (&call["type"], &call["status"]["code"]),
        (&"span".into(), &0.into())
    );
    assert_eq!(
        call["attributes"]["gen_ai.response.finish_reasons"][0],
        "stop"
    );
    let messages = |name: &str| -> Value {
        let text = call["attributes"][name].as_str().expect("a text");
        serde_json::from_str(text).expect("JSON")
    };
    let input = messages("gen_ai.input.messages");
    assert_eq!(input[0]["parts"][0]["content"], "a secret \"prompt\"");
    let output = messages("gen_ai.output.messages");
    assert_eq!(output[0]["role"], "assistant");
    assert_eq!(output[0]["parts"][0]["content"], "a secret answer");
}

#[tokio::test]
async fn file_contains_no_texts_by_default() {
    let folder = tempfile::tempdir().expect("a folder");
    let spans = spans_of_a_run(folder.path(), false).await;
    assert_eq!(spans.len(), 2);
    let text = format!("{spans:?}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn file_in_a_missing_folder_is_an_error_with_the_path() {
    let file = trace_file("/missing/traces.jsonl".into(), false);
    let error = TraceExporter::to_file(file, |_| ()).expect_err("no folder");
    let text = error.to_string();
    assert!(text.contains("/missing/traces.jsonl"), "{text}");
}
