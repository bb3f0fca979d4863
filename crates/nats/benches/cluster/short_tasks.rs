//! Tasks that complete immediately, on one worker and on two workers. The baseline is an equal number of appends
//! without tasks.

use std::time::Instant;

use allstop_bench::{BenchSuite, Figure};
use allstop_task::{TaskManager, TaskRecord};
use futures::StreamExt as _;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::nodes::{BenchExecutor, Servers, request, until};
use crate::raw::RawServers;

/// Number of tasks that clients wait for at the same time. Also the number of executions that all workers together can
/// run.
pub(crate) const AT_A_TIME: usize = 16;
const TASKS: u64 = 200;
const ROUNDS: usize = 10;

pub(crate) fn measure(suite: &mut BenchSuite, runtime: &Runtime, servers: &Servers) {
    if !suite.wants("short tasks") {
        return;
    }
    for workers in [1, 2] {
        let (stopped, _nobody) = mpsc::channel(1);
        let executor = BenchExecutor { stopped };
        let (front, nodes, raw) = runtime.block_on(async {
            let front = servers.node(&executor, 0).await;
            let mut nodes = Vec::new();
            for _ in 0..workers {
                nodes.push(servers.node(&executor, AT_A_TIME / workers).await);
            }
            (front, nodes, RawServers::connect(servers).await)
        });
        let mut round = 0;
        runtime.block_on(run(&front, &format!("warm {workers}")));
        let before = runtime.block_on(raw.appended());
        runtime.block_on(run(&front, &format!("count {workers}")));
        let appends = runtime.block_on(raw.appended()) - before;
        let a_task = appends.div_ceil(TASKS);
        suite.count(
            &format!("short tasks, workers: {workers}, appends of one"),
            a_task as f64,
            None,
        );
        let tasks = || {
            round += 1;
            let began = Instant::now();
            runtime.block_on(run(&front, &format!("{workers} {round}")));
            began.elapsed() / u32::try_from(TASKS).unwrap_or(u32::MAX)
        };
        let bare = || {
            let began = Instant::now();
            runtime.block_on(async { raw.append(TASKS, a_task).await });
            began.elapsed() / u32::try_from(TASKS).unwrap_or(u32::MAX)
        };
        let figure = Figure::new(
            format!("short tasks, workers: {workers}, time of one"),
            tasks,
        );
        suite.run(figure.rounds(ROUNDS).against("as many appends", bare));
        runtime.block_on(async {
            for node in nodes.into_iter().chain([front]) {
                let report = node.shutdown(std::time::Duration::ZERO, "end").await;
                assert_eq!(report.not_stored, 0);
            }
        });
    }
}

/// Sends all tasks, and waits until they have ended.
async fn run(front: &TaskManager, name: &str) {
    let all = (0..TASKS).map(|number| async move {
        let accepted = front.execute(request(&format!("{name} {number}"))).await;
        let mut accepted = accepted.expect("the servers work");
        let is_end = |record: &TaskRecord| matches!(record, TaskRecord::TaskEnded { .. });
        until(&mut accepted.subscription, is_end).await;
    });
    let all = futures::stream::iter(all).buffer_unordered(AT_A_TIME);
    all.for_each(|()| async {}).await;
}
