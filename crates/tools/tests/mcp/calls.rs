//! Successful calls, and the specifications of tools.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use allstop_core::{CallId, Effect};
use allstop_tools::mcp::{McpConfigError, McpServerConfig, McpTransport, ToolFilter};
use allstop_tools::{CallLink, CallObserver, CallProgress};
use serde_json::json;

use crate::support::{Place, wait_until, within};

#[tokio::test]
async fn tools_are_named_after_their_server_and_have_its_hints() {
    let place = Place::new("").await;
    let tools = place.tools();
    let specs: Vec<_> = tools
        .iter()
        .map(|tool| (&*tool.spec().name, tool.spec().effect))
        .collect();
    assert_eq!(
        specs,
        [
            ("t__echo", Effect::ReadOnly),
            ("t__wait", Effect::Irreversible),
            ("t__add", Effect::Irreversible),
            ("t__put", Effect::Idempotent),
            ("t__exit", Effect::Irreversible),
            ("t__mutter", Effect::Irreversible),
            ("t__dotted_name_x", Effect::Irreversible),
            ("t__fail", Effect::Irreversible),
            ("t__large", Effect::Irreversible),
            ("t__change", Effect::Irreversible),
            ("t__research", Effect::Irreversible),
        ]
    );
    assert_eq!(tools[0].spec().input_schema["required"], json!(["text"]));
    assert_eq!(
        place.call("t__dotted_name_x", json!({})).await.unwrap(),
        "done"
    );
    assert!(place.log().contains("dotted.name/x"));
}

#[tokio::test]
async fn patterns_select_tools() {
    let place = Place::with("", |config| {
        config.filter = ToolFilter::new(&["e*", "put"], &["exit"]).unwrap();
    })
    .await;
    let names: Vec<_> = place
        .tools()
        .iter()
        .map(|tool| tool.spec().name.to_string())
        .collect();
    assert_eq!(names, ["t__echo", "t__put"]);
    assert!(matches!(
        ToolFilter::new(&["["], &[]),
        Err(McpConfigError::Pattern { .. })
    ));
}

#[test]
fn server_name_must_be_valid_in_tool_names() {
    let transport = || McpTransport::Http {
        url: "http://127.0.0.1:1".into(),
        headers: Vec::new(),
    };
    for wrong in [
        "",
        "a b",
        "a__b",
        "a_",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "ä",
    ] {
        assert!(McpServerConfig::new(wrong, transport()).is_err(), "{wrong}");
    }
    assert!(McpServerConfig::new("file-system_2", transport()).is_ok());
}

#[tokio::test]
async fn concurrent_calls_get_their_own_answers() {
    let place = Place::new("").await;
    let calls: Vec<_> = (0..20)
        .map(|n| place.start("t__echo", json!({"text": n.to_string()})))
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.answer().await.unwrap(), n.to_string());
    }
}

#[tokio::test]
async fn error_of_the_tool_is_an_error_result() {
    let place = Place::new("").await;
    assert_eq!(
        place.call("t__fail", json!({})).await.unwrap_err(),
        "no such row"
    );
}

#[tokio::test]
async fn long_output_is_bounded_and_kept_in_a_file() {
    let place = Place::new("").await;
    let text = place.call("t__large", json!({})).await.unwrap();
    assert!(
        text.len() < 40_000 && text.contains("the whole output is in"),
        "{}",
        text.len()
    );
}

#[derive(Default)]
struct Seen {
    progress: Mutex<Vec<String>>,
}

impl Seen {
    fn last(&self) -> String {
        let seen = self.progress.lock().unwrap();
        seen.last().cloned().unwrap_or_default()
    }
}

impl CallObserver for Seen {
    fn output(&self, _call: &CallId, _output: &[u8]) {}

    fn progress(&self, _call: &CallId, progress: &CallProgress) {
        self.progress.lock().unwrap().push(progress.to_string());
    }

    fn heartbeat(&self) {}
}

/// Starts a call that reports progress, and waits until the progress `last` is shown.
async fn progress_until(place: &Place, progress: serde_json::Value, last: &str) -> Vec<String> {
    let seen = Arc::new(Seen::default());
    let link = CallLink::new(CallId::new("call_1"), Arc::clone(&seen) as _);
    let arguments = json!({"progress": progress, "on_cancel": "error"});
    let call = place.start_with("t__wait", arguments, link);
    wait_until("the last progress is shown", || seen.last() == last).await;
    assert!(call.stop().await.quiet());
    seen.progress.lock().unwrap().clone()
}

#[tokio::test]
async fn flood_of_progress_is_thinned_out_and_ends_with_the_last() {
    let place = Place::new("").await;
    let flood = (1..=10_000).map(|done| json!({"progress": done, "total": 10_000}));
    let began = Instant::now();
    let seen = progress_until(&place, flood.collect(), "progress 10000/10000").await;
    let intervals = began.elapsed().as_millis() / 50;
    assert!(seen.len() as u128 <= intervals + 2, "{}", seen.len());
}

#[tokio::test]
async fn progress_that_makes_no_sense_is_dropped() {
    let place = Place::new("").await;
    let garbage = json!([
        {"progress": -1, "total": 3},
        {"progress": "one"},
        {"total": 3},
        {"progress": 1e308, "total": -1e308, "message": "more"},
        {"progress": 4, "total": 3, "message": "\u{1b}[2J\n"},
        {"progress": -0.5, "message": "last of all"},
    ]);
    let seen = progress_until(&place, garbage, "\u{1b}[2J\n (4)").await;
    assert!(
        seen.iter().all(|seen| !seen.contains("last of all")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn closing_ends_the_server_and_leaves_nothing() {
    let place = Place::new("").await;
    within(place.servers.close()).await;
    assert!(place.log().ends_with("end of input\n"), "{}", place.log());
    assert_eq!(place.state().to_string(), "stopped");
    wait_until("nothing runs", || place.root.is_quiet()).await;
    let error = place
        .call("t__echo", json!({"text": "x"}))
        .await
        .unwrap_err();
    assert_eq!(error, "the server `t` is stopped");
    let pipes = std::fs::read_dir(place.path("pipes")).unwrap().count();
    assert_eq!(pipes, 0, "pipes were left");
}

/// The chosen metadata replaces the trace context of the call.
#[tokio::test]
async fn request_has_the_chosen_metadata() {
    let place = Place::new("").await;
    let tool = place.tool("t__echo");
    let origin = tool.spec().mcp.as_ref().expect("a tool of a server");
    assert_eq!((&*origin.server, &*origin.tool), ("t", "echo"));
    let fields = serde_json::Map::from_iter([("tenant".to_owned(), json!("acme"))]);
    for (number, meta) in [
        allstop_tools::McpMeta::Fields(Arc::new(fields)),
        allstop_tools::McpMeta::Empty,
    ]
    .into_iter()
    .enumerate()
    {
        let scope = place
            .turn
            .child("call", allstop_scope::ScopeOptions::default())
            .unwrap();
        let trace = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        let invocation = allstop_tools::ToolInvocation {
            session_id: "s".into(),
            call_id: CallId::new(format!("c{number}")),
            name: "t__echo".into(),
            arguments: Arc::new(json!({ "text": "x" })),
            scope,
            trace: allstop_core::TraceContext::new(trace),
            link: allstop_tools::CallLink::default(),
            mcp_meta: meta,
        };
        tool.call(invocation).await.unwrap();
    }
    let log = place.log();
    assert_eq!(log.matches("\"tenant\":\"acme\"").count(), 1, "{log}");
    assert!(!log.contains("0af7651916cd43dd8448eb211c80319c"), "{log}");
}
