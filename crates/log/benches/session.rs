//! The log's share of a session: the records of a turn on the log in memory (checked, encoded, appended and folded), and
//! long sessions on SQLite, resumed and listed.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use allstop_bench::{BenchSuite, Figure, cpu_timed, timed};
use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use allstop_core::{CallId, Effect, Message, Timestamp, TurnNumber, Usage};
use allstop_log::{Log, MemoryLog, SessionStream, SqliteLog, list_sessions};
use futures::FutureExt;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Long sessions are written in large appends: what is measured is reading them.
const TURNS_PER_APPEND: usize = 100;
const AT: i64 = 1_795_291_200_000;

fn started(turn: TurnNumber, id: &CallId, kind: StartedCallKind) -> SessionRecord {
    let (id, name) = (id.clone(), "scripted".into());
    SessionRecord::CallStarted {
        turn,
        call: StartedCall { id, name, kind },
        at: at(),
    }
}

fn finished(turn: TurnNumber, id: &CallId) -> SessionRecord {
    let (id, outcome) = (id.clone(), CallOutcome::Succeeded);
    SessionRecord::CallFinished {
        turn,
        id,
        outcome,
        usage: Some(Usage::default()),
        finish: None,
        exit_code: None,
    }
}

fn at() -> Timestamp {
    Timestamp::from_unix_ms(AT)
}

/// A turn of one step: four records.
fn short_turn(turn: TurnNumber) -> Vec<SessionRecord> {
    let id = CallId::from("step_1");
    let mut records: Vec<_> = long_turn(turn).into_iter().flatten().collect();
    let end = records.pop();
    records.truncate(2);
    records.push(finished(turn, &id));
    records.extend(end);
    records
}

/// A turn of two steps and two calls, as the loop appends it: ten records.
fn long_turn(turn: TurnNumber) -> Vec<Vec<SessionRecord>> {
    let ids = ["step_1", "call_1", "call_2", "step_2"].map(CallId::from);
    let [first, one, two, second] = &ids;
    let model = || StartedCallKind::Model {
        reserved_tokens: 1_000,
    };
    let tool = || {
        let arguments = json!({"command": "ls", "timeout_s": 5}).into();
        StartedCallKind::Tool {
            arguments,
            effect: Effect::Irreversible,
        }
    };
    let begin = SessionRecord::TurnStarted {
        turn,
        at: at(),
        input: "go".into(),
        owner: None,
        message: None,
        origin: allstop_core::record::TurnOrigin::User,
        told: Vec::new(),
    };
    let answer = Message::Assistant {
        text: "There are three files in this folder.".into(),
        tool_calls: Vec::new(),
    };
    let messages = vec![Arc::new(Message::user("How many files?")), Arc::new(answer)];
    let end = SessionRecord::TurnCommitted {
        turn,
        at: at(),
        messages,
        usage: Usage::default(),
    };
    vec![
        vec![begin, started(turn, first, model())],
        vec![
            finished(turn, first),
            started(turn, one, tool()),
            started(turn, two, tool()),
        ],
        vec![finished(turn, one), finished(turn, two)],
        vec![started(turn, second, model())],
        vec![finished(turn, second), end],
    ]
}

fn create(log: Arc<dyn Log>) -> SessionStream {
    let session = SessionStream::create(log, "s".into(), at(), "/work");
    let opened = futures::executor::block_on(session);
    opened.expect("the log is empty")
}

fn in_memory(suite: &mut BenchSuite) {
    let product = || {
        let mut session = create(Arc::new(MemoryLog::new()));
        let turn = long_turn(TurnNumber(1));
        timed(|| {
            for records in turn {
                let appended = session.append(records).now_or_never();
                let appended = appended.expect("a log in memory answers at once");
                appended.expect("the records follow");
            }
        })
        .0
    };
    suite.run(
        Figure::new("records of a turn of two steps and two calls", product)
            .rounds(2_000)
            .median_at_most(Duration::from_micros(10)),
    );
}

/// A session of these turns, on SQLite in a folder of its own.
fn stored_session(runtime: &Runtime, turns: &[Vec<SessionRecord>]) -> (TempDir, Arc<dyn Log>, u64) {
    let folder = TempDir::new_in(".").expect("the working directory can be written");
    let log = runtime.block_on(SqliteLog::open(folder.path().join("store.db")));
    let log: Arc<dyn Log> = Arc::new(log.expect("the folder is there"));
    let mut session = create(Arc::clone(&log));
    for some in turns.chunks(TURNS_PER_APPEND) {
        let appended = session.append(some.concat());
        runtime.block_on(appended).expect("the records follow");
    }
    let records = session.version().0;
    (folder, log, records)
}

fn short_turns(turns: u32) -> Vec<Vec<SessionRecord>> {
    (1..=turns).map(|n| short_turn(TurnNumber(n))).collect()
}

fn long_turns(turns: u32) -> Vec<Vec<SessionRecord>> {
    let numbers = (1..=turns).map(TurnNumber);
    numbers.map(|number| long_turn(number).concat()).collect()
}

fn resume(suite: &mut BenchSuite, name: &str, turns: &[Vec<SessionRecord>], goal_ms: u64) {
    if !suite.wants(name) {
        return;
    }
    let runtime = Runtime::new().expect("the system gives threads");
    let (_folder, log, _) = stored_session(&runtime, turns);
    let resume = || {
        let session = SessionStream::resume(Arc::clone(&log), "s".into(), at());
        let (took, session) = cpu_timed(|| runtime.block_on(session));
        let session = session.expect("a session");
        assert_eq!(session.state().turns().len(), turns.len());
        took
    };
    suite.run(Figure::new(name, resume).median_at_most(Duration::from_millis(goal_ms)));
}

/// The time that a listing takes for each record must not grow with the session.
fn list(suite: &mut BenchSuite) {
    const NAME: &str = "listing of a session of 160,000 records, for each";
    if !suite.wants(NAME) {
        return;
    }
    let runtime = Runtime::new().expect("the system gives threads");
    let list = |turns| {
        let (folder, log, records) = stored_session(&runtime, &short_turns(turns));
        let runtime = &runtime;
        move || {
            let _folder = &folder;
            let (took, listed) = timed(|| runtime.block_on(list_sessions(&*log)));
            assert_eq!(listed.expect("a list").len(), 1);
            took.div_f64(records as f64)
        }
    };
    suite.run(
        Figure::new(NAME, list(40_000))
            .rounds(5)
            .against("one of 10,000", list(2_500))
            .ratio_at_most(1.5),
    );
}

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    in_memory(&mut suite);
    let name = "resume of 3,000 turns of one step, processor time";
    resume(&mut suite, name, &short_turns(3_000), 20);
    let name = "resume of 3,000 turns of two calls, processor time";
    resume(&mut suite, name, &long_turns(3_000), 40);
    list(&mut suite);
    suite.finish()
}
