//! Stop of a thousand runs, each with two running tools. The endings are written to the memory log and the receipts
//! (the results of the stops) are built. The baseline is a bare task tracker with one token per tool.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{Agent, EventSink, Run, RunHistory, RunOutcome, RunRequest};
use allstop_bench::{BenchSuite, Figure};
use allstop_core::{Cause, CauseKind, Effect, Extent, SessionId, Timestamp};
use allstop_log::{MemoryLog, SessionWriter};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopRequest};
use allstop_testkit::ToolFn;
use allstop_tools::{ToolInvocation, ToolRegistry};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const RUNS: usize = 1_000;
const TOOLS: usize = 2;
const ROUNDS: usize = 30;

fn main() -> ExitCode {
    let runtime = runtime();
    let mut suite = BenchSuite::from_args();
    suite.run(
        Figure::new("stop 1,000 runs, endings in the memory log", || {
            runtime.block_on(stop_runs()).all_ended
        })
        .rounds(ROUNDS)
        .against("tracker and child tokens", || runtime.block_on(bare()))
        .ratio_at_most(10.0),
    );
    suite.run(
        Figure::new("the call of stop() for 1,000 runs", || {
            runtime.block_on(stop_runs()).accepted
        })
        .rounds(ROUNDS)
        .median_at_most(Duration::from_millis(2)),
    );
    suite.finish()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads")
}

async fn bare() -> Duration {
    let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
    let (tx, mut begun) = unbounded_channel();
    for _ in 0..TOOLS * RUNS {
        let (child, tx) = (token.child_token(), tx.clone());
        tracker.spawn(async move {
            tx.send(()).expect("a receiver");
            child.cancelled().await;
        });
    }
    for _ in 0..TOOLS * RUNS {
        begun.recv().await;
    }
    let asked = Instant::now();
    token.cancel();
    tracker.close();
    tracker.wait().await;
    asked.elapsed()
}

/// Times of one stop, measured from its request.
struct StopTimes {
    /// The request has returned: no further work starts.
    accepted: Duration,
    /// The ending of each run is in the log, each run has a receipt, and the stop has its receipt.
    all_ended: Duration,
}

async fn stop_runs() -> StopTimes {
    let (tx, mut begun) = unbounded_channel();
    let agent = agent(tx);
    let scope = Scope::root("bench", RootOptions::current());
    let log = Arc::new(MemoryLog::new());
    let mut runs: Vec<Run> = Vec::with_capacity(RUNS);
    for n in 0..RUNS {
        let parent = scope
            .child("session", ScopeOptions::default())
            .expect("nothing is stopped");
        let history = history(&log, n).await;
        runs.push(agent.start(&parent, RunRequest::new(history, "go"), EventSink::none()));
    }
    for _ in 0..TOOLS * RUNS {
        begun.recv().await;
    }
    // The outcomes are dropped outside the measured time.
    let mut outcomes = Vec::with_capacity(RUNS);
    let asked = Instant::now();
    let stop = scope.stop(StopRequest::new(
        Extent::Process,
        Cause::new(CauseKind::User),
    ));
    let accepted = asked.elapsed();
    for run in &mut runs {
        outcomes.push(run.wait().await.expect("a finished run"));
    }
    let receipt = stop.receipt().await;
    assert!(receipt.quiet() && receipt.cancel_observed());
    let all_ended = asked.elapsed();
    assert_eq!(receipt.items().len(), TOOLS * RUNS);
    outcomes.iter().for_each(is_stopped);
    StopTimes {
        accepted,
        all_ended,
    }
}

/// Builds an agent whose model makes two calls, which wait for the stop.
fn agent(begun: UnboundedSender<()>) -> Agent {
    let hears = move |call: ToolInvocation| {
        let begun = begun.clone();
        async move {
            begun.send(()).expect("a receiver");
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
    Agent::new(Arc::new(model)).tools(tools).build()
}

async fn history(log: &Arc<MemoryLog>, n: usize) -> RunHistory {
    let (id, at) = (SessionId::from(n.to_string()), Timestamp::from_unix_ms(0));
    let session = SessionWriter::create(Arc::clone(log) as _, id, at, "/", None).await;
    RunHistory::Logged(Box::new(session.expect("a session in memory")))
}

fn is_stopped(outcome: &RunOutcome) {
    let [turn] = outcome.turns.as_slice() else {
        panic!("{outcome:?}");
    };
    let receipt = turn.receipt.as_ref().expect("a receipt");
    assert!(receipt.quiet() && receipt.cancel_observed());
    assert_eq!(receipt.items().len(), TOOLS);
    assert!(turn.error.is_none(), "{:?}", turn.error);
}
