//! A cluster in simulated time, with slow lines that lose messages, partitions, crashes and clocks that differ.
//!
//! Safety holds at any time. A task never runs twice at the same time, and has one end. After a receipt without running
//! work, none of the work of the task runs. Liveness holds after the end of the faults: every accepted task ends or
//! comes to rest, and every stop gets an answer.
//!
//! `ALLSTOP_CLUSTER_SEED` repeats one seed. `ALLSTOP_CLUSTER_SEEDS` sets the number of seeds for each test. Two runs of
//! one seed have the same faults, but their order of events can differ, because ids and `select!` draw other random
//! numbers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{TaskId, Timestamp};
use allstop_log::{Log, MemoryLog, StreamName, Version};
use allstop_task::{
    CancelError, ExecuteError, ExecutionCx, ExecutorReturn, Task, TaskEvent, TaskManager,
    TaskOptions, TaskParts, TaskRecord, TaskState,
};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::dice::Dice;
use super::line::{Line, LineState};
use super::seeded_bug::SeededBug;
use super::support::{Cluster, Node};
use crate::support::{ExecutorResult, ScriptedExecutor, follow_up, request, user};

/// Number of seeds for each of the two tests.
const SEEDS: u64 = 5_000;
/// Number of seeds in which the simulation must find a seeded bug. About 4 seeds in 100 find the rarest bug, so 1,000
/// seeds miss it once in 10^17 runs. The search ends with the first seed that finds the bug.
const SEEDS_OF_A_BUG: u64 = 1_000;
/// Duration of the faults.
const FAULTS: Duration = Duration::from_secs(45);
/// Time in which all work must complete after the end of the faults. This time is long enough for several leases in
/// sequence.
const SETTLED_WITHIN: Duration = Duration::from_secs(150);
const WORKERS: usize = 3;
const CLIENTS: u64 = 6;

/// Work of the executors, and violations of the rules that the simulation has found.
#[derive(Debug, Clone, Default)]
struct Ledger(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    live: HashMap<TaskId, u32>,
    violations: Vec<String>,
    /// Last failure of each client. The report shows this failure if the client waits forever.
    failures: HashMap<u64, String>,
}

impl Ledger {
    fn complain(&self, violation: String) {
        self.0.lock().violations.push(violation);
    }

    fn failed(&self, client: u64, what: String) {
        self.0.lock().failures.insert(client, what);
    }

    fn live(&self, id: &TaskId) -> u32 {
        self.0.lock().live.get(id).copied().unwrap_or(0)
    }
}

/// A running executor. The ledger counts it until this value is dropped.
struct Live(Ledger, TaskId);

impl Live {
    fn new(ledger: &Ledger, id: &TaskId) -> Self {
        let mut books = ledger.0.lock();
        let live = books.live.entry(id.clone()).or_default();
        *live += 1;
        if *live > 1 {
            books.violations.push(format!("task {id} runs twice"));
        }
        drop(books);
        Self(ledger.clone(), id.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(live) = self.0.0.lock().live.get_mut(&self.1) {
            *live -= 1;
        }
    }
}

async fn work(dice: Dice, ledger: Ledger, log: Arc<MemoryLog>, cx: ExecutionCx) -> ExecutorResult {
    let _live = Live::new(&ledger, &cx.task.id);
    if starts_after_a_stop(&log, &cx.task).await {
        ledger.complain(format!("{} starts although it is to stop", cx.task.id));
    }
    let write = async |event| {
        let _ended = cx.events.write(event).await;
    };
    write(TaskEvent::state(TaskState::Working)).await;
    let time = Duration::from_millis(dice.roll(6_000));
    tokio::select! {
        () = sleep(time) => {}
        () = async { cx.scope.stopped_at("working").await; } , if dice.roll(4) > 0 => {
            return Ok(ExecutorReturn::Finished);
        }
    }
    let ends = [
        TaskState::Completed,
        TaskState::InputRequired,
        TaskState::Failed,
    ];
    let end = ends[usize::try_from(dice.roll(3)).unwrap_or_default()];
    write(TaskEvent::state(end)).await;
    Ok(ExecutorReturn::Finished)
}

/// True if the log contains a stop request before the start of this execution, and no refusal of the request.
async fn starts_after_a_stop(log: &MemoryLog, task: &Task) -> bool {
    let stream = StreamName::new(format!("task/{}", task.id));
    let records = log.read(&stream, Version(1), 10_000).await;
    let mut is_requested = false;
    for (_, bytes) in records.expect("it works") {
        match serde_json::from_slice(&bytes).expect("a record") {
            TaskRecord::StopRequested { .. } => is_requested = true,
            TaskRecord::StopRefused { .. } => is_requested = false,
            TaskRecord::ExecutionStarted { epoch, .. } if epoch == task.epoch => break,
            _ => {}
        }
    }
    is_requested
}

struct Simulation {
    dice: Dice,
    bug: Option<SeededBug>,
    cluster: Cluster,
    ledger: Ledger,
}

impl Simulation {
    fn node(&self, concurrency: usize) -> Node {
        let (dice, ledger) = (self.dice.clone(), self.ledger.clone());
        let log = Arc::clone(&self.cluster.log);
        let executor = ScriptedExecutor::new(move |cx| {
            work(dice.clone(), ledger.clone(), Arc::clone(&log), cx)
        });
        let executor = if self.dice.roll(2) == 0 {
            executor.resumable()
        } else {
            executor
        };
        // The clocks of the nodes differ by minutes, and they jump.
        let (dice, origin) = (self.dice.clone(), self.dice.roll(1_000_000));
        let now = move || {
            let jump = if dice.roll(20) == 0 {
                dice.roll(100_000)
            } else {
                0
            };
            Timestamp::from_unix_ms(i64::try_from(origin + jump).unwrap_or_default())
        };
        let options = TaskOptions::default().now(Arc::new(now));
        let line = Line::new(Some(self.dice.clone())).with_bug(self.bug);
        self.cluster
            .node_at(line, TaskParts::of(executor), concurrency, options)
    }

