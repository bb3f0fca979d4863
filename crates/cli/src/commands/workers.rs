//! `allstop workers`: the workers of a cluster, and its dead letters. A dead letter is a task whose workers crashed one
//! after another, or an unreadable wake-up (hint that a task needs a worker).

use std::sync::Arc;
use std::time::SystemTime;

use allstop_core::{Timestamp, error_chain};
use allstop_log::Log;
use allstop_nats::NatsLog;
use allstop_runtime::StartError;
use allstop_scope::{RootOptions, Scope};
use allstop_task::{
    ClusterOptions, DeadLetter, TaskManager, TaskOptions, TaskParts, TaskStoreError, WorkerInfo,
};
use allstop_terminal::{OutputPriority, Style, Styled, TextRole, TextTable};
use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;

use crate::args::{WorkersAction, WorkersArgs};
use crate::display::age;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::json_document::DocumentSchema;
use crate::serve::cluster::nats_options;
use crate::serve::echo::EchoAgent;
use crate::shell_command::SameFlags;
use crate::short_id::{is_meant, short};

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// If the future is dropped, the request of `drain` may already be sent, and `redrive` may already have started the
/// task.
pub(crate) async fn workers(args: &WorkersArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let cluster = open(args).await?;
    let stdout = host.output.stdout();
    let style = host.terminal.style(stdout.is_terminal());
    let now = SystemTime::now().into();
    let flags = SameFlags::of_store(&args.store);
    let text = match &args.action {
        WorkersAction::List => {
            let workers = cluster.workers().await.map_err(|error| failed(&error))?;
            if args.json {
                let listed = workers.iter().map(|worker| ListedWorker {
                    worker,
                    state: state_of(worker, now),
                });
                let keys = json!({"workers": listed.collect::<Vec<_>>()});
                DocumentSchema::Workers.print(&keys, stdout);
                return Ok(0);
            }
            workers_table(&workers, style, now)
        }
        WorkersAction::Dead => {
            let letters = cluster
                .dead_letters()
                .await
                .map_err(|error| failed(&error))?;
            if args.json {
                DocumentSchema::DeadLetters.print(&json!({"dead_letters": letters}), stdout);
                return Ok(0);
            }
            letters_table(&letters, style, now)
        }
        WorkersAction::Drain { id } => {
            let worker = drain(&cluster, id, &flags).await?;
            if args.json {
                let keys = json!({"worker": worker.id, "running": worker.running});
                DocumentSchema::WorkerDrain.print(&keys, stdout);
                return Ok(0);
            }
            let end = match worker.running {
                0 => "exits now".to_owned(),
                1 => "exits after its running task".to_owned(),
                count => format!("exits after its {count} running tasks"),
            };
            Styled::from(format!("{} accepts no new tasks; {end}", worker.name))
        }
        WorkersAction::Redrive { id } => {
            let again = redrive(&cluster, id, &flags).await?;
            if args.json {
                DocumentSchema::Redrive.print(&json!({"task": again}), stdout);
                return Ok(0);
            }
            Styled::from(format!("started again as task {again}"))
        }
    };
    stdout.lines(text, OutputPriority::Last);
    Ok(0)
}

/// Drains a worker, and returns its state before.
async fn drain(cluster: &TaskManager, id: &str, flags: &SameFlags) -> Result<WorkerInfo, CliError> {
    let workers = cluster.workers().await.map_err(|error| failed(&error))?;
    let worker = find_by_id(&workers, id, "worker", "list", flags, |worker| {
        worker.id.as_str()
    })?;
    let asked = cluster.drain_worker(&worker.id).await;
    if !asked.map_err(|error| failed(&error))? {
        return Err(
            CliError::failure(format!("the worker `{}` does not answer", worker.id)).hint(
                "if the worker has crashed, its lease expires, and other workers take over its tasks",
            ),
        );
    }
    Ok(worker.clone())
}

