//! One stop of a turn inside a tool, from the request to its receipt. One tool reacts to the stop. The other tool
//! ignores the stop, so the stop ends it by force after the grace. The ending is written to the memory log.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{Agent, EventSink, RunHistory, RunRequest};
use allstop_bench::{BenchSuite, Figure};
use allstop_core::{Cause, CauseKind, Extent, SessionId, Timestamp};
use allstop_log::{MemoryLog, SessionWriter};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopRequest};
use allstop_testkit::ToolFn;
use allstop_tools::{ToolInvocation, ToolRegistry};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Number of samples, high enough that a few outliers do not determine the 99th percentile.
const ROUNDS: usize = 2_000;
/// Number of samples with the tool that ignores the stop. The number is low, because each sample waits for the grace.
const DEAF_ROUNDS: usize = 300;
const GRACE: Duration = Duration::from_millis(10);

/// Behaviour of a tool during a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// The tool waits for the stop and returns.
    Hears,
    /// The tool ignores the stop and waits forever.
    Deaf,
}

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let mut stop = stop(&runtime, Hearing::Hears);
    suite.run(
        Figure::new("one stop of a turn in a tool", &mut stop)
            .rounds(ROUNDS)
            .median_at_most(Duration::from_micros(200))
            .p99_at_most(Duration::from_millis(2))
            .against("token and tracker", || runtime.block_on(bare())),
    );
    let mut stop_deaf = self::stop(&runtime, Hearing::Deaf);
    let beyond_grace = || stop_deaf().saturating_sub(GRACE);
    suite.run(
        Figure::new(
            "one stop of a turn in a deaf tool, beyond its grace",
            beyond_grace,
        )
        .rounds(DEAF_ROUNDS)
        .median_at_most(Duration::from_millis(2))
        .p99_at_most(Duration::from_millis(5)),
    );
    suite.finish()
}

/// Measures the time from the request to the receipt of one turn's stop.
fn stop(runtime: &Runtime, hearing: Hearing) -> impl FnMut() -> Duration {
    let (tx, mut running) = unbounded_channel();
    let agent = agent(hearing, tx);
    let root = runtime.block_on(async { Scope::root("bench", RootOptions::current()) });
    move || runtime.block_on(stop_turn(&agent, &root, &mut running))
}

async fn stop_turn(agent: &Agent, root: &Scope, running: &mut UnboundedReceiver<()>) -> Duration {
    let (id, at) = (SessionId::from("s"), Timestamp::from_unix_ms(0));
    let stream = SessionWriter::create(Arc::new(MemoryLog::new()), id, at, "/", None).await;
    let history = RunHistory::Logged(Box::new(stream.expect("a session in memory")));
    let scope = root.child("session", ScopeOptions::default());
    let scope = scope.expect("nothing is stopped");
    let run = agent.start(&scope, RunRequest::new(history, "go"), EventSink::none());
    running.recv().await.expect("the tool runs");
    let asked = Instant::now();
    let order = StopRequest::new(Extent::Session, Cause::new(CauseKind::User)).grace(GRACE);
    let receipt = scope.stop(order).receipt().await;
    let took = asked.elapsed();
    assert!(receipt.quiet() && receipt.items().len() == 1, "{receipt:?}");
    let outcome = run.finish().await.expect("a finished run");
    assert!(outcome.turns[0].error.is_none(), "{outcome:?}");
    took
}

/// Builds an agent whose model calls one tool; the tool reports its start and then waits.
fn agent(hearing: Hearing, running: UnboundedSender<()>) -> Agent {
    let wait = move |call: ToolInvocation| {
        let running = running.clone();
        async move {
            running.send(()).expect("a receiver");
            match hearing {
                Hearing::Hears => call.scope.stopped_at("idle").await.to_string(),
                Hearing::Deaf => std::future::pending().await,
            }
        }
    };
    let mut tools = ToolRegistry::new();
    let tool = Arc::new(ToolFn::new("wait", wait));
    tools.register(tool).expect("one tool");
    let model = ScriptedModel::new(vec![Reply::text("").call("wait", json!({})).usage(1, 1)]);
    Agent::new(Arc::new(model)).tools(tools).build()
}

/// Baseline: one task with a cancellation token, cancelled and awaited.
async fn bare() -> Duration {
    let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
    let (tx, mut running) = unbounded_channel();
    let child = token.child_token();
    tracker.spawn(async move {
        tx.send(()).expect("a receiver");
        child.cancelled().await;
    });
    running.recv().await;
    let asked = Instant::now();
    token.cancel();
    tracker.close();
    tracker.wait().await;
    asked.elapsed()
}
