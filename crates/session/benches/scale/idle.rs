//! Idle sessions with ten short messages each. Sleeping sessions keep only their handles in memory, and each session
//! still answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::Agent;
use allstop_log::{Log, SqliteLog};
use allstop_scope::{RootOptions, Scope};
use allstop_session::{Session, SessionOptions, Sessions};
use futures::stream::{self, StreamExt as _};
use tokio::runtime::Builder;

use crate::measure::{milliseconds, percentiles, resident_bytes};
use crate::models::Short;

/// Turns per session: one per message.
const TURNS: usize = 5;
/// Number of concurrent sessions. Each open session has a locked file, and a process may open 1,024 files.
const AT_ONCE: usize = 64;
/// Number of sessions that are woken one at a time, to measure a single wake-up.
const WOKEN_ALONE: usize = 1_000;

pub(crate) fn run(sessions: usize) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    // The messages are held until the end. Otherwise the sessions would reuse the freed memory, and the measurement
    // would not count the reused memory.
    let (bare, _held) = bare(sessions);
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = SqliteLog::open(folder.path().join("store.db"))
            .await
            .expect("a store");
        let log: Arc<dyn Log> = Arc::new(store);
        let scope = Scope::root("bench", RootOptions::current());
        let agent = Agent::new(Arc::new(Short)).build();
        let options = SessionOptions::default().sleep_after(Duration::ZERO);
        let all = Sessions::new(log, scope.clone(), Arc::new(agent), options);
        // Warm-up: these sessions are not measured. They make the store and the runtime allocate their memory before
        // the measurement.
        let warm: Vec<Session> = talked(&all, AT_ONCE).await;
        let before = resident_bytes();
        let began = Instant::now();
        let idle = talked(&all, sessions).await;
        let took = began.elapsed();
        while !scope.is_quiet() {
            tokio::task::yield_now().await;
        }
        let held = resident_bytes().saturating_sub(before);
        println!("idle sessions of {} short messages: {sessions}", TURNS * 2);
        println!(
            "  made and talked with in       {:.1} s",
            took.as_secs_f64()
        );
        println!(
            "  resident memory               {:.1} MB",
            held as f64 / 1e6
        );
        println!("  bytes that stay, each         {}", held / sessions as u64);
        println!(
            "  a bare vector of the messages {} bytes each",
            bare / sessions as u64
        );

        let mut alone = Vec::with_capacity(WOKEN_ALONE);
        for session in idle.iter().take(WOKEN_ALONE) {
            let began = Instant::now();
            answers(session).await;
            alone.push(began.elapsed());
        }
        let (p50, p99, _) = percentiles(alone);
        println!(
            "  woken and answering, one at a time: p50 {}, p99 {}",
            milliseconds(p50),
            milliseconds(p99)
        );

        let began = Instant::now();
        let all_answer = stream::iter(&idle).map(answers).buffer_unordered(AT_ONCE);
        all_answer.for_each(|()| async {}).await;
        println!(
            "  all of them answer again in   {:.1} s",
            began.elapsed().as_secs_f64()
        );
        drop(warm);
    });
}

async fn talked(sessions: &Sessions, count: usize) -> Vec<Session> {
    let made = (0..count).map(|_| async {
        let session = sessions.create(None, "/").await.expect("a session");
        for _ in 0..TURNS {
            answers(&session).await;
        }
        session
    });
    stream::iter(made).buffer_unordered(AT_ONCE).collect().await
}

async fn answers(session: &Session) {
    let sent = session
        .send("A short question, as people ask them.")
        .expect("it is free");
    assert!(
        sent.outcome().await.is_completed(),
        "each session still answers"
    );
}

/// Bytes of resident memory of the same messages as strings in a vector.
fn bare(sessions: usize) -> (u64, Vec<Vec<(u8, String)>>) {
    let before = resident_bytes();
    let all: Vec<Vec<(u8, String)>> = (0..sessions)
        .map(|_| {
            let turn = |n: usize| {
                let question = "A short question, as people ask them.".to_owned();
                [
                    (0, question),
                    (1, format!("This is a short answer of number {n}.")),
                ]
            };
            (0..TURNS).flat_map(turn).collect()
        })
        .collect();
    let held = resident_bytes().saturating_sub(before);
    (held, all)
}
