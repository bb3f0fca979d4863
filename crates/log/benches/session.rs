//! The part of a session's time that the log needs. The first figures measure the records of a turn in the memory log:
//! the records are checked, encoded, appended and applied to the state. The other figures measure long sessions on
//! SQLite: the sessions are resumed and listed.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use allstop_bench::{BenchSuite, Figure, cpu_timed, timed};
use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use allstop_core::{CallId, Effect, Message, Timestamp, TurnNumber, Usage};
use allstop_log::{Log, MemoryLog, SessionWriter, SqliteLog, list_sessions};
use futures::FutureExt;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Number of turns in one append. Long sessions are written in large appends, because the benchmark measures only the
/// reading.
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
        result: None,
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

/// A turn of two steps and two calls. It has ten records, in the same appends that the agent loop makes.
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
        images: Vec::new(),
        owner: None,
        message: None,
        origin: allstop_core::record::TurnOrigin::User,
        reported: Vec::new(),
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

fn create(log: Arc<dyn Log>) -> SessionWriter {
    let session = SessionWriter::create(log, "s".into(), at(), "/work", None);
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

/// A session with these turns on SQLite, in a separate folder.
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
        let session = SessionWriter::resume(Arc::clone(&log), "s".into(), at());
        let (took, session) = cpu_timed(|| runtime.block_on(session));
        let session = session.expect("a session");
        assert_eq!(session.state().turns().len(), turns.len());
        took
    };
    suite.run(Figure::new(name, resume).median_at_most(Duration::from_millis(goal_ms)));
}

/// A crashed turn with this number of records: a start and calls, but no end.
fn endless_turn(records: u32) -> Vec<Vec<SessionRecord>> {
    let turn = TurnNumber(1);
    let mut all = vec![long_turn(turn).swap_remove(0).swap_remove(0)];
    for step in 1..records / 2 {
        // The ids are in random order, as the ids of providers are.
        let id = CallId::from(format!("call_{:08x}", step.wrapping_mul(0x9e37_79b1)));
        let reserved_tokens = 1_000;
        all.push(started(
            turn,
            &id,
            StartedCallKind::Model { reserved_tokens },
        ));
        all.push(finished(turn, &id));
    }
    vec![all]
}

/// A session whose conversation was compacted in the middle of its turns, and again before the last hundred turns.
fn compacted_turns(turns: u32) -> Vec<Vec<SessionRecord>> {
    let mut all = short_turns(turns);
    for (at_turn, turns_dropped) in [(turns - 100, turns / 2 - 100), (turns / 2, turns / 2)] {
        let compacted = SessionRecord::Compacted {
            at: at(),
            messages_dropped: turns_dropped * 2 + u32::from(at_turn > turns / 2),
            turns_dropped,
            summary: Some("They counted files.".into()),
            usage: Usage::default(),
        };
        all.insert(at_turn as usize, vec![compacted]);
    }
    all
}

type Turns = fn(u32) -> Vec<Vec<SessionRecord>>;

/// Goals: 160,000 records take at most five times as long as 40,000 records, and 40,000 records take at most five times
/// as long as 10,000 records.
fn grows_linearly(suite: &mut BenchSuite, what: &str, turns: Turns, listed: bool) {
    let runtime = Runtime::new().expect("the system gives threads");
    let sample = |len| {
        let (folder, log, _) = stored_session(&runtime, &turns(len));
        let runtime = &runtime;
        move || {
            let _folder = &folder;
            if listed {
                let (took, listed) = timed(|| runtime.block_on(list_sessions(&*log)));
                assert_eq!(listed.expect("a list").len(), 1);
                return took;
            }
            let session = SessionWriter::resume(Arc::clone(&log), "s".into(), at());
            let (took, session) = timed(|| runtime.block_on(session));
            drop(session.expect("a session"));
            took
        }
    };
    for (long, short) in [(160_000, 40_000), (40_000, 10_000)] {
        let name = format!("{what}: {long} records");
        if suite.wants(&name) {
            suite.run(
                Figure::new(&name, sample(long))
                    .rounds(5)
                    .against(format!("{short} records"), sample(short))
                    .ratio_at_most(5.0),
            );
        }
    }
}

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    in_memory(&mut suite);
    let name = "resume of 3,000 turns of one step, processor time";
    resume(&mut suite, name, &short_turns(3_000), 20);
    let name = "resume of 3,000 turns of two calls, processor time";
    resume(&mut suite, name, &long_turns(3_000), 40);
    let short: Turns = |records| short_turns(records / 4);
    let compacted: Turns = |records| compacted_turns(records / 4);
    grows_linearly(&mut suite, "resume, short turns", short, false);
    grows_linearly(&mut suite, "resume, compacted", compacted, false);
    grows_linearly(&mut suite, "listing, short turns", short, true);
    grows_linearly(&mut suite, "listing, one turn", endless_turn, true);
    suite.finish()
}
