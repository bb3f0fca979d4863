//! `allstop serve`: serves durable tasks over the A2A protocol, until a signal. `allstop worker`: runs such tasks in a
//! cluster.

pub(crate) mod access;
mod agent;
pub(crate) mod cluster;
pub(crate) mod echo;
pub(crate) mod endpoint;
mod health;
mod metrics;
mod observer;
mod open;
mod push;
mod retention;
mod store_probe;
mod unreadable_tasks;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::ReceiptItem;
use allstop_core::{Cause, CauseKind, Extent, HumanDuration, Receipt};
use allstop_scope::{FORCE_MAX, Scope, StopRequest};
use allstop_task::ShutdownReport;
use allstop_terminal::OutputPriority;

use tokio::time::timeout;

use crate::args::ServeArgs;
#[cfg(feature = "nats")]
use crate::args::WorkerArgs;
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_receipt};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::server_loop::{HostedServer, run_server};
use crate::shutdown::write_back;
use crate::start::options::HostOptions;
use crate::start::{self, StartFailure, StartStage};
use crate::supervise::Supervisor;
use agent::AgentChoice;
use allstop_remote::OwnedSessions;
use cluster::StoreConnection;
use open::{RunningServer, ServerArgs, open_server};

/// Line about a drain that `allstop workers drain` requested: the worker accepts no new tasks, and finishes its running
/// tasks.
const DRAINING: &str =
    "draining (`workers drain`): accepts no new tasks, and exits after the running tasks";

/// Serves until a signal, then stops the tasks and exits with the signal's code.
pub(crate) async fn serve(args: ServeArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let endpoint = &args.endpoint;
    if !cfg!(feature = "grpc") && endpoint.grpc_listen.is_some() {
        return Err(CliError::not_built("--grpc-listen", "grpc"));
    }
    let addresses = [Some(endpoint.listen), endpoint.grpc_listen];
    access::check_addresses(&endpoint.access, addresses.into_iter().flatten())?;
    let args = ServerArgs {
        endpoint: Some(args.endpoint),
        execution: args.execution,
        metrics_listen: None,
        keepers: Arc::clone(&host.keepers),
        stderr: host.output.stderr().clone(),
        traces: host.traces.clone(),
    };
    run(args, host).await
}

/// Runs tasks of a cluster until a signal, or until another process drains this worker.
#[cfg(feature = "nats")]
pub(crate) async fn work(args: WorkerArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    if let Some(address) = args
        .metrics_listen
        .filter(|address| !address.ip().is_loopback())
    {
        return Err(CliError::usage(format!(
            "--metrics-listen {address} is not a loopback address, and this endpoint has no tokens"
        ))
        .hint("choose an address such as 127.0.0.1:9464"));
    }
    let execution = args.execution;
    let servers = &execution.cluster.servers;
    if cluster::nats_options(execution.store.store.as_deref(), servers).is_none() {
        return Err(CliError::usage("a worker needs a NATS store")
            .hint("name the NATS servers: --store nats://HOST:4222"));
    }
    let args = ServerArgs {
        endpoint: None,
        execution,
        metrics_listen: args.metrics_listen,
        keepers: Arc::clone(&host.keepers),
        stderr: host.output.stderr().clone(),
        traces: host.traces.clone(),
    };
    if args.concurrency() == 0 {
        return Err(
            CliError::usage("--concurrency of a worker must be at least 1")
                .hint("omit --concurrency for 16 tasks, or pass a number from 1"),
        );
    }
    run(args, host).await
}

async fn run(args: ServerArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let command = match args.endpoint {
        Some(_) => "serve",
        None => "worker",
    };
    let opened = async |sessions: &OwnedSessions, supervisor: &mut Supervisor| {
        let (server, agent, store_name) = open(args, sessions, host, supervisor).await?;
        supervisor
            .control
            .set_drain(server.drain.unwrap_or_default());
        let connection = StoreConnection::of(&server.store);
        let serving = HostedTasks {
            host,
            server,
            store_name,
            connection,
            is_draining: false,
            not_stored: Cell::default(),
        };
        serving.show_line(&agent);
        Ok(serving)
    };
    run_server(command, host, opened).await
}

