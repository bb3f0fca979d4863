//! A stop of a task that runs on another node, the owner of the task. The node writes the stop request to the log, and
//! asks the owner at the same time.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use allstop_bench::{BenchSuite, Figure};
use allstop_core::{Cause, CauseKind};
use allstop_task::TaskRecord;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::nodes::{BenchExecutor, Servers, request, until};
use crate::raw::RawServers;

const ROUNDS: usize = 300;
/// Maximum ratio of the median: the time of a stop, divided by the time of one durable append and one question.
const MEDIAN_RATIO_MAX: f64 = 2.0;
const P99_RATIO_MAX: f64 = 4.0;

pub(crate) fn measure(suite: &mut BenchSuite, runtime: &Runtime, servers: &Servers) {
    if !suite.wants("stop across nodes") {
        return;
    }
    let (stopped, mut seen) = mpsc::channel(16);
    let executor = BenchExecutor { stopped };
    let (front, _worker, raw) = runtime.block_on(async {
        let front = servers.node(&executor, 0).await;
        let worker = servers.node(&executor, 16).await;
        (front, worker, RawServers::connect(servers).await)
    });
    let mut number = 0;
    let (observed, answered) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let baseline = RefCell::new(Vec::new());
    let product = || {
        number += 1;
        runtime.block_on(async {
            let accepted = front.execute(request(&format!("long {number}"))).await;
            let mut accepted = accepted.expect("the servers work");
            let is_begun = |record: &TaskRecord| matches!(record, TaskRecord::StatusChanged { .. });
            until(&mut accepted.subscription, is_begun).await;
            let began = Instant::now();
            let outcome = front.cancel(&accepted.task_id, Cause::new(CauseKind::User));
            let outcome = outcome.await.expect("the servers work");
            assert!(outcome.receipt.quiet());
            answered.borrow_mut().push(began.elapsed());
            let (id, at) = seen.recv().await.expect("the executor tells");
            assert_eq!(id, accepted.task_id);
            let took = at - began;
            observed.borrow_mut().push(took);
            took
        })
    };
    let append_and_ask = || {
        let began = Instant::now();
        runtime.block_on(async {
            raw.append(1, 1).await;
            raw.ask().await;
        });
        baseline.borrow_mut().push(began.elapsed());
        began.elapsed()
    };
    let figure = Figure::new("stop across nodes, until the work sees it", product);
    suite.run(
        figure
            .rounds(ROUNDS)
            .against("an append and a question", append_and_ask)
            .ratio_at_most(MEDIAN_RATIO_MAX),
    );
    let ratio = |samples: &RefCell<Vec<Duration>>, at: usize| {
        let of_raw = percentile(&mut baseline.borrow_mut(), at);
        percentile(&mut samples.borrow_mut(), at).as_secs_f64() / of_raw.as_secs_f64()
    };
    let name = "stop across nodes, until the work sees it, ratio of the p99";
    suite.count(name, ratio(&observed, 99), Some(P99_RATIO_MAX));
    for at in [50, 99] {
        let name = format!("stop across nodes, until the receipt, ratio of the p{at}");
        suite.count(&name, ratio(&answered, at), None);
    }
}

fn percentile(samples: &mut [Duration], at: usize) -> Duration {
    samples.sort_unstable();
    let rank = (samples.len() * at).div_ceil(100).max(1);
    samples.get(rank - 1).copied().unwrap_or_default()
}