    /// Kills workers and cuts lines until the time is over. After that, there are no more faults.
    async fn faults(&self, workers: &mut [Node], fronts: &[Node]) {
        let until = Instant::now() + FAULTS;
        while Instant::now() < until {
            sleep(Duration::from_millis(self.dice.roll(4_000))).await;
            let index = usize::try_from(self.dice.roll(WORKERS as u64)).unwrap_or_default();
            match self.dice.roll(6) {
                0 => {
                    let killed = std::mem::replace(&mut workers[index], self.node(4));
                    killed.kill().await;
                }
                1..=3 => {
                    workers[index].line.set(LineState::Cut);
                    sleep(Duration::from_millis(self.dice.roll(9_000))).await;
                    workers[index].line.set(LineState::Open);
                }
                4 => {
                    fronts[0].line.set(LineState::Cut);
                    sleep(Duration::from_millis(self.dice.roll(3_000))).await;
                    fronts[0].line.set(LineState::Open);
                }
                _ => {}
            }
        }
    }

    async fn client(&self, number: u64, nodes: &[TaskManager; 2]) -> Option<TaskId> {
        let node = || &nodes[usize::try_from(self.dice.roll(2)).unwrap_or_default()];
        sleep(Duration::from_millis(self.dice.roll(30_000))).await;
        let message = request(&format!("m{number}"));
        let id = loop {
            match node().execute(message.clone()).await {
                Ok(accepted) => break accepted.task_id,
                // The message may be stored or not, so the client sends it again.
                Err(failure) => {
                    self.ledger.failed(number, format!("execute: {failure:?}"));
                    sleep(Duration::from_millis(500)).await;
                }
            }
        };
        for step in 0..self.dice.roll(3) {
            sleep(Duration::from_millis(self.dice.roll(9_000))).await;
            if self.dice.roll(2) == 0 {
                let answer = follow_up(&format!("m{number}-{step}"), &id);
                while let Err(ExecuteError::Store(failure)) = node().execute(answer.clone()).await {
                    self.ledger
                        .failed(number, format!("follow-up: {failure:?}"));
                    sleep(Duration::from_millis(500)).await;
                }
            } else {
                self.stop(number, node(), &id).await;
            }
        }
        Some(id)
    }