/// Reads flags and files, then starts the server. Also returns a description of the agent for the operator, and the name
/// of the store. A signal can end each of these stages.
async fn open(
    args: ServerArgs,
    sessions: &OwnedSessions,
    host: &ProcessHost,
    supervisor: &mut Supervisor,
) -> Result<(RunningServer, String, Option<PathBuf>), StartFailure> {
    let given = HostOptions::of(host);
    let (args, agent) = start::read(given.scopes.clone(), supervisor, move |_cx| {
        let secrets = args.secret_files();
        let agent = AgentChoice::read(&args.execution, args.concurrency(), given, secrets);
        Ok((args, agent?))
    })
    .await?;
    supervisor.control.set_grace(agent.grace());
    let (mut description, store_name) = (agent.describe(), agent.store_name());
    if let Some(limits) = retention::describe(&args.execution) {
        description.extend(["\n", &limits]);
    }
    let root = agent.root();
    let mut stage = StartStage {
        supervisor,
        scope: &root,
        grace: None,
    };
    let starting = open_server(root.clone(), args, agent, sessions.clone());
    let starting = start::begin(&root, "start of the server", starting);
    let server = stage.wait(starting, start::late_store).await?;
    Ok((server.ok_or_stopped()??, description, store_name))
}

/// A server or worker in its main loop.
struct HostedTasks<'a> {
    host: &'a ProcessHost,
    server: RunningServer,
    /// File of the store, or the URLs of its NATS servers.
    store_name: Option<PathBuf>,
    connection: StoreConnection,
    /// True if the line about the drain (see `DRAINING`) was shown.
    is_draining: bool,
    /// Number of stopped tasks whose ends are not stored; `None` until all tasks are stopped.
    not_stored: Cell<Option<usize>>,
}

impl HostedTasks<'_> {
    fn report_drain(&mut self) {
        if !self.is_draining {
            self.is_draining = true;
            self.show_line(DRAINING);
        }
    }
}

impl HostedServer for HostedTasks<'_> {
    /// Results of the tasks' stops, and the receipt (the report of the stop) of the background work of their sessions.
    type Report = (ShutdownReport, Arc<Receipt>);

    fn addresses(&self) -> Option<&str> {
        Some(&self.server.addresses)
    }

    fn store_name(&self) -> Option<PathBuf> {
        self.store_name.clone()
    }

    fn show_line(&self, line: &str) {
        let stderr = self.host.output.stderr();
        stderr.lines(line.to_owned(), OutputPriority::Required);
    }

    async fn ended(&mut self) -> Cause {
        loop {
            let manager = &self.server.manager;
            tokio::select! {
                biased;
                change = self.connection.changed() => self.show_line(change),
                () = manager.asked_to_drain(), if !self.is_draining => self.report_drain(),
                () = manager.drained_from_elsewhere() => {
                    // The drain may finish before this loop notices its beginning.
                    self.report_drain();
                    self.show_line("drained");
                    return Cause::new(CauseKind::Shutdown).detail("drained");
                }
            }
        }
    }

    async fn drain(&self, cause: &Cause) {
        self.server.readiness.set(false);
        if let Some(max) = self.server.drain {
            let max_text = HumanDuration(max);
            self.show_line(&format!("draining for up to {max_text}: {cause}"));
            let _drained_or_late = timeout(max, self.server.manager.drain()).await;
        }
    }

    fn force(&self, cause: &Cause) {
        for scope in [&self.server.tasks, &self.server.agent] {
            let order = StopRequest::new(Extent::Process, cause.clone());
            scope.stop(order).force();
        }
    }

    /// Stops the tasks first, and then the background work of their sessions and the connections. So a waiting client
    /// still receives the end of its task.
    async fn stop(&self, cause: &Cause, left: Duration) -> Self::Report {
        let server = &self.server;
        server.readiness.set(false);
        self.show_line(&format!("stopping: {cause}"));
        if let Some(system) = &server.system {
            system.mcp().end_with_stopped_calls();
        }
        // Time for the stops of the tasks and for writing their ends. The rest of the time is for the later steps.
        let within = left.saturating_sub((FORCE_MAX / 4).min(left / 2));
        let end = Instant::now() + left;
        let report = server.manager.shutdown(within, "the server shuts down");
        let report = report.await;
        self.not_stored.set(Some(report.not_stored));
        // Background work can outlive its task, so it may still run. If enough time is left, the stop of this work has
        // the usual grace.
        let left = end.saturating_duration_since(Instant::now());
        let grace = server.agent.grace().min(left.saturating_sub(FORCE_MAX));
        let background = StopRequest::new(Extent::Process, cause.clone()).grace(grace);
        let background = server.agent.stop(background);
        let order = || StopRequest::new(Extent::Process, cause.clone()).grace(FORCE_MAX / 10);
        let (connections, push) = (server.connections.stop(order()), server.push.stop(order()));
        let (background, _, _) =
            tokio::join!(background.receipt(), connections.receipt(), push.receipt());
        write_back(&**server.store.log()).await;
        if let Some(system) = &server.system {
            if let Some(Err(why)) = system.save_recording().await {
                self.show_line(&why);
            }
            system.close().await;
        } else {
            server.store.log().close().await;
        }
        (report, background)
    }

    fn report(&self, (report, background): Self::Report) -> Result<(), CliError> {
        self.show_line(&summary(&report, &background));
        if !background.items().is_empty() {
            let stderr = self.host.output.stderr();
            let style = self.host.terminal.style(stderr.is_terminal());
            let receipt = render_receipt(&background, style, RECEIPT_WIDTH_DEFAULT);
            stderr.lines(receipt, OutputPriority::Required);
        }
        check_stored(report.not_stored)
    }

    fn report_late(&self) -> Result<(), CliError> {
        let scopes = [&self.server.tasks, &self.server.agent].into_iter();
        let running: Vec<_> = scopes.flat_map(Scope::running).collect();
        self.show_line(&late_summary(&running));
        let not_stored = self.not_stored.get();
        check_stored(not_stored.unwrap_or_else(|| self.server.manager.unstored_ends()))
    }

    fn problem(self) -> Option<CliError> {
        None
    }
}

