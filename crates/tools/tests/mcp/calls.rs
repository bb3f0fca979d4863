//! Successful calls, and the specifications of tools.

use std::sync::{Arc, Mutex};

use allstop_core::{CallId, Effect};
use allstop_tools::mcp::{McpConfigError, McpServerConfig, McpTransport, ToolFilter};
use allstop_tools::{CallLink, CallObserver};
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
    output: Mutex<String>,
}

impl CallObserver for Seen {
    fn output(&self, _call: &CallId, output: &[u8]) {
        let text = str::from_utf8(output).unwrap();
        self.output.lock().unwrap().push_str(text);
    }

    fn heartbeat(&self) {}
}

#[tokio::test]
async fn progress_is_shown_in_order() {
    let place = Place::new("").await;
    let seen = Arc::new(Seen::default());
    let link = CallLink::new(CallId::new("call_1"), Arc::clone(&seen) as _);
    let call = place.start_with("t__wait", json!({"ms": 50, "progress": true}), link);
    assert_eq!(call.answer().await.unwrap(), "waited");
    let output = seen.output.lock().unwrap().clone();
    assert_eq!(output, "step 1 (1/3)\nstep 2 (2/3)\nstep 3 (3/3)\n");
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
