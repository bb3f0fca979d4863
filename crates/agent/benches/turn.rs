//! The cost of a turn, against a bare tokio loop that does the same.

#![expect(
    clippy::unused_async,
    reason = "the baseline awaits what a real one would"
)]

use std::sync::Arc;

use allstop_agent::{Agent, EventSink, History, RunRequest};
use allstop_core::{SessionId, StopReason, Timestamp};
use allstop_log::{MemoryLog, SessionStream};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::ToolFn;
use allstop_tools::ToolRegistry;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

fn one_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// What the bare loop passes around.
#[derive(Clone)]
#[expect(
    dead_code,
    reason = "a loop of this kind keeps its history, whether or not it reads it"
)]
enum Said {
    User(String),
    Model(String, Vec<(String, Value)>),
    Tool(String),
}

/// A loop of tokio and nothing else: the model's answer, the calls side by side, the next answer.
async fn bare_turn(messages: &mut Vec<Said>) {
    messages.push(Said::User("go".to_owned()));
    loop {
        let (text, calls) = bare_model(messages).await;
        messages.push(Said::Model(text, calls.clone()));
        if calls.is_empty() {
            return;
        }
        let results = futures::future::join_all(calls.into_iter().map(|(_, args)| bare_tool(args)));
        messages.extend(results.await.into_iter().map(Said::Tool));
    }
}

async fn bare_model(messages: &[Said]) -> (String, Vec<(String, Value)>) {
    if messages.iter().any(|said| matches!(said, Said::Tool(_))) {
        return ("Done.".to_owned(), Vec::new());
    }
    let call = |n: u32| ("echo".to_owned(), json!({"n": n}));
    ("Let me ask.".to_owned(), vec![call(1), call(2)])
}

async fn bare_tool(arguments: Value) -> String {
    arguments.to_string()
}

fn echo() -> ToolRegistry {
    let mut tools = ToolRegistry::new();
    let echo = ToolFn::new("echo", |call| async move { call.arguments.to_string() });
    tools.register(Arc::new(echo)).expect("one tool");
    tools
}

fn agent() -> Agent {
    let model = ScriptedModel::new(vec![
        Reply::text("Let me ask.")
            .call("echo", json!({"n": 1}))
            .call("echo", json!({"n": 2}))
            .usage(10, 5),
        Reply::text("Done.").usage(20, 2),
    ]);
    Agent::builder(Arc::new(model)).tools(echo()).build()
}

async fn session(id: &str) -> History {
    let (id, at) = (SessionId::from(id), Timestamp::from_unix_ms(0));
    let stream = SessionStream::create(Arc::new(MemoryLog::new()), id, at, "/").await;
    History::Logged(Box::new(stream.expect("a session in memory")))
}

fn turn(c: &mut Criterion) {
    let runtime = one_thread();
    let mut group = c.benchmark_group("a turn of two steps and two calls");
    group.bench_function("bare tokio loop", |b| {
        b.to_async(&runtime).iter_batched(
            Vec::new,
            |mut messages| async move { bare_turn(&mut messages).await },
            BatchSize::SmallInput,
        );
    });
    let agent = agent();
    let scope = runtime.block_on(async { Scope::root("bench", RootOptions::current()) });
    group.bench_function("allstop, memory log", |b| {
        b.to_async(&runtime).iter_batched(
            || futures::executor::block_on(session("s")),
            |history| {
                let (agent, scope) = (agent.clone(), scope.clone());
                async move {
                    let run =
                        agent.start(&scope, RunRequest::new(history, "go"), EventSink::none());
                    let outcome = run.finish().await.expect("the engine");
                    assert_eq!(outcome.turns[0].stop_reason, StopReason::Completed);
                    outcome
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, turn);
criterion_main!(benches);
