//! Durable steps: each step is a model call and a tool call of a turn with its log in SQLite. A call is recorded before
//! it runs. The baseline makes the same number of SQLite commits without Allstop.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, EventSink, RunHistory, RunRequest, Settings};
use allstop_bench::{BenchSuite, Figure, timed};
use allstop_core::{SessionId, StopReason, Timestamp};
use allstop_log::{AppendIds, Log, SessionWriter, SqliteLog, StreamName, Version};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::ToolFn;
use allstop_tools::ToolRegistry;
use serde_json::json;
use tokio::runtime::Builder;

/// Number of steps with a tool call in each turn. One more step gives the answer.
const STEPS: u32 = 20;
/// Number of appends per step: one append before the call runs, and one append with the end of the call before the next
/// model call.
const APPENDS_PER_STEP: u32 = 2;
/// Size of a step's records as JSON.
const RECORD: [u8; 256] = [b'x'; 256];

fn agent() -> Agent {
    let mut tools = ToolRegistry::new();
    let echo = ToolFn::new("echo", |call| async move { call.arguments.to_string() });
    tools.register(Arc::new(echo)).expect("one tool");
    let step = |n| Reply::text("").call("echo", json!({ "n": n })).usage(10, 5);
    let mut replies: Vec<Reply> = (0..STEPS).map(step).collect();
    replies.push(Reply::text("Done.").usage(20, 2));
    let settings = Settings::default().steps_max(None);
    Agent::new(Arc::new(ScriptedModel::new(replies)))
        .tools(tools)
        .settings(settings)
        .build()
}

fn main() -> ExitCode {
    const NAME: &str = "durable step";
    let mut suite = BenchSuite::from_args();
    if !suite.wants(NAME) {
        return suite.finish();
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let folder = tempfile::TempDir::new_in(".").expect("the working directory can be written");
    let log = runtime.block_on(SqliteLog::open(folder.path().join("store.db")));
    let log: Arc<dyn Log> = Arc::new(log.expect("the folder is there"));
    let agent = agent();
    let scope = runtime.block_on(async { Scope::root("bench", RootOptions::current()) });
    let mut sessions = 0;
    let product = || {
        sessions += 1;
        let id = SessionId::from(format!("s{sessions}"));
        let (log, at) = (Arc::clone(&log), Timestamp::from_unix_ms(0));
        let stream = runtime.block_on(SessionWriter::create(log, id, at, "/", None));
        let history = RunHistory::Logged(Box::new(stream.expect("a session")));
        let request = RunRequest::new(history, "go");
        let (took, outcome) = timed(|| {
            runtime.block_on(async {
                agent
                    .start(&scope, request, EventSink::none())
                    .finish()
                    .await
            })
        });
        let outcome = outcome.expect("a finished run");
        assert_eq!(outcome.turns[0].stop_reason, StopReason::Completed);
        took / STEPS
    };
    let (stream, mut ids) = (StreamName::new("raw"), AppendIds::new());
    let mut version = Version(0);
    let appends = || {
        let (took, ()) = timed(|| {
            runtime.block_on(async {
                for _ in 0..STEPS * APPENDS_PER_STEP {
                    let records = vec![RECORD.to_vec().into()];
                    let appended = log.append(&stream, version, ids.next_id(), records);
                    version = appended.await.expect("nobody else writes here");
                }
            });
        });
        took / STEPS
    };
    suite.run(
        Figure::new(NAME, product)
            .median_at_most(Duration::from_micros(800))
            .against("its two appends alone", appends)
            .ratio_at_most(1.5),
    );
    suite.finish()
}
