//! Stops while 1,000 executors run. Measures the time from the request of a stop to its receipt, which reports that no
//! work of the task runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_bench::{BenchSuite, Figure};
use allstop_core::{Cause, CauseKind, TaskId};
use allstop_log::MemoryLog;
use allstop_task::{ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskManager};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::deliveries::percentile;
use crate::product;

const TASKS: usize = 1_000;
/// Enough samples that the p99 does not depend on a few outliers.
const SINGLE_ROUNDS: usize = 1_000;
const ROUNDS: usize = 20;
const GRACE: Duration = Duration::from_millis(100);
/// Text of a message that makes the executor ignore a stop.
const DEAF: &str = "deaf";

/// Executor that waits for a stop and obeys the stop, unless the message is [`DEAF`].
struct Waits(mpsc::Sender<()>);

impl Executor for Waits {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let running = self.0.clone();
        async move {
            running.send(()).await.expect("the benchmark waits");
            if format!("{:?}", cx.message.parts).contains(DEAF) {
                std::future::pending::<()>().await;
            }
            cx.scope.stopped_at("waiting").await;
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

pub(crate) fn run(suite: &mut BenchSuite, runtime: &Runtime) {
    let single = "stop one of 1,000 running tasks, to quiet";
    if suite.wants(single) {
        let mut running = runtime.block_on(RunningTasks::new(TASKS, 0));
        suite.run(
            Figure::new(single, || runtime.block_on(running.replace_one()))
                .rounds(SINGLE_ROUNDS)
                .median_at_most(Duration::from_micros(500))
                .p99_at_most(Duration::from_millis(5)),
        );
    }
    let all = |deaf, at| runtime.block_on(stop_all(deaf, at));
    for at in [50, 99] {
        suite.run(
            Figure::new(format!("stop 1,000 tasks at once, to quiet, p{at}"), || {
                all(0, at).hearing
            })
            .rounds(ROUNDS)
            .median_at_most(Duration::from_millis(100)),
        );
        suite.run(
            Figure::new(
                format!("stop 1,000 tasks at once, 10 deaf: the others, to quiet, p{at}"),
                || all(10, at).hearing,
            )
            .rounds(ROUNDS)
            .against("none deaf", || all(0, at).hearing)
            .ratio_at_most(1.3),
        );
        suite.run(
            Figure::new(
                format!("stop 1,000 tasks at once, 10 deaf: they, beyond the grace, p{at}"),
                || all(10, at).deaf.saturating_sub(GRACE),
            )
            .rounds(ROUNDS)
            .median_at_most(Duration::from_millis(50)),
        );
    }
}

/// Tasks with waiting executors.
struct RunningTasks {
    manager: TaskManager,
    running: mpsc::Receiver<()>,
    tasks: VecDeque<TaskId>,
    begun: usize,
}

impl RunningTasks {
    /// Starts tasks and waits until they run: `hearing` tasks that obey a stop, then `deaf` tasks that ignore a stop.
    async fn new(hearing: usize, deaf: usize) -> Self {
        let (running_tx, running) = mpsc::channel(TASKS);
        let log = Arc::new(MemoryLog::new());
        let manager = product::manager(&product::root(GRACE), log, Waits(running_tx)).await;
        let mut tasks = Self {
            manager,
            running,
            tasks: VecDeque::with_capacity(hearing + deaf),
            begun: 0,
        };
        for at in 0..hearing + deaf {
            let text = if at < hearing { "" } else { DEAF };
            tasks.begin(text).await;
        }
        tasks
    }

    async fn begin(&mut self, text: &str) {
        let task = product::begin(&self.manager, self.begun, text).await;
        self.begun += 1;
        self.tasks.push_back(task.task_id);
        self.running.recv().await.expect("it runs");
    }

    /// Stops the oldest task, and starts another task outside the sample.
    async fn replace_one(&mut self) -> Duration {
        let oldest = self.tasks.pop_front().expect("they run");
        let took = stop(&self.manager, &oldest, Instant::now()).await;
        self.begin("").await;
        took
    }
}

/// Times until the receipts of tasks that were stopped together, at one percentile.
struct StopTimes {
    hearing: Duration,
    deaf: Duration,
}

async fn stop_all(deaf: usize, at: usize) -> StopTimes {
    let running = RunningTasks::new(TASKS - deaf, deaf).await;
    let asked = Instant::now();
    let stops = running
        .tasks
        .iter()
        .map(|id| stop(&running.manager, id, asked));
    let mut hearing = join_all(stops).await;
    let mut deaf = hearing.split_off(TASKS - deaf);
    StopTimes {
        hearing: percentile(&mut hearing, at),
        deaf: match deaf.len() {
            0 => Duration::ZERO,
            _ => percentile(&mut deaf, at),
        },
    }
}

/// Returns the time from `asked` to the receipt.
async fn stop(manager: &TaskManager, id: &TaskId, asked: Instant) -> Duration {
    let stopped = manager.cancel(id, Cause::new(CauseKind::User)).await;
    let took = asked.elapsed();
    let receipt = stopped.expect("it was running").receipt;
    assert!(receipt.quiet(), "{receipt:?}");
    took
}
