//! Streamed turns over HTTP, sixteen in flight, compared with a bare loop over reqwest.

#![expect(
    clippy::disallowed_methods,
    reason = "the baseline and the server spawn barely"
)]

use std::process::ExitCode;
use std::sync::Arc;

use allstop_agent::{Agent, EventSink, RunHistory, RunRequest};
use allstop_bench::{BenchSuite, Figure, timed};
use allstop_core::{SessionId, StopReason, Timestamp};
use allstop_log::{MemoryLog, SessionWriter};
use allstop_model::{ProviderModel, ProviderOptions};
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::ToolFn;
use allstop_tools::ToolRegistry;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

const IN_FLIGHT: usize = 16;
const TURNS: usize = 64;

const CALLS: &str = concat!(
    "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Let me ask.\"}}]}\n\n",
    "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"echo\",\"arguments\":\"{\\\"n\\\":1}\"}},{\"index\":1,\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"echo\",\"arguments\":\"{\\\"n\\\":2}\"}}]}}]}\n\n",
    "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}\n\n",
    "data: [DONE]\n\n",
);

const DONE: &str = concat!(
    "data: {\"id\":\"2\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Done\"}}]}\n\n",
    "data: {\"id\":\"2\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\".\"}}]}\n\n",
    "data: {\"id\":\"2\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"id\":\"2\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":2,\"total_tokens\":22}}\n\n",
    "data: [DONE]\n\n",
);

/// A provider that first requests two calls, and gives the final answer after their results.
async fn serve() -> String {
    async fn answer(body: Bytes) -> impl IntoResponse {
        let has_results = body
            .windows(13)
            .any(|window| window == b"\"role\":\"tool\"");
        (
            [(CONTENT_TYPE, "text/event-stream")],
            if has_results { DONE } else { CALLS },
        )
    }
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/v1/")
}

async fn reqwest_turn(client: reqwest::Client, url: Arc<str>) {
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    loop {
        let body =
            json!({"model": "m", "stream": true, "messages": messages, "tools": [echo_schema()]});
        let answer = client
            .post(format!("{url}chat/completions"))
            .json(&body)
            .send()
            .await
            .expect("an answer");
        let mut chunks = answer.bytes_stream();
        let (mut text, mut calls, mut buffer) = (String::new(), Vec::new(), String::new());
        while let Some(chunk) = chunks.next().await {
            buffer.push_str(std::str::from_utf8(&chunk.expect("a chunk")).expect("text"));
            while let Some(end) = buffer.find("\n\n") {
                let event: String = buffer.drain(..end + 2).collect();
                let Ok(event) =
                    serde_json::from_str::<Value>(event.trim_start_matches("data: ").trim())
                else {
                    continue;
                };
                let delta = &event["choices"][0]["delta"];
                text.push_str(delta["content"].as_str().unwrap_or_default());
                calls.extend(delta["tool_calls"].as_array().cloned().unwrap_or_default());
            }
        }
        if calls.is_empty() {
            assert_eq!(text, "Done.");
            return;
        }
        messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            messages
                .push(json!({"role": "tool", "tool_call_id": call["id"], "content": arguments}));
        }
    }
}

fn echo_schema() -> Value {
    json!({"type": "function", "function": {"name": "echo", "description": "echo", "parameters": {"type": "object"}}})
}

async fn allstop_turn(agent: Agent, scope: Scope, n: usize) {
    let (id, at) = (SessionId::from(n.to_string()), Timestamp::from_unix_ms(0));
    let session = SessionWriter::create(Arc::new(MemoryLog::new()), id, at, "/", None).await;
    let history = RunHistory::Logged(Box::new(session.expect("a session in memory")));
    let run = agent.start(&scope, RunRequest::new(history, "go"), EventSink::none());
    let outcome = run.finish().await.expect("a finished run");
    assert_eq!(
        outcome.turns[0].stop_reason,
        StopReason::Completed,
        "{:?}",
        outcome.turns[0].error
    );
}

/// Runs `TURNS` turns, at most `IN_FLIGHT` at once.
async fn many<F: Future<Output = ()> + Send + 'static>(turn: impl Fn(usize) -> F) {
    let turns = futures::stream::iter(0..TURNS).map(|n| tokio::spawn(turn(n)));
    turns
        .buffer_unordered(IN_FLIGHT)
        .for_each(|joined| async { joined.expect("a turn") })
        .await;
}

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    let server: Runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        server.block_on(async {
            tx.send(serve().await).expect("a receiver");
            std::future::pending::<()>().await;
        });
    });
    let url = rx.recv().expect("a server");
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");

    let client = reqwest::Client::builder()
        .http1_only()
        .build()
        .expect("a client");
    let shared: Arc<str> = url.as_str().into();
    let bare_loop = || {
        let turns = many(|_| reqwest_turn(client.clone(), Arc::clone(&shared)));
        timed(|| runtime.block_on(turns)).0
    };

    let options = ProviderOptions::default().base_url(url);
    let model = ProviderModel::new("m", options).expect("a model");
    let mut tools = ToolRegistry::new();
    let echo = ToolFn::new("echo", |call| async move { call.arguments.to_string() });
    tools.register(Arc::new(echo)).expect("one tool");
    let agent = Agent::new(Arc::new(model)).tools(tools).build();
    let scope = runtime.block_on(async { Scope::root("bench", RootOptions::current()) });
    let in_memory = || {
        let turns = many(|n| allstop_turn(agent.clone(), scope.clone(), n));
        timed(|| runtime.block_on(turns)).0
    };
    suite.run(
        Figure::new("64 turns over HTTP, 16 in flight, memory log", in_memory)
            .against("bare loop over reqwest", bare_loop),
    );
    suite.finish()
}
