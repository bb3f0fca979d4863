//! Any requests of a Copilot client. Each line of the input is a method and its parameters, separated by a space. Each
//! request gets exactly one answer, and after the end of the connection a stop leaves nothing running.
#![no_main]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use allstop_copilot::{ConnectionAccess, CopilotOptions, CopilotServer};
use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_jsonrpc::{FrameDecoder, FrameLimits, encode_frame};
use allstop_model::ScriptedModel;
use allstop_runtime::{Config, ModelChoice, System, SystemOptions};
use allstop_scope::{RootOptions, ScopeOptions, StopRequest, WorkSpec};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::Builder;

/// Maximum number of requests in one input.
const REQUESTS_MAX: usize = 32;
/// Size in bytes of the buffer between the two sides. All requests of one input fit.
const PIPE_BYTES: usize = 1024 * 1024;
const LIMITS: FrameLimits = FrameLimits {
    header_bytes_max: 1024,
    body_bytes_max: 64 * 1024 * 1024,
};
/// The model never calls a tool.
const SCRIPT: &str = "turns:\n  - replies: [{text: \"Hello.\"}]\n";
/// Parameters with these names start programs, use the network, or name folders outside of the temporary one.
const OUTSIDE: [&str; 6] = [
    "command",
    "url",
    "baseUrl",
    "cwd",
    "workingDirectory",
    "configDir",
];

fuzz_target!(|text: &str| {
    let requests: Vec<_> = text
        .lines()
        .filter_map(request_of)
        .take(REQUESTS_MAX)
        .collect();
    if requests.is_empty() || text.len() > PIPE_BYTES / 2 {
        return;
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(answer_all(&requests));
});

fn request_of(line: &str) -> Option<(&str, Value)> {
    let (method, params) = line.split_once(' ')?;
    let params = serde_json::from_str(params).ok()?;
    let is_inside = !method.starts_with("session.shell.") && !leads_outside(&params);
    is_inside.then_some((method, params))
}

fn leads_outside(params: &Value) -> bool {
    match params {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| OUTSIDE.contains(&name.as_str()) || leads_outside(value)),
        Value::Array(values) => values.iter().any(leads_outside),
        _ => false,
    }
}

async fn answer_all(requests: &[(&str, Value)]) {
    let place = TempDir::new().expect("a temporary folder");
    let model = ScriptedModel::parse("fuzz.yaml", SCRIPT).expect("the script is right");
    let config = Config::parse(Path::new("fuzz.toml"), "").expect("an empty configuration");
    let options = SystemOptions::new(config, place.path())
        .model(ModelChoice::Given(Arc::new(model)))
        .spill_folder(place.path().join("output"))
        .scopes(RootOptions::single_runtime());
    let root = options.root();
    let child = |label: &'static str| {
        root.child(label, ScopeOptions::default())
            .expect("nothing is stopped")
    };
    let system = System::open_in(child("agent"), options)
        .await
        .expect("the system opens");
    let server = CopilotServer::new(
        Arc::new(system),
        child("connections"),
        CopilotOptions::new("1.2.3"),
    );
    let (mut client, theirs) = tokio::io::duplex(PIPE_BYTES);
    let serve = async move {
        let (input, output) = tokio::io::split(theirs);
        server.serve(input, output, ConnectionAccess::Trusted).await
    };
    let spec = WorkSpec::new(ItemKind::Future, "client");
    let serving = child("clients")
        .spawn(spec, |_cx| serve)
        .expect("nothing is stopped");
    for (id, (method, params)) in requests.iter().enumerate() {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let frame = encode_frame(request.to_string().as_bytes());
        client
            .write_all(&frame)
            .await
            .expect("the connection lives");
    }
    let mut waiting: BTreeSet<_> = (0..requests.len() as u64).collect();
    let mut decoder = FrameDecoder::new(LIMITS);
    while !waiting.is_empty() {
        let Some(message) = next_message(&mut client, &mut decoder).await else {
            // Only a shutdown on request ends the connection early.
            assert!(
                requests
                    .iter()
                    .any(|(method, _)| *method == "runtime.shutdown")
            );
            break;
        };
        if let (None, Some(id)) = (message.get("method"), message["id"].as_u64()) {
            assert!(waiting.remove(&id), "a second answer: {message}");
        }
    }
    drop(client);
    drop(serving.await);
    let receipt = root
        .stop(StopRequest::new(
            Extent::Process,
            Cause::new(CauseKind::User),
        ))
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
}

async fn next_message(client: &mut DuplexStream, decoder: &mut FrameDecoder) -> Option<Value> {
    let mut chunk = [0; 4096];
    loop {
        if let Some(body) = decoder.next_frame().expect("frames of the server") {
            return Some(serde_json::from_slice(&body).expect("JSON of the server"));
        }
        match client.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(len) => decoder.push(&chunk[..len]),
        }
    }
}
