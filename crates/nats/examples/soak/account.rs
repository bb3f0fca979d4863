//! The final check of the soak test: compares the log with the acknowledged tasks and with the ledger.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allstop_core::{TaskId, Timestamp};
use allstop_log::{Log as _, StreamName, Version};
use allstop_nats::{NatsLog, NatsOptions};
use allstop_scope::{RootOptions, Scope};
use allstop_task::{TaskRecord, TaskState};

use super::clients::{Clients, SentSoakTask};
use super::ledger::{Ledger, LedgerBook, LedgerEntry, all_children};
use super::nodes::open_log;

const TASK_STREAMS: &str = "task/";

/// Time in which the workers must remove the last wake-ups (hints that a task needs a worker). If a second worker gets
/// a wake-up of a running task, this wake-up is delivered again only after the length of a lease.
const WAKE_UPS_MAX: Duration = Duration::from_mins(1);

/// Interval of the checks for wake-ups.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A task as it is in the log.
#[derive(Debug)]
struct AccountedTask {
    records: Vec<TaskRecord>,
}

/// Waits until the workers have removed every wake-up, or the time is over. Returns the number of remaining wake-ups.
pub(crate) async fn wake_ups_left(servers: &str) -> u64 {
    let servers: Vec<_> = servers.split(',').collect();
    let client = async_nats::connect(servers).await.expect("servers");
    let queue = format!("{}-wake-ups", NatsOptions::new("").prefix);
    let context = async_nats::jetstream::new(client);
    let mut queue = context.get_stream(queue).await.expect("the queue");
    let until = Instant::now() + WAKE_UPS_MAX;
    loop {
        let left = queue.info().await.expect("servers").state.messages;
        if left == 0 || Instant::now() > until {
            return left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Prints the results, and returns all violations.
pub(crate) async fn settle(
    servers: &str,
    clients: &Clients<'_>,
    ledger: &Ledger,
    stuck_workers: usize,
) -> Vec<String> {
    let scope = Scope::root("account", RootOptions::current());
    let log = open_log(servers, &scope).await;
    let tasks = read_all(&log).await;
    let book = ledger.book();
    let mut violations = book.violations.clone();
    let mut wrong = |what: String| violations.push(what);
    let sent = clients.sent.lock().clone();
    for task in &sent {
        match tasks.get(&task.id) {
            None => wrong(format!("task {} is lost", task.id)),
            Some(logged) => logged.check(task, &book, &mut wrong),
        }
    }
    if tasks.len() != sent.len() {
        wrong(format!(
            "{} tasks were acknowledged, and the log has {}",
            sent.len(),
            tasks.len()
        ));
    }
    if stuck_workers > 0 {
        wrong(format!("{stuck_workers} workers did not end"));
    }
    if all_children() > 0 {
        wrong(format!("{} processes of tasks are left", all_children()));
    }
    print(clients, &tasks, &book);
    violations
}

fn print(clients: &Clients<'_>, tasks: &BTreeMap<TaskId, AccountedTask>, book: &LedgerBook) {
    let with_state = |state: TaskState| {
        let ends = tasks.values().filter_map(AccountedTask::end_state);
        ends.filter(|end| *end == state).count()
    };
    println!(
        "{} tasks: {} completed, {} canceled, {} failed; {} taken over",
        tasks.len(),
        with_state(TaskState::Completed),
        with_state(TaskState::Canceled),
        with_state(TaskState::Failed),
        tasks
            .values()
            .filter(|task| task.starts().len() > 1)
            .count()
    );
    let mut failures = BTreeMap::new();
    for ending in tasks.values().filter_map(AccountedTask::failure) {
        *failures.entry(ending).or_insert(0) += 1;
    }
    for (failure, count) in failures {
        println!("    {count} failed: {failure}");
    }
    let entries = book.entries.values().flatten();
    let effects: Vec<_> = entries
        .filter(|entry| entry.question.step.is_some())
        .collect();
    let accepted = effects.iter().filter(|entry| entry.is_accepted).count();
    println!(
        "{accepted} side effects accepted, {} refused",
        effects.len() - accepted
    );
    let counts = &clients.counts;
    let shown = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    println!(
        "stops: {} quiet, {} with another receipt, {} behind the end, {} answers without a receipt",
        shown(&counts.quiet_stops),
        shown(&counts.other_stops),
        shown(&counts.late_stops),
        shown(&counts.failed_stops)
    );
    println!(
        "messages: {} refused and sent again, {} sent twice; {} subscriptions broke",
        shown(&counts.failed_sends),
        shown(&counts.repeated_sends),
        shown(&counts.broken_subscriptions)
    );
}

impl AccountedTask {
    /// Numbers of the executions, with the times of their starts.
    fn starts(&self) -> Vec<(u64, Timestamp)> {
        let starts = self.records.iter().filter_map(|record| match record {
            TaskRecord::ExecutionStarted { epoch, at, .. } => Some((*epoch, *at)),
            _ => None,
        });
        starts.collect()
    }

    /// The last record. Receipts of lost executions do not count, because they may follow the end of the task.
    fn last(&self) -> Option<&TaskRecord> {
        let is_late = |record: &&TaskRecord| matches!(record, TaskRecord::LateReceipt { .. });
        self.records.iter().rev().find(|record| !is_late(record))
    }

    fn end_state(&self) -> Option<TaskState> {
        match self.last()? {
            TaskRecord::TaskEnded { status, .. } => Some(status.state),
            _ => None,
        }
    }

    /// Reason why the task failed, for people.
    fn failure(&self) -> Option<String> {
        let Some(TaskRecord::TaskEnded { status, ending, .. }) = self.last() else {
            return None;
        };
        let detail = ending.cause.as_ref().map(ToString::to_string);
        let error = ending.error.as_deref();
        (status.state == TaskState::Failed).then(|| {
            format!(
                "{}; {}",
                detail.unwrap_or_default(),
                error.unwrap_or("no error")
            )
        })
    }

    fn check(&self, task: &SentSoakTask, book: &LedgerBook, wrong: &mut impl FnMut(String)) {
        let id = &task.id;
        let is_end = |record: &&TaskRecord| matches!(record, TaskRecord::TaskEnded { .. });
        let ends = self.records.iter().filter(is_end).count();
        if ends != 1 || self.end_state().is_none() {
            wrong(format!(
                "task {id} has {ends} ends, the last of {} records included",
                self.records.len()
            ));
        }
        let none = Vec::new();
        let entries = book.entries.get(id).unwrap_or(&none);
        for step in 0..task.plan.steps {
            let of_step: Vec<_> = entries
                .iter()
                .filter(|entry| entry.question.step == Some(step))
                .collect();
            let accepted = of_step.iter().filter(|entry| entry.is_accepted).count();
            if accepted == 0 && self.end_state() == Some(TaskState::Completed) {
                wrong(format!("task {id} is completed without step {step}"));
            }
            if task.plan.is_irreversible && of_step.len() > 1 {
                wrong(format!(
                    "step {step} of task {id} must not be repeated, and was tried {} times",
                    of_step.len()
                ));
            }
        }
        self.check_fence(id, entries, wrong);
        if let Some(quiet) = book.quiet.get(id) {
            let late = entries.iter().filter(|entry| entry.at > *quiet);
            for entry in late {
                wrong(format!(
                    "task {id}: {:?} came behind a quiet receipt",
                    entry.question
                ));
            }
        }
    }

    /// Checks that the ledger accepted no effect of an execution after the next execution had started or the task had
    /// ended.
    fn check_fence(&self, id: &TaskId, entries: &[LedgerEntry], wrong: &mut impl FnMut(String)) {
        let end = self.last().map(TaskRecord::at);
        let starts = self.starts();
        for entry in entries.iter().filter(|entry| entry.is_accepted) {
            let next = starts
                .iter()
                .find(|(epoch, _)| *epoch > entry.question.epoch);
            let until = next.map(|(_, at)| *at).or(end);
            if until.is_some_and(|until| entry.at > until) {
                wrong(format!(
                    "task {id}: {:?} was accepted from a worker that had lost it",
                    entry.question
                ));
            }
        }
    }
}

async fn read_all(log: &NatsLog) -> BTreeMap<TaskId, AccountedTask> {
    let streams = log.list(TASK_STREAMS).await.expect("the servers answer");
    let mut tasks = BTreeMap::new();
    for (stream, _) in streams {
        let name = stream.to_string();
        let id = name
            .strip_prefix(TASK_STREAMS)
            .expect("the prefix of the list");
        tasks.insert(TaskId::new(id), read(log, &stream).await);
    }
    tasks
}

async fn read(log: &NatsLog, stream: &StreamName) -> AccountedTask {
    let (mut at, mut task) = (
        Version(0),
        AccountedTask {
            records: Vec::new(),
        },
    );
    loop {
        let records = log
            .read(stream, at.next(), 512)
            .await
            .expect("the servers answer");
        if records.is_empty() {
            return task;
        }
        for (version, bytes) in records {
            at = version;
            task.records
                .push(serde_json::from_slice(&bytes).expect("a record"));
        }
    }
}
