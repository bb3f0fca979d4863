//! A random test with a seed. The test combines executors, stops, messages, failures of the store, and clients that
//! disconnect.
//!
//! `ALLSTOP_TASK_SEED` repeats a run; the message of a failed run contains the seed. The order of events also depends
//! on the threads. So a repetition often shows the failure again, but not always.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allstop_core::TaskId;
use allstop_core::receipt::ItemKind;
use allstop_log::{Log, MemoryLog, StreamName, Version};
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_task::model::{Artifact, MessageSender};
use allstop_task::{
    CancelCx, CancelError, Canceler, Cleanup, CleanupCx, ExecutionCx, ExecutorError,
    ExecutorReturn, ListFilter, Processor, ProcessorDecision, Task, TaskEvent, TaskManager,
    TaskMessage, TaskOptions, TaskParts, TaskState, TaskSummary, WhenFull,
};
use allstop_testkit::{FaultyLog, LogFault};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::support::{ExecutorResult, ScriptedExecutor, request, user};

/// Minimum duration of a run. This is only a few seconds, so that the run can be part of every test run.
const RUN_MIN: Duration = Duration::from_secs(4);
/// Number of clients in a round.
const CLIENTS: u64 = 24;
/// Grace of the tests' scopes: the time before a stop uses force.
const GRACE: Duration = Duration::from_millis(40);
/// The grace, the time for force and the write of the end, with a reserve for a busy machine. If an answer takes
/// longer, it counts as a hang.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Random numbers from a seed.
#[derive(Clone)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// Returns a random number from 0 to `sides` - 1.
    fn roll(&self, sides: u64) -> u64 {
        // SplitMix64.
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    async fn pause(&self) {
        match self.roll(4) {
            0 => {}
            1 => yield_now().await,
            _ => sleep(Duration::from_millis(self.roll(12))).await,
        }
    }
}

/// Number of running executors for each task.
type LiveByTask = Arc<Mutex<HashMap<TaskId, usize>>>;

/// A running executor of a task.
struct Live(LiveByTask, TaskId);