/// Returns an error if the store lacks ends of this number of tasks.
fn check_stored(not_stored: usize) -> Result<(), CliError> {
    match not_stored {
        0 => Ok(()),
        _ => Err(CliError::failure("the store lacks ends of stopped tasks")
            .hint("the next start reports these tasks as failed, with unknown outcomes")),
    }
}

/// Maximum number of items that the line about the remaining work names. More items would fill the terminal.
const NAMED_MAX: usize = 8;

/// Describes the remaining work of a shutdown that has reached its time limit, in one line.
pub(crate) fn late_summary(running: &[ReceiptItem]) -> String {
    if running.is_empty() {
        return "time limit reached: no work is left running, but the store is not closed".into();
    }
    let titles = running
        .iter()
        .take(NAMED_MAX)
        .map(|item| match &item.label {
            Some(label) => format!("{} `{label}`", item.name),
            None => item.name.to_string(),
        });
    let mut names: Vec<String> = titles.collect();
    if let more @ 1.. = running.len().saturating_sub(NAMED_MAX) {
        names.push(format!("and {more} more"));
    }
    let names = names.join(", ");
    format!("time limit reached: the remaining work ends with the process: {names}")
}

/// Describes a shutdown in one line. `others` is the receipt of the rest of the work: open questions and calls of tasks
/// that wait for their clients, and background work.
pub(crate) fn summary(report: &ShutdownReport, others: &Receipt) -> String {
    let has_others = !others.items().is_empty();
    let tasks = match report.stopped() {
        0 if has_others => "no running task was stopped".to_owned(),
        0 => "no task was stopped".to_owned(),
        1 => "1 task was stopped".to_owned(),
        count => format!("{count} tasks were stopped"),
    };
    let left = match report.left_running() {
        0 if !others.quiet() => "no running task left work running".to_owned(),
        0 => "nothing is left running".to_owned(),
        1 => "1 task left work running".to_owned(),
        count => format!("{count} tasks left work running"),
    };
    let tasks = match report.kept_waiting {
        0 => tasks,
        1 => format!("{tasks}; 1 queued task stays in the store, and the next start runs it"),
        count => {
            format!("{tasks}; {count} queued tasks stay in the store, and the next start runs them")
        }
    };
    let tasks = match report.handed_over {
        0 => tasks,
        1 => format!("{tasks}; 1 task was handed over to the next worker"),
        count => format!("{tasks}; {count} tasks were handed over to the next workers"),
    };
    let others = if has_others {
        "; the receipt lists the work of waiting tasks and in the background"
    } else {
        ""
    };
    match report.not_stored {
        0 => format!("{tasks}; {left}{others}"),
        1 => format!("{tasks}; {left}; the end of 1 task is not stored{others}"),
        count => format!("{tasks}; {left}; the ends of {count} tasks are not stored{others}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use allstop_core::receipt::{
        ItemKind, ItemState, NotStoppedReason, ReceiptItem, StopFindings, StopInfo,
    };
    use allstop_core::{Cause, CauseKind, Extent, Receipt, Timestamp};

    use super::*;

    fn info() -> StopInfo {
        StopInfo {
            stop_id: "stop".into(),
            target: "task/1".into(),
            extent: Extent::Subtree,
            cause: Cause::new(CauseKind::Shutdown),
            requested_at: Timestamp::from_unix_ms(0),
        }
    }

    fn running(kind: ItemKind) -> ReceiptItem {
        let why = NotStoppedReason::NotAcknowledged;
        ReceiptItem::new(kind, "1", "1", ItemState::StillRunning { why })
    }

    fn report(receipts: Vec<Receipt>, not_stored: usize) -> ShutdownReport {
        let mut report = ShutdownReport::default();
        report.receipts = receipts.into_iter().map(Arc::new).collect();
        report.not_stored = not_stored;
        report
    }

    #[test]
    fn late_shutdown_names_its_remaining_work() {
        let mut shell = running(ItemKind::ToolCall);
        shell.label = Some("sleep 600".into());
        let line = late_summary(&[shell, running(ItemKind::Future)]);
        let begin = "time limit reached: the remaining work ends with the process: ";
        assert_eq!(line, format!("{begin}1 `sleep 600`, 1"));
        let many = vec![running(ItemKind::ToolCall); NAMED_MAX + 2];
        assert!(late_summary(&many).ends_with(", and 2 more"));
        assert!(late_summary(&[]).contains("no work is left running"));
    }

    /// Regression: because of a full disk, the end of an execution was not stored. The execution was counted as
    /// stopped, and as a task that left work running.
    #[test]
    fn execution_that_waits_for_the_store_is_not_left_running() {
        let none = Receipt::of_stop(info(), StopFindings::default());
        let ended = Receipt::already_ended(info(), vec![running(ItemKind::Engine)]);
        assert_eq!(
            summary(&report(vec![ended], 1), &none),
            "no task was stopped; nothing is left running; the end of 1 task is not stored"
        );
        let findings = StopFindings {
            items: [running(ItemKind::ToolCall)].into(),
            ..StopFindings::default()
        };
        let stopped = Receipt::of_stop(info(), findings);
        assert_eq!(
            summary(&report(vec![stopped], 0), &none),
            "1 task was stopped; 1 task left work running"
        );
        assert_eq!(
            summary(&report(Vec::new(), 0), &none),
            "no task was stopped; nothing is left running"
        );
    }

    /// Regression: tasks that waited in the queue were stopped, and counted as stopped.
    #[test]
    fn queued_tasks_that_stay_are_named() {
        let none = Receipt::of_stop(info(), StopFindings::default());
        for (kept_waiting, expected) in [
            (
                1,
                "1 queued task stays in the store, and the next start runs it",
            ),
            (
                2,
                "2 queued tasks stay in the store, and the next start runs them",
            ),
        ] {
            let mut report = report(Vec::new(), 0);
            report.kept_waiting = kept_waiting;
            assert_eq!(
                summary(&report, &none),
                format!("no task was stopped; {expected}; nothing is left running")
            );
        }
    }

    #[test]
    fn tasks_that_were_handed_over_are_not_stopped() {
        let none = Receipt::of_stop(info(), StopFindings::default());
        let mut report = report(vec![none.clone()], 0);
        report.handed_over = 1;
        assert_eq!(
            summary(&report, &none),
            "no task was stopped; 1 task was handed over to the next worker; nothing is left running"
        );
    }

    /// Regression: the line was `no task was stopped; nothing is left running`, above a receipt with stopped work, or
    /// with work that still ran.
    #[test]
    fn work_of_waiting_tasks_and_in_the_background_is_mentioned() {
        let findings = StopFindings {
            items: [running(ItemKind::ToolCall)].into(),
            ..StopFindings::default()
        };
        let others = Receipt::of_stop(info(), findings);
        assert_eq!(
            summary(&report(Vec::new(), 0), &others),
            "no running task was stopped; no running task left work running; the receipt lists the work of waiting \
             tasks and in the background"
        );
    }
}