/// Starts a new task for a dead letter, and returns its id.
async fn redrive(cluster: &TaskManager, id: &str, flags: &SameFlags) -> Result<String, CliError> {
    let letters = cluster.dead_letters().await;
    let letters = letters.map_err(|error| failed(&error))?;
    let letter = find_by_id(&letters, id, "dead letter", "dead", flags, |letter| {
        letter.task.as_str()
    })?;
    let again = cluster.retry_dead_letter(&letter.task).await;
    let again = again.map_err(|error| CliError::failure(error_chain(&error)))?;
    Ok(again.to_string())
}

/// Finds the only item whose id contains `id`.
fn find_by_id<'a, T>(
    all: &'a [T],
    id: &str,
    kind: &str,
    listed_by: &str,
    flags: &SameFlags,
    id_of: impl Fn(&T) -> &str,
) -> Result<&'a T, CliError> {
    let mut found = all.iter().filter(|one| is_meant(id_of(one), id));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => {
            let list = flags.command(&format!("workers {listed_by}"));
            Err(CliError::not_found(format!("{kind} `{id}` not found"))
                .hint(format!("`{list}` lists all {kind}s")))
        }
        (Some(_), Some(_)) => {
            let count = all.iter().filter(|one| is_meant(id_of(one), id)).count();
            Err(CliError::usage(format!("`{id}` matches {count} {kind}s"))
                .hint("type more of the id"))
        }
    }
}

fn failed(error: &TaskStoreError) -> CliError {
    CliError::failure(error_chain(error))
}

async fn open(args: &WorkersArgs) -> Result<TaskManager, CliError> {
    let Some(options) = nats_options(args.store.store.as_deref(), &args.servers) else {
        return Err(CliError::usage("`allstop workers` needs a NATS store")
            .hint("name the NATS servers: --store nats://HOST:4222"));
    };
    let scope = Scope::root("workers", RootOptions::current());
    let opened = NatsLog::open(options, &scope).await;
    let log = opened.map_err(StartError::from)?;
    let link = log.link().await.map_err(StartError::from)?;
    let node = ClusterOptions::new(link);
    let (log, parts): (Arc<dyn Log>, _) = (Arc::new(log), Arc::new(TaskParts::of(EchoAgent)));
    let manager = TaskManager::join(log, node, scope, parts, TaskOptions::default());
    Ok(manager.context("a scope for the cluster")?)
}

/// A worker in the JSON list.
#[derive(Serialize)]
struct ListedWorker<'a> {
    #[serde(flatten)]
    worker: &'a WorkerInfo,
    state: &'static str,
}

/// State of a worker. This command sees each lease only once, so the time of the last renewal decides whether the worker
/// is lost.
fn state_of(worker: &WorkerInfo, now: Timestamp) -> &'static str {
    if worker.is_overdue(now) {
        "lost"
    } else if worker.is_draining {
        "draining"
    } else {
        "working"
    }
}

fn workers_table(workers: &[WorkerInfo], style: Style, now: Timestamp) -> Styled {
    if workers.is_empty() {
        return Styled::from("no worker has a lease: start one with `allstop worker`".to_owned());
    }
    let mut table = TextTable::default();
    table.row(
        ["ID", "RUNNING", "SINCE", "STATE", "PROCESS"]
            .map(|title| style.paint(TextRole::Dim, title)),
    );
    for worker in workers {
        table.row([
            short(worker.id.as_str()).into(),
            format!("{} of {}", worker.running, worker.concurrency).into(),
            age(worker.since, now).into(),
            state_of(worker, now).into(),
            worker.name.to_string().into(),
        ]);
    }
    table.render()
}

fn letters_table(letters: &[DeadLetter], style: Style, now: Timestamp) -> Styled {
    if letters.is_empty() {
        return Styled::from("no dead letters".to_owned());
    }
    let mut table = TextTable::default();
    table.row(
        ["TASK", "AGE", "RESTARTED AS", "REASON"].map(|title| style.paint(TextRole::Dim, title)),
    );
    for letter in letters {
        table.row([
            letter.task.to_string().into(),
            age(letter.at, now).into(),
            letter
                .again_as
                .as_ref()
                .map_or(String::new(), ToString::to_string)
                .into(),
            letter.reason.to_string().into(),
        ]);
    }
    table.render()
}