impl Live {
    fn new(by_task: &LiveByTask, id: &TaskId) -> Self {
        *by_task.lock().entry(id.clone()).or_default() += 1;
        Self(Arc::clone(by_task), id.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(count) = self.0.lock().get_mut(&self.1) {
            *count -= 1;
        }
    }
}

fn live_of(by_task: &LiveByTask, id: &TaskId) -> usize {
    by_task.lock().get(id).copied().unwrap_or(0)
}

/// Writes an event, unless the execution has ended.
async fn write(cx: &ExecutionCx, event: TaskEvent) {
    let _ended = cx.events.write(event).await;
}

async fn random_executor(dice: Dice, cx: ExecutionCx) -> ExecutorResult {
    for number in 0..dice.roll(6) {
        dice.pause().await;
        let artifact = Artifact::text(format!("a{number}"), "x");
        write(&cx, TaskEvent::artifact(artifact)).await;
        if dice.roll(4) == 0 {
            let says = TaskMessage::text("s", MessageSender::Agent, "at it");
            write(&cx, TaskEvent::status(TaskState::Working, says)).await;
        }
    }
    match dice.roll(14) {
        0..=2 => write(&cx, TaskEvent::state(TaskState::Completed)).await,
        3..=5 => write(&cx, TaskEvent::state(TaskState::InputRequired)).await,
        6 => {
            let answer = TaskMessage::text("r", MessageSender::Agent, "hello");
            write(&cx, TaskEvent::Reply(Arc::new(answer))).await;
        }
        7 => return Err(ExecutorError::new("no such city")),
        8 => panic!("an executor of the test panics"),
        // An executor that ignores stops.
        9 => std::future::pending().await,
        10 => {
            cx.scope.stopped_at("waiting").await;
            dice.pause().await;
            write(&cx, TaskEvent::state(TaskState::Completed)).await;
        }
        // The executor writes another event after its end, and returns later.
        11 => {
            write(&cx, TaskEvent::state(TaskState::InputRequired)).await;
            write(&cx, TaskEvent::state(TaskState::Completed)).await;
            cx.events.closed().await;
            dice.pause().await;
        }
        // A helper continues to write events after the executor has returned.
        12 => {
            let (events, heirs) = (cx.events.clone(), dice.clone());
            let spec = WorkSpec::new(ItemKind::Future, "heir");
            let heir = cx.scope.spawn(spec, move |_| async move {
                heirs.pause().await;
                let _ended = events.write(TaskEvent::state(TaskState::Completed)).await;
            });
            drop(heir);
            return Ok(ExecutorReturn::ContinuesElsewhere);
        }
        _ => {}
    }
    Ok(ExecutorReturn::Finished)
}

/// Canceler, processor and clean-up with random behaviour.
struct RandomParts(Dice);

impl Canceler for RandomParts {
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        let dice = self.0.clone();
        async move {
            dice.pause().await;
            match dice.roll(6) {
                0 => Err(ExecutorError::new("not now")),
                1 => panic!("a canceler of the test panics"),
                2 => std::future::pending().await,
                3 => {
                    let event = TaskEvent::state(TaskState::Canceled);
                    let _ended = cx.events.write(event).await;
                    Ok(())
                }
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

impl Processor for RandomParts {
    fn process(&self, event: TaskEvent, _task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision> {
        let dice = self.0.clone();
        async move {
            match dice.roll(24) {
                0 => ProcessorDecision::Drop,
                1 => ProcessorDecision::Fail("no room".into()),
                2 => panic!("a processor of the test panics"),
                3 => std::future::pending().await,
                4..=8 => {
                    dice.pause().await;
                    ProcessorDecision::Keep(event)
                }
                _ => ProcessorDecision::Keep(event),
            }
        }
        .boxed()
    }
}

impl Cleanup for RandomParts {
    fn clean_up(&self, _cx: CleanupCx) -> BoxFuture<'static, ()> {
        let dice = self.0.clone();
        async move {
            match dice.roll(12) {
                0 => panic!("a clean-up of the test panics"),
                1 => std::future::pending().await,
                _ => dice.pause().await,
            }
        }
        .boxed()
    }
}

fn parts(dice: &Dice, executor: &ScriptedExecutor) -> TaskParts {
    let random = Arc::new(RandomParts(dice.clone()));
    let mut parts = TaskParts::of(executor.clone());
    if dice.roll(2) == 0 {
        parts.canceler = Some(Arc::clone(&random) as Arc<dyn Canceler>);
    }
    if dice.roll(3) == 0 {
        parts.processor = Some(Arc::clone(&random) as Arc<dyn Processor>);
    }
    if dice.roll(2) == 0 {
        parts.cleanup = Some(random);
    }
    parts
}

fn options(dice: &Dice) -> TaskOptions {
    let short = Duration::from_millis(60);
    TaskOptions::default()
        .running_max((dice.roll(2) == 0).then_some(6))
        .running_per_owner_max((dice.roll(2) == 0).then_some(3))
        .when_full(if dice.roll(4) == 0 {
            WhenFull::Refuse
        } else {
            WhenFull::Queue { len_max: 100 }
        })
        .inactivity_max((dice.roll(3) == 0).then_some(short))
        .execution_max((dice.roll(3) == 0).then_some(short))
        .user_code_max(Duration::from_millis(80))
        .ending_write_max(Duration::from_millis(200))
        .event_queue_len_max(usize::try_from(dice.roll(4)).expect("small"))
}

/// One client. The client sends, repeats and stops tasks, follows their events, and sometimes disconnects.
async fn client(
    dice: Dice,
    manager: TaskManager,
    tasks: Arc<Mutex<Vec<TaskId>>>,
    live: LiveByTask,
    number: u64,
) {
    for step in 0..=dice.roll(5) {
        dice.pause().await;
        let known = {
            let tasks = tasks.lock();
            let at = usize::try_from(dice.roll(tasks.len() as u64 + 1)).expect("small");
            tasks.get(at).cloned()
        };
        let sent = request(&format!("m{}", dice.roll(CLIENTS * 3) * 10 + step))
            .owner(format!("owner{}", number % 3))
            .task(known.clone().filter(|_| dice.roll(3) != 0));
        let patience = Duration::from_millis(dice.roll(30));
        let goes_away = dice.roll(4) == 0;
        match (dice.roll(5), known) {
            (0 | 1, Some(id)) => {
                let stop = manager.cancel(&id, user());
                if goes_away {
                    drop(timeout(patience, stop).await);
                    continue;
                }
                let began = Instant::now();
                let stopped = timeout(ANSWER_MAX, stop).await.expect("a stop answers");
                assert!(
                    began.elapsed() < ANSWER_MAX / 2,
                    "slow: {:?}",
                    began.elapsed()
                );
                if let Ok(outcome) = stopped {
                    assert!(outcome.task.has_ended(), "{:?}", outcome.task.status);
                    let live = live_of(&live, &id);
                    assert!(
                        live == 0 || !outcome.receipt.quiet(),
                        "{:?}",
                        outcome.receipt
                    );
                }
            }
            (2, Some(id)) => {
                let from = (dice.roll(2) == 0).then_some(Version(dice.roll(4)));
                if let Ok(mut reader) = manager.subscribe(&id, from).await {
                    drop(timeout(patience, reader.next()).await);
                }
            }
            (3, _) => {
                let page = manager
                    .list(&ListFilter::default(), None, 5)
                    .await
                    .expect("one machine");
                assert!(page.tasks.len() <= 5);
            }
            _ if goes_away => drop(timeout(patience, manager.execute(sent)).await),
            _ => {
                if let Ok(Ok(accepted)) = timeout(ANSWER_MAX, manager.execute(sent)).await {
                    tasks.lock().push(accepted.task_id);
                }
            }
        }
    }
}

/// Causes failures of the store while the clients work, and then ends all failures.
async fn disturb(dice: Dice, log: Arc<FaultyLog>) {
    let types = [
        "task_created",
        "message_received",
        "execution_started",
        "artifact_updated",
        "status_changed",
        "replied",
        "task_ended",
    ];
    for _ in 0..dice.roll(4) {
        dice.pause().await;
        let fault = [LogFault::Refuse, LogFault::Hold, LogFault::LoseAnswer];
        let fault = fault[usize::try_from(dice.roll(3)).expect("small")];
        match dice.roll(3) {
            0 => log.fail_once(fault),
            1 => log.fail_all(fault),
            _ => log.fail_at(types[usize::try_from(dice.roll(7)).expect("small")], fault),
        }
        sleep(Duration::from_millis(dice.roll(60))).await;
        log.release().await;
    }
    log.release().await;
}

/// Checks three properties of a task: its records are legal, each execution has one end, and no execution is open.
async fn check_stream(log: &dyn Log, id: &str) {
    let stream = StreamName::new(id);
    let records = log
        .read(&stream, Version(1), 10_000)
        .await
        .expect("it reads");
    let mut task = None;
    let (mut ends, mut starts) = (0, 0);
    for (_, bytes) in &records {
        let mut json: serde_json::Value = serde_json::from_slice(bytes).expect("a record");
        drop(json.as_object_mut().expect("an object").shift_remove("v"));
        let record: allstop_task::TaskRecord = serde_json::from_value(json).expect("a record");
        starts += usize::from(matches!(
            record,
            allstop_task::TaskRecord::ExecutionStarted { .. }
        ));
        ends += usize::from(record.ends_execution());
        Task::apply(&mut task, &record).expect("a legal record");
    }
    let task = task.expect("a task");
    assert_eq!(starts, ends, "each start has one end: {task:?}");
    assert!(!task.is_executing && !task.awaits_execution, "{task:?}");
}

async fn round(seed: u64) {
    let dice = Dice::new(seed);
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let of_executors = dice.clone();
    let live = LiveByTask::default();
    let lives = Arc::clone(&live);
    let executor = ScriptedExecutor::new(move |cx| {
        let live = Live::new(&lives, &cx.task.id);
        let run = random_executor(of_executors.clone(), cx);
        async move {
            let _live = live;
            run.await
        }
    });
    let root = Scope::root("tasks", RootOptions::single_runtime().grace(GRACE));
    let options = options(&dice);
    let running_max = options.running_max;
    let opened = TaskManager::open(
        Arc::clone(&log) as Arc<dyn Log>,
        root.clone(),
        Arc::new(parts(&dice, &executor)),
        options,
    );
    let manager = opened.await.expect("it opens");
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let clients = Scope::root("clients", RootOptions::single_runtime());
    let mut running = Vec::new();
    for number in 0..CLIENTS {
        let (tasks, live) = (Arc::clone(&tasks), Arc::clone(&live));
        let work = client(dice.clone(), manager.clone(), tasks, live, number);
        let spec = WorkSpec::new(ItemKind::Future, "client");
        running.push(clients.spawn(spec, |_| work).expect("open"));
    }
    disturb(dice.clone(), Arc::clone(&log)).await;
    for client in running {
        client
            .await
            .unwrap_or_else(|lost| panic!("a client: {lost}; seed {seed}"));
    }
    // If a fault still delays an append, it is released now.
    log.release().await;
    // Stops all tasks, one by one or through the shutdown. If the outcome of a message's write was unknown, the message
    // may become durable only now.
    if dice.roll(2) == 0 {
        stop_all(&manager, seed).await;
        check_slots(&manager, running_max, seed).await;
    }
    let report = timeout(ANSWER_MAX, manager.shutdown(Duration::from_secs(5), "test")).await;
    let report = report.expect("a shutdown ends in time");
    assert_eq!(report.not_stored, 0, "seed {seed}");
    let began = Instant::now();
    while executor.live() > 0 || !root.is_quiet() {
        let listed = manager.list(&ListFilter::default(), None, 100).await;
        let listed = listed.expect("one machine");
        assert!(
            began.elapsed() < ANSWER_MAX,
            "live {:?}, {:?}; {:#?}; seed {seed}",
            live.lock()
                .iter()
                .filter(|(_, count)| **count > 0)
                .collect::<Vec<_>>(),
            root.running(),
            listed.tasks,
        );
        sleep(Duration::from_millis(2)).await;
    }
    for (name, _) in log.list("task/").await.expect("it lists") {
        check_stream(&*log, name.as_str()).await;
    }
}

async fn stop_all(manager: &TaskManager, seed: u64) {
    let began = Instant::now();
    loop {
        let page = manager
            .list(&ListFilter::default(), None, 10_000)
            .await
            .expect("one machine");
        let open: Vec<_> = page.tasks.iter().filter(|task| !task.has_ended()).collect();
        if open.is_empty() {
            return;
        }
        assert!(began.elapsed() < ANSWER_MAX, "{open:?}; seed {seed}");
        let stops = open.iter().map(|task| manager.cancel(&task.id, user()));
        for stopped in futures::future::join_all(stops).await {
            match stopped {
                Ok(outcome) => assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt),
                Err(CancelError::AlreadyEnded(_) | CancelError::Refused(_)) => {}
                // The outcome of the write was unknown. The manager repeats the write soon.
                Err(CancelError::Store(_)) => sleep(Duration::from_millis(20)).await,
                Err(other) => panic!("{other}; seed {seed}"),
            }
        }
    }
}

/// Checks that every slot is free again: the maximum number of new tasks can run at the same time, as at the beginning.
async fn check_slots(manager: &TaskManager, running_max: Option<usize>, seed: u64) {
    let mut started = Vec::new();
    for number in 0..running_max.unwrap_or(0) {
        let sent = request("slot").owner(format!("checker{number}"));
        let began = Instant::now();
        let accepted = loop {
            // A slot is released a short time after the end of its execution.
            match manager.execute(sent.clone()).await {
                Ok(accepted) => break accepted,
                Err(error) => assert!(began.elapsed() < ANSWER_MAX, "{error}; seed {seed}"),
            }
            sleep(Duration::from_millis(2)).await;
        };
        loop {
            let task = manager.get(&accepted.task_id).await;
            if task.map_or(true, |task| task.epoch > 0) {
                break;
            }
            assert!(began.elapsed() < ANSWER_MAX, "no slot; seed {seed}");
            stop_late(manager).await;
            sleep(Duration::from_millis(2)).await;
        }
        started.push(accepted);
    }
    stop_all(manager, seed).await;
}

/// Stops tasks of this round whose messages became durable only now. Without these stops, the tasks would occupy their
/// slots forever.
async fn stop_late(manager: &TaskManager) {
    let page = manager
        .list(&ListFilter::default(), None, 10_000)
        .await
        .expect("one machine");
    let is_late = |task: &&TaskSummary| !task.has_ended() && !task.owner.starts_with("checker");
    let late = page.tasks.iter().filter(is_late);
    let stops = late.map(|task| manager.cancel(&task.id, user()));
    // If a stop fails and the task still occupies its slot, the next round repeats the stop.
    drop(futures::future::join_all(stops).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_rounds_keep_every_promise() {
    #[expect(clippy::disallowed_methods, reason = "repeats a run")]
    let fixed = std::env::var("ALLSTOP_TASK_SEED").ok();
    let fixed = fixed.map(|seed| seed.parse::<u64>().expect("a number"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = fixed.unwrap_or_else(|| now.expect("later").as_micros() as u64);
    println!("ALLSTOP_TASK_SEED={first}");
    let (began, mut rounds) = (Instant::now(), 0);
    while began.elapsed() < RUN_MIN {
        let seed = first + rounds;
        println!("round of seed {seed}");
        round(seed).await;
        rounds += u64::from(fixed.is_none());
    }
}
