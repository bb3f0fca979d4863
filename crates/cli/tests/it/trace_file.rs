//! Traces in a file, which the Copilot SDKs request by environment variables.

use std::fs;

use serde_json::{Value, json};

use crate::copilot_clients::raw_client::RawClient;
use crate::support::{FACT_MAX, Place};

const FILE: &str = "COPILOT_OTEL_FILE_EXPORTER_PATH";

const SCRIPT: &str =
    "replies: [{calls: [{tool: bash, arguments: {command: echo a secret}}]}, {text: Done.}]\n";

/// Serves one turn with a tool call, with these variables. Returns the spans in the file; `None` without a file.
fn spans_of_a_program(variables: &[(&str, &str)]) -> Option<Vec<Value>> {
    let place = Place::new();
    let (model, file) = (place.script(SCRIPT), place.path("traces.jsonl"));
    let mut server = place.allstop().args("copilot --yes --port 0");
    server = server.arg("--store").arg(place.store());
    server = server.arg("--model").arg(model).env(FILE, &file);
    server = server.env("COPILOT_CONNECTION_TOKEN", "secret");
    for (name, value) in variables {
        server = server.env(name, value);
    }
    let server = server.start();
    let port = server.line_of_stdout("listening on port ");
    let mut client = RawClient::connect(port.parse().expect("a port"));
    client.request("connect", &json!({ "token": "secret" }));
    client.request("session.create", &json!({ "sessionId": "s" }));
    let message = json!({ "sessionId": "s", "prompt": "say it" });
    let answer = client.request("session.sendAndWait", &message);
    assert_eq!(answer["result"]["outcome"], "completed", "{answer}");
    // Some SDKs kill the server as soon as they have this answer.
    client.request("runtime.shutdown", &json!({}));
    let text = fs::read_to_string(&file).ok();
    server.end(FACT_MAX);
    let text = text?;
    let spans = text.lines().map(serde_json::from_str);
    Some(spans.collect::<Result<_, _>>().expect("JSON"))
}

/// Operations of the spans, in the order of their ends.
fn operations(spans: &[Value]) -> Vec<&str> {
    let operations = spans.iter();
    let operations = operations.map(|span| &span["attributes"]["gen_ai.operation.name"]);
    operations
        .map(|name| name.as_str().unwrap_or_default())
        .collect()
}

#[test]
fn file_contains_turns_and_calls_with_their_texts() {
    let spans = spans_of_a_program(&[
        ("COPILOT_OTEL_EXPORTER_TYPE", "file"),
        ("COPILOT_OTEL_SOURCE_NAME", "my-program"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
    ]);
    let spans = spans.expect("a file");
    assert_eq!(
        operations(&spans),
        ["chat", "execute_tool", "chat", "invoke_agent"]
    );
    let [_, call, _, turn] = spans.as_slice() else {
        panic!("four spans: {spans:?}");
    };
    assert_eq!(turn["attributes"]["gen_ai.conversation.id"], "s");
    for span in &spans {
        assert_eq!(span["instrumentationScope"]["name"], "my-program");
        assert_eq!(span["traceId"], turn["traceId"]);
    }
    assert_eq!(call["parentSpanId"], turn["spanId"]);
    let text = |name: &str| call["attributes"][name].as_str().unwrap_or_default();
    assert_eq!(
        text("gen_ai.tool.call.arguments"),
        r#"{"command":"echo a secret"}"#
    );
    let result = text("gen_ai.tool.call.result");
    assert!(result.contains("a secret"), "{result}");
}

#[test]
fn file_contains_no_texts_without_the_request_for_them() {
    let spans = spans_of_a_program(&[]).expect("a file");
    assert_eq!(spans.len(), 4);
    let text = format!("{spans:?}");
    assert!(
        !text.contains("secret") && !text.contains("say it"),
        "{text}"
    );
}

#[test]
fn another_exporter_writes_no_file() {
    let spans = spans_of_a_program(&[("COPILOT_OTEL_EXPORTER_TYPE", "otlp-http")]);
    assert_eq!(spans, None);
}

#[test]
fn file_in_a_missing_folder_is_an_error_of_the_server_only() {
    let place = Place::new();
    let missing = place.path("missing/traces.jsonl");
    let server = place.allstop().args("copilot --stdio").env(FILE, &missing);
    let ended = server.end();
    assert_eq!(ended.code, 2, "{ended:?}");
    let hint = "use a path in a folder that exists";
    assert!(ended.stderr.contains(hint), "{}", ended.stderr);
    // Other commands do not read the variable.
    let run = place.run_script("replies: [{text: Hello.}]\n");
    assert_eq!(run.env(FILE, &missing).arg("hello").end().code, 0);
}
