//! What the records of one turn cost on the log in memory: encoded, checked, appended and folded.
//!
//! A turn of two steps and two tool calls, in the five appends that the loop makes of it. It has to be small beside the
//! rest of a turn, which is to stay below 20 µs.

use std::sync::Arc;

use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use allstop_core::{CallId, Effect, Message, Timestamp, TurnNumber, Usage};
use allstop_log::{MemoryLog, SessionStream};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures::FutureExt;
use serde_json::json;
use tokio::runtime::Runtime;

const TURN: TurnNumber = TurnNumber(1);
const AT: i64 = 1_795_291_200_000;

fn started(id: &CallId, kind: StartedCallKind) -> SessionRecord {
    let (id, name) = (id.clone(), "scripted".into());
    SessionRecord::CallStarted {
        turn: TURN,
        call: StartedCall { id, name, kind },
        at: at(),
    }
}

fn finished(id: &CallId) -> SessionRecord {
    let (id, outcome) = (id.clone(), CallOutcome::Succeeded);
    SessionRecord::CallFinished {
        turn: TURN,
        id,
        outcome,
        usage: Some(Usage::default()),
    }
}

fn at() -> Timestamp {
    Timestamp::from_unix_ms(AT)
}

fn turn() -> Vec<Vec<SessionRecord>> {
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
        turn: TURN,
        at: at(),
        input: "go".into(),
        owner: None,
        message: None,
        origin: allstop_core::record::TurnOrigin::User,
        told: Vec::new(),
    };
    let messages = vec![Arc::new(Message::user("go"))];
    let end = SessionRecord::TurnCommitted {
        turn: TURN,
        at: at(),
        messages,
        usage: Usage::default(),
    };
    vec![
        vec![begin, started(first, model())],
        vec![finished(first), started(one, tool()), started(two, tool())],
        vec![finished(one), finished(two)],
        vec![started(second, model())],
        vec![finished(second), end],
    ]
}

fn session(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("the system gives threads");
    let open = || {
        let session = SessionStream::create(Arc::new(MemoryLog::new()), "s".into(), at(), "/work");
        let opened = session
            .now_or_never()
            .expect("a log in memory answers at once");
        opened.expect("the log is empty")
    };
    let run = |mut session: SessionStream, turn: Vec<Vec<SessionRecord>>| async {
        for records in turn {
            session.append(records).await.expect("the records follow");
        }
        session
    };
    criterion.bench_function("turn_of_two_steps_and_two_calls_in_memory", |bencher| {
        bencher.to_async(&runtime).iter_batched(
            || (open(), turn()),
            |(s, t)| run(s, t),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, session);
criterion_main!(benches);
