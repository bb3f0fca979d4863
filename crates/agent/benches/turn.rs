//! Cost of a turn of two steps and two calls, compared with a bare Tokio loop that does the same work.
//!
//! On both sides a sample includes the whole turn: the conversation (and its session, if there is a log) is created,
//! the turn runs, and everything is dropped.

#![expect(
    clippy::unused_async,
    reason = "the baseline awaits what a real one would"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, EventSink, RunHistory, RunRequest};
use allstop_bench::{BenchSuite, Figure, timed};
use allstop_core::{SessionId, StopReason, Timestamp};
use allstop_log::{MemoryLog, SessionWriter};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::ToolFn;
use allstop_tools::ToolRegistry;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// Number of turns per sample. All turns of a sample together take a few milliseconds.
const TURNS: u32 = 200;
/// Number of rounds. The number is high enough that the median stays stable even if the machine is busy for a second.
const ROUNDS: usize = 200;

fn one_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Message of the bare loop.
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

/// Baseline loop that uses only Tokio: it gets the model's answer, runs the calls in parallel, and gets the next
/// answer.
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
    Agent::new(Arc::new(model)).tools(echo()).build()
}

async fn logged() -> RunHistory {
    let (id, at) = (SessionId::from("s"), Timestamp::from_unix_ms(0));
    let stream = SessionWriter::create(Arc::new(MemoryLog::new()), id, at, "/", None).await;
    RunHistory::Logged(Box::new(stream.expect("a session in memory")))
}

fn bare() -> RunHistory {
    RunHistory::bare(SessionId::from("s"), Arc::default())
}

async fn product_turn(agent: &Agent, scope: &Scope, history: RunHistory) {
    let run = agent.start(scope, RunRequest::new(history, "go"), EventSink::none());
    let outcome = run.finish().await.expect("a finished run");
    assert_eq!(outcome.turns[0].stop_reason, StopReason::Completed);
}

/// Average time of one turn; the turns run one after another in one task.
fn each<F: Future<Output = ()>>(runtime: &Runtime, mut turn: impl FnMut() -> F) -> Duration {
    let all = async {
        for _ in 0..TURNS {
            turn().await;
        }
    };
    timed(|| runtime.block_on(all)).0 / TURNS
}

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    let (runtime, agent) = (one_thread(), agent());
    let root =
        |options: fn() -> RootOptions| runtime.block_on(async { Scope::root("bench", options()) });
    // All on one thread, like the baseline. The last row has the default options: the engine has its own thread, so a
    // turn also pays for the changes between the threads.
    let scope = root(RootOptions::single_runtime);
    let with_thread = root(RootOptions::current);
    let bare_loop = || {
        each(&runtime, || async {
            let mut messages = Vec::new();
            bare_turn(&mut messages).await;
        })
    };
    let in_memory = || {
        each(&runtime, || async {
            product_turn(&agent, &scope, logged().await).await;
        })
    };
    let without_log = || each(&runtime, || product_turn(&agent, &scope, bare()));
    suite.run(
        Figure::new("a turn of two steps and two calls, memory log", in_memory)
            .rounds(ROUNDS)
            .against("bare tokio loop", bare_loop)
            .ratio_at_most(10.0),
    );
    suite.run(
        Figure::new("a turn of two steps and two calls, no log", without_log)
            .rounds(ROUNDS)
            .against("bare tokio loop", bare_loop)
            .ratio_at_most(6.0),
    );
    let with_its_thread = || each(&runtime, || product_turn(&agent, &with_thread, bare()));
    suite.run(
        Figure::new(
            "the same with a thread for the engine, no log",
            with_its_thread,
        )
        .rounds(ROUNDS)
        .against("bare tokio loop", bare_loop),
    );
    suite.finish()
}
