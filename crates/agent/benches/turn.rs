//! What a turn costs, and what stopping a thousand of them costs, each against a bare tokio loop that does the same.

#![expect(
    clippy::unused_async,
    reason = "the baseline awaits what a real one would"
)]

use std::sync::Arc;

use allstop_agent::{Agent, EventSink, History, RunRequest};
use allstop_core::{Cause, CauseKind, Effect, Extent, SessionId, StopReason, Timestamp};
use allstop_log::{MemoryLog, SessionStream};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopOrder};
use allstop_testkit::ToolFn;
use allstop_tools::ToolRegistry;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const RUNS: usize = 1_000;

fn one_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads")
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

async fn bare_stop() {
    let token = CancellationToken::new();
    let tracker = TaskTracker::new();
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..RUNS {
        for _ in 0..2 {
            let (child, tx) = (token.child_token(), tx.clone());
            tracker.spawn(async move {
                tx.send(()).expect("somebody counts");
                child.cancelled().await;
            });
        }
    }
    for _ in 0..2 * RUNS {
        rx.recv().await;
    }
    let began = std::time::Instant::now();
    token.cancel();
    tracker.close();
    tracker.wait().await;
    ELAPSED.with(|elapsed| elapsed.set(began.elapsed()));
}

thread_local! {
    /// What the last round's stop alone took: starting the runs is not measured.
    static ELAPSED: std::cell::Cell<std::time::Duration> = const { std::cell::Cell::new(std::time::Duration::ZERO) };
}

async fn allstop_stop() {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let hears = move |call: allstop_tools::ToolInvocation| {
        let tx = tx.clone();
        async move {
            tx.send(()).expect("somebody counts");
            call.scope.stopped_at("idle").await.to_string()
        }
    };
    let mut tools = ToolRegistry::new();
    let tool = ToolFn::new("wait", hears).effect(Effect::ReadOnly);
    tools.register(Arc::new(tool)).expect("one tool");
    let model = ScriptedModel::new(vec![
        Reply::text("")
            .call("wait", json!({"n": 1}))
            .call("wait", json!({"n": 2}))
            .usage(1, 1),
    ]);
    let agent = Agent::builder(Arc::new(model)).tools(tools).build();
    let scope = Scope::root("bench", RootOptions::current());
    let mut runs = Vec::with_capacity(RUNS);
    for n in 0..RUNS {
        let parent = scope
            .child("session", ScopeOptions::default())
            .expect("nothing is stopped");
        let id = SessionId::from(n.to_string());
        let history = History::bare(id, Arc::default());
        runs.push(agent.start(&parent, RunRequest::new(history, "go"), EventSink::none()));
    }
    for _ in 0..2 * RUNS {
        rx.recv().await;
    }
    let began = std::time::Instant::now();
    let stop = scope.stop(StopOrder::new(Extent::Process, Cause::new(CauseKind::User)));
    let mut items = 0;
    for run in runs {
        let outcome = run.finish().await.expect("the engine");
        let receipt = outcome.turns[0].receipt.clone().expect("a receipt");
        assert!(receipt.quiet() && receipt.cancel_observed());
        items += receipt.items().len();
    }
    assert!(stop.receipt().await.quiet());
    assert_eq!(items, 2 * RUNS);
    ELAPSED.with(|elapsed| elapsed.set(began.elapsed()));
}

fn stop(c: &mut Criterion) {
    let runtime = two_threads();
    let mut group = c.benchmark_group("stop 1,000 runs inside two tools each");
    group.sample_size(20);
    group.bench_function("bare tracker and tokens", |b| {
        b.iter_custom(|rounds| measure(&runtime, rounds, bare_stop));
    });
    group.bench_function("allstop, receipts made", |b| {
        b.iter_custom(|rounds| measure(&runtime, rounds, allstop_stop));
    });
    group.finish();
}

fn measure<F: Future<Output = ()>>(
    runtime: &Runtime,
    rounds: u64,
    round: impl Fn() -> F,
) -> std::time::Duration {
    (0..rounds)
        .map(|_| {
            runtime.block_on(round());
            ELAPSED.with(std::cell::Cell::get)
        })
        .sum()
}

criterion_group!(benches, turn, stop);
criterion_main!(benches);
