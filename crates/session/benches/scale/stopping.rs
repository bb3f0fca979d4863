//! Thousands of concurrent turns, all stopped at once: time from each stop to its receipt, which proves that nothing of
//! the turn runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::Agent;
use allstop_core::{Cause, CauseKind, StopReason};
use allstop_log::{Log, MemoryLog};
use allstop_scope::{RootOptions, Scope};
use allstop_session::{SessionOptions, Sessions, StopTarget};
use futures::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::measure::{milliseconds, percentiles};
use crate::models::{Endless, THINKS};

/// Number of rounds; the benchmark reports the median.
const ROUNDS: usize = 5;

pub(crate) fn run(turns: usize) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let mut ours: Vec<_> = (0..ROUNDS).map(|_| round(&runtime, turns)).collect();
    let mut bare: Vec<_> = (0..ROUNDS).map(|_| bare_round(&runtime, turns)).collect();
    ours.sort_unstable_by_key(|times| times.1);
    bare.sort_unstable_by_key(|times| times.1);
    let (ours, bare) = (ours[ROUNDS / 2], bare[ROUNDS / 2]);
    println!(
        "turns in flight with a model that says a word each {THINKS:?}, all stopped at once: {turns}"
    );
    let tell = |(p50, p99, max)| {
        format!(
            "p50 {}, p99 {}, last {}",
            milliseconds(p50),
            milliseconds(p99),
            milliseconds(max)
        )
    };
    println!("  from stop to a quiet receipt  {}", tell(ours));
    println!("  bare tasks, cancel to ended   {}", tell(bare));
    println!(
        "  ratio of p99                  {:.1}",
        ours.1.as_secs_f64() / bare.1.as_secs_f64()
    );
}

type Times = (Duration, Duration, Duration);

fn round(runtime: &Runtime, turns: usize) -> Times {
    runtime.block_on(async {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let scope = Scope::root("bench", RootOptions::current());
        let agent = Agent::new(Arc::new(Endless)).build();
        let all = Sessions::new(
            log,
            scope.clone(),
            Arc::new(agent),
            SessionOptions::default(),
        );
        let mut talks = Vec::with_capacity(turns);
        for _ in 0..turns {
            let session = all.create(None, "/").await.expect("a session");
            let sent = session.send("go on").expect("it is free");
            talks.push((session, sent));
        }
        // Gives each turn time to send a word, so that all turns are in their model call.
        tokio::time::sleep(THINKS * 5).await;
        let began = Instant::now();
        let stops: Vec<_> = talks
            .iter()
            .map(|(session, _)| session.stop(&StopTarget::Turn, Cause::new(CauseKind::User)))
            .collect();
        let receipts = stops.iter().map(|stopping| async {
            let receipt = stopping.receipt().await;
            assert!(receipt.quiet() && receipt.cancel_observed(), "{receipt:?}");
            began.elapsed()
        });
        let times = join_all(receipts).await;
        for (_, sent) in &talks {
            assert_eq!(sent.outcome().await.stop_reason, StopReason::Cancelled);
        }
        assert!(scope.is_quiet(), "no work is left");
        percentiles(times)
    })
}

/// Like the rounds with Allstop, but with bare Tokio: one task per turn, one token for all tasks, and a tracker that
/// waits for their end.
fn bare_round(runtime: &Runtime, turns: usize) -> Times {
    runtime.block_on(async {
        let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
        let tasks: Vec<_> = (0..turns)
            .map(|_| {
                let token = token.child_token();
                runtime.spawn(tracker.track_future(async move {
                    let mut said = String::new();
                    loop {
                        tokio::select! {
                            () = token.cancelled() => return Instant::now(),
                            () = tokio::time::sleep(THINKS) => said.push_str("word "),
                        }
                    }
                }))
            })
            .collect();
        tokio::time::sleep(THINKS * 5).await;
        let began = Instant::now();
        token.cancel();
        tracker.close();
        tracker.wait().await;
        let ended = join_all(tasks).await;
        percentiles(
            ended
                .into_iter()
                .map(|at| at.expect("it does not panic") - began)
                .collect(),
        )
    })
}
