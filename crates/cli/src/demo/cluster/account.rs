//! Account of all tasks of the cluster demo. It compares three sources: the list of the front end (the process
//! `serve`), the log at the NATS servers, and the ledger. The ledger is a file in which each task writes a line.

use std::collections::{BTreeMap, BTreeSet};

use allstop_core::error_chain;
use allstop_core::receipt::ItemKind;
use allstop_log::{Log, StreamName, Version};
use allstop_nats::{NatsLog, NatsOptions};
use allstop_scope::{Scope, WorkSpec};
use allstop_task::TaskRecord;
use anyhow::Context as _;

use super::super::proof::DemoProof;
use super::nats_servers::SERVERS;
use super::tasks::SentTask;
use crate::error::CliError;

/// Prefix of the names of the tasks' streams.
const TASK_STREAMS: &str = "task/";

/// Maximum records of one read.
const READ_LEN_MAX: usize = 512;

/// Summary of a task's records in the log at the servers.
#[derive(Debug, Default)]
pub(super) struct LoggedTask {
    ends: u64,
    /// Pids of the workers that began to run the task, in the order of their starts.
    workers: Vec<u32>,
}

/// Tasks of the log, by their ids.
type LoggedTasks = BTreeMap<String, LoggedTask>;

/// Reads all tasks directly from the log at the servers, without the front end.
pub(super) async fn tasks_in_log(scope: &Scope, servers: &str) -> Result<LoggedTasks, CliError> {
    let mut options = NatsOptions::new(servers);
    options.replicas = SERVERS;
    let reader = scope
        .child("reader of the log", allstop_scope::ScopeOptions::default())
        .context("a scope for the log")?;
    let of_reader = reader.clone();
    let reading = scope.spawn(
        WorkSpec::new(ItemKind::Future, "account"),
        move |_cx| async move {
            let opened = NatsLog::open(options, &of_reader).await;
            let log = opened.map_err(|error| failed(&error))?;
            let streams = log.list(TASK_STREAMS).await;
            let mut tasks = LoggedTasks::new();
            for (stream, _) in streams.map_err(|error| failed(&error))? {
                let task = read(&log, &stream).await?;
                let name = stream.to_string();
                let id = name.strip_prefix(TASK_STREAMS).unwrap_or(&name);
                tasks.insert(id.to_owned(), task);
            }
            Ok::<_, CliError>(tasks)
        },
    );
    let tasks = reading.context("a reader of the log")?.await;
    tasks.context("the log was not read")?
}

async fn read(log: &NatsLog, stream: &StreamName) -> Result<LoggedTask, CliError> {
    let (mut at, mut task) = (Version(0), LoggedTask::default());
    loop {
        let read = log.read(stream, at.next(), READ_LEN_MAX).await;
        let records = read.map_err(|error| failed(&error))?;
        if records.is_empty() {
            return Ok(task);
        }
        for (version, bytes) in records {
            at = version;
            let record = serde_json::from_slice(&bytes).context("a record of a task")?;
            match record {
                TaskRecord::TaskEnded { .. } => task.ends += 1,
                TaskRecord::ExecutionStarted { process, .. } => task.workers.push(process.pid),
                _ => {}
            }
        }
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> CliError {
    CliError::failure(format!("the log: {}", error_chain(error)))
}

impl LoggedTask {
    /// True if a second worker began to run the task.
    fn passed_on(&self) -> bool {
        let mut workers = self.workers.iter();
        let first = workers.next();
        workers.any(|worker| Some(worker) != first)
    }
}

/// Compares the acknowledged tasks with the list, the log and the ledger.
pub(super) fn proofs(
    sent: &[SentTask],
    listed: &[(String, Option<String>)],
    in_log: &LoggedTasks,
    ledger: &BTreeMap<String, u64>,
) -> Vec<DemoProof> {
    let count = sent.len() as u64;
    let state = |task: &SentTask| {
        let mut found = listed.iter().filter(|(id, _)| *id == task.id);
        let first = found.next();
        // A task that the list contains twice does not count.
        first
            .filter(|_| found.next().is_none())
            .and_then(|(_, state)| state.clone())
    };
    let ids: BTreeSet<&str> = sent.iter().map(|task| &*task.id).collect();
    let in_list = listed.iter().map(|(id, _)| &**id);
    let surplus = in_list.chain(in_log.keys().map(String::as_str));
    let surplus = surplus.filter(|id| !ids.contains(id)).count();
    let ended = sent.iter().filter(|task| state(task).is_some());
    let once = sent
        .iter()
        .filter(|task| in_log.get(&task.id).is_some_and(|logged| logged.ends == 1));
    let completed = sent
        .iter()
        .filter(|task| state(task).as_deref() == Some("completed"));
    let completed: Vec<_> = completed.collect();
    let written = completed
        .iter()
        .filter(|task| ledger.get(task.name) == Some(&1));
    let of_completed = |name: &str| u64::from(completed.iter().any(|task| task.name == name));
    let lines = ledger.iter();
    let surplus_lines = lines.map(|(name, count)| count.saturating_sub(of_completed(name)));
    let passed_on = in_log.values().filter(|logged| logged.passed_on());
    vec![
        DemoProof::of(
            format!("of {count} acknowledged tasks, listed once, with an end"),
            ended.count() as u64,
            count,
        ),
        DemoProof::of(
            format!("of {count}, with exactly one end in the log at the servers"),
            once.count() as u64,
            count,
        ),
        DemoProof::of("tasks that the demo did not send", surplus as u64, 0),
        DemoProof::of(
            "tasks that a second worker took over",
            passed_on.count() as u64,
            1,
        ),
        DemoProof::of(
            format!(
                "of {} completed tasks, with one line in the ledger",
                completed.len()
            ),
            written.count() as u64,
            completed.len() as u64,
        ),
        DemoProof::of("surplus lines in the ledger", surplus_lines.sum(), 0),
    ]
}