    /// Stops a task. Repeats the attempt as often as necessary.
    async fn stop(&self, client: u64, node: &TaskManager, id: &TaskId) {
        loop {
            match timeout(Duration::from_mins(1), node.cancel(id, user())).await {
                Err(_elapsed) => return self.ledger.complain(format!("the stop of {id} hangs")),
                Ok(Ok(outcome)) => {
                    if !outcome.task.has_ended() {
                        self.ledger
                            .complain(format!("{id} was stopped and has no end"));
                    }
                    if outcome.receipt.quiet() && self.ledger.live(id) > 0 {
                        self.ledger.complain(format!("{id} is quiet and runs"));
                    }
                    return;
                }
                Ok(Err(CancelError::AlreadyEnded(_) | CancelError::NotFound(_))) => return,
                Ok(Err(later)) => {
                    self.ledger.failed(client, format!("stop: {later:?}"));
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn run(self) -> Vec<String> {
        let mut workers: Vec<_> = (0..WORKERS).map(|_| self.node(4)).collect();
        let fronts = [self.node(0), self.node(0)];
        let managers = [0, 1].map(|index: usize| fronts[index].manager.clone());
        let clients = (0..CLIENTS).map(|number| self.client(number, &managers));
        let (ids, ()) = tokio::join!(
            timeout(FAULTS + SETTLED_WITHIN, join_all(clients)),
            self.faults(&mut workers, &fronts)
        );
        let Ok(ids) = ids else {
            let books = self.ledger.0.lock();
            let failures = format!("a client waits for ever: {:?}", books.failures);
            let mut violations = books.violations.clone();
            violations.push(failures);
            return violations;
        };
        let settled = async {
            for id in ids.iter().flatten() {
                while !self.is_settled(id).await {
                    sleep(Duration::from_millis(500)).await;
                }
            }
            while self.cluster.link.wake_ups() > 0 {
                sleep(Duration::from_millis(500)).await;
            }
        };
        if timeout(SETTLED_WITHIN, settled).await.is_err() {
            self.ledger
                .complain("tasks neither end nor rest, or wake-ups are left".to_owned());
        }
        for id in ids.iter().flatten() {
            self.check_records(id).await;
        }
        for node in workers.into_iter().chain(fronts) {
            node.kill().await;
        }
        self.ledger.0.lock().violations.clone()
    }

    async fn is_settled(&self, id: &TaskId) -> bool {
        let front = self.cluster.front_end();
        let task = front.manager.get_with_replies(id).await;
        front.kill().await;
        task.is_ok_and(|task| {
            let rests =
                !task.is_executing && !task.awaits_execution && task.stop_requested.is_none();
            (task.has_ended() || rests) && self.ledger.live(id) == 0
        })
    }

    /// Checks that a task has at most one end, and that only receipts of lost executions follow this end. The check
    /// reads the raw records, because the manager would refuse to read other streams.
    async fn check_records(&self, id: &TaskId) {
        let stream = StreamName::new(format!("task/{id}"));
        let records = self.cluster.log.read(&stream, Version(1), 10_000).await;
        let records = records.expect("it works");
        let is = |bytes: &[u8], kind: &str| String::from_utf8_lossy(bytes).contains(kind);
        let is_end = |bytes: &[u8]| is(bytes, "\"type\":\"task_ended\"");
        let ends = records.iter().filter(|(_, bytes)| is_end(bytes)).count();
        let is_late = |bytes: &[u8]| is(bytes, "\"type\":\"late_receipt\"");
        let mut from_the_last = records.iter().rev().map(|(_, bytes)| bytes);
        let is_last = from_the_last
            .find(|bytes| !is_late(bytes))
            .is_some_and(|bytes| is_end(bytes));
        if ends > 1 || (ends == 1 && !is_last) {
            self.ledger.complain(format!("{id} has {ends} ends"));
        }
    }
}

fn simulate(seed: u64, bug: Option<SeededBug>) -> Vec<String> {
    // Runtime without I/O, because the system calls for I/O would take a fifth of the time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let simulation = Simulation {
            dice: Dice::new(seed),
            bug,
            cluster: Cluster::new(),
            ledger: Ledger::default(),
        };
        simulation.run().await
    })
}

#[expect(clippy::disallowed_methods, reason = "seeds of a run by hand")]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The cluster is safe at any time, and completes all work after the end of the faults.
///
/// There are two tests, so that they use two cores. The process id selects their seeds.
mod cluster_is_safe_always {
    #[test]
    fn in_half_of_the_seeds() {
        super::check_seeds(0);
    }

    #[test]
    fn in_the_other_half() {
        super::check_seeds(super::SEEDS);
    }
}

/// In this seed, the wake-up for a message was removed: a late receipt had taken the record number that the wake-up
/// announced.
#[test]
fn cluster_completes_the_work_of_a_seed_that_failed() {
    let violations = simulate(33_755_763_050, None);
    assert!(violations.is_empty(), "{violations:?}");
}

fn check_seeds(offset: u64) {
    // These tests use one core each for a minute. The low priority prevents delays of tests that measure time.
    rustix::process::nice(19).expect("a process may lower its priority");
    let count = number("ALLSTOP_CLUSTER_SEEDS").unwrap_or(SEEDS);
    let first = (u64::from(std::process::id()) << 20) + offset;
    let seeds = number("ALLSTOP_CLUSTER_SEED").map_or(first..first + count, |seed| seed..seed + 1);
    for seed in seeds {
        let violations = simulate(seed, None);
        assert!(
            violations.is_empty(),
            "ALLSTOP_CLUSTER_SEED={seed}: {violations:?}"
        );
    }
}

/// The simulation must find each known bug.
#[test]
fn simulation_finds_each_seeded_bug() {
    for (bug, symptom) in [
        (SeededBug::SkippedFence, "runs twice"),
        (SeededBug::WallClockExpiry, "runs twice"),
        (SeededBug::AckAsOwnership, "runs twice"),
        (SeededBug::IntentNotChecked, "although it is to stop"),
    ] {
        let seen = |seed| {
            let violations = simulate(seed, Some(bug));
            violations
                .iter()
                .any(|violation| violation.contains(symptom))
        };
        let found = (1..=SEEDS_OF_A_BUG).any(seen);
        assert!(found, "{bug:?} is not found in {SEEDS_OF_A_BUG} seeds");
    }
}
