//! `allstop mcp serve`: runs commands for other agents, as their MCP server on standard input and output or over HTTP.

mod commands;
mod endpoint;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_log::MemoryLog;
use allstop_mcp_server::{CommandConfig, CommandExecutor, CommandServer};
use allstop_remote::OwnedSessions;
use allstop_runtime::{Config, without_exempted};
use allstop_scope::{FORCE_MAX, NotStarted, Scope, ScopeOptions, StopRequest, WorkSpec};
use allstop_task::{
    NoContextData, RetentionLimits, ShutdownReport, TaskManager, TaskOptions, TaskParts,
    TaskRetention, WhenFull,
};
use allstop_terminal::OutputPriority;
use anyhow::Context as _;

use crate::args::McpServeArgs;
use crate::descriptors;
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_receipt};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::serve::{access, late_summary, summary};
use crate::server_loop::{HostedServer, run_server};
use crate::start::{self, StartFailure, StartStage};
use crate::supervise::Supervisor;
use commands::ServedCommands;
use endpoint::RunningEndpoint;

/// Maximum number of ended commands whose receipts and outputs stay. They are in memory, each with up to 128 KiB of
/// arguments and 32 KiB of output.
const ENDED_MAX: usize = 1_000;

/// Default grace of a stop. The stop of a client has a grace of 2 s, and a client such as Allstop waits 1.8 s for the
/// confirmation of a cancelled call. In this time, the server must also kill a command that ignores SIGTERM.
const COMMAND_GRACE_DEFAULT: Duration = Duration::from_secs(1);

/// Maximum number of receipts that a shutdown prints. More would fill the log of the client.
const PRINTED_RECEIPTS_MAX: usize = 8;

/// A server in its main loop.
struct HostedCommands<'a> {
    host: &'a ProcessHost,
    started: StartedCommands,
}

/// A server that accepts requests.
struct StartedCommands {
    manager: TaskManager,
    /// Scope of the commands.
    tasks: Scope,
    connections: Scope,
    endpoint: RunningEndpoint,
}

/// Serves until the client disconnects or a signal arrives.
pub(crate) async fn serve(
    args: McpServeArgs,
    config: &Config,
    host: &ProcessHost,
) -> Result<Exit, CliError> {
    match args.http {
        Some(address) => access::check_addresses(&args.access, [address])?,
        None if args.has_access_flags() => {
            return Err(
                CliError::usage("the flags of the access need --http ADDRESS")
                    .hint("on standard input and output, only the parent process is a client"),
            );
        }
        None if std::io::stdin().is_terminal() => {
            host.note("waiting for an MCP client on standard input; see --help");
        }
        None => {}
    }
    let hidden = ProcessHost::secret_variables(&[]);
    let hidden = without_exempted(&hidden, &config.shell.env);
    let commands = CommandConfig::new(host.folder.clone()).env_hidden(hidden);
    let grace = args.grace.or(config.deadlines.grace);
    let grace = grace.map_or(COMMAND_GRACE_DEFAULT, Into::into);
    let opened = async |sessions: &OwnedSessions, supervisor: &mut Supervisor| {
        supervisor.control.set_grace(grace);
        let mut scopes = host.scopes();
        scopes.grace = grace;
        let root = Scope::root("process", scopes);
        let mut stage = StartStage {
            supervisor,
            scope: &root,
            grace: None,
        };
        let starting = start::begin(
            &root,
            "start of the server",
            open(root.clone(), args, commands),
        );
        let started = stage.wait(starting, start::late_store).await?;
        let started = started.ok_or_stopped()??;
        sessions.take_commands(Arc::new(ServedCommands {
            manager: started.manager.clone(),
        }));
        Ok::<_, StartFailure>(HostedCommands { host, started })
    };
    run_server("mcp serve", host, opened).await
}

async fn open(
    root: Scope,
    args: McpServeArgs,
    commands: CommandConfig,
) -> Result<StartedCommands, CliError> {
    let child = |label: &str| root.child(label.to_owned(), ScopeOptions::default());
    let tasks = child("tasks").context("a scope for the commands")?;
    let connections = child("connections").context("a scope for the connections")?;
    let executor = CommandExecutor::new(commands.clone());
    let parts = TaskParts::of(executor);
    let running_max = args.max_commands.get().min(descriptors::commands_max());
    let options = TaskOptions::default()
        .running_max(running_max)
        .when_full(WhenFull::Refuse);
    let log = Arc::new(MemoryLog::new());
    let manager = TaskManager::open(log, tasks.clone(), Arc::new(parts), options);
    let manager = manager.await.context("the tasks of the commands")?;
    start_removal(manager.clone(), &connections).context("the removal of ended commands")?;
    let server = CommandServer::new(manager.clone(), &commands, env!("CARGO_PKG_VERSION"));
    let endpoint = match args.http {
        Some(address) => {
            RunningEndpoint::on_address(server, &root, &connections, address, &args.access).await?
        }
        None => RunningEndpoint::on_stdio(server, &connections)?,
    };
    Ok(StartedCommands {
        manager,
        tasks,
        connections,
        endpoint,
    })
}

/// Starts to remove the commands that ended first.
fn start_removal(manager: TaskManager, scope: &Scope) -> Result<(), NotStarted> {
    let retention = TaskRetention {
        limits: RetentionLimits::default().ended_max(ENDED_MAX),
        contexts: Arc::new(NoContextData),
        attachments: Vec::new(),
    };
    let spec = WorkSpec::new(ItemKind::Future, "removal of ended commands");
    let removing = scope.spawn(spec, |cx| async move {
        tokio::select! {
            biased;
            _cause = cx.stopped_at("removal of ended commands") => {}
            () = manager.keep_removing_ended(&retention, |_| {}) => {}
        }
    });
    // The removal is work of the scope, and no caller waits for its value.
    drop(removing?);
    Ok(())
}

impl HostedServer for HostedCommands<'_> {
    /// Results of the commands' stops, and the receipt of the work that was left in their scope.
    type Report = (ShutdownReport, Arc<Receipt>);

    fn addresses(&self) -> Option<&str> {
        self.started.endpoint.address()
    }

    fn store_name(&self) -> Option<PathBuf> {
        None
    }

    fn show_line(&self, line: &str) {
        let stderr = self.host.output.stderr();
        stderr.lines(line.to_owned(), OutputPriority::Required);
    }

    async fn ended(&mut self) -> Cause {
        self.started.endpoint.ended().await;
        Cause::new(CauseKind::Disconnect).detail("the client is gone")
    }

    /// Does nothing: commands are stopped without a time to finish.
    async fn drain(&self, _cause: &Cause) {}

    fn force(&self, cause: &Cause) {
        let request = StopRequest::new(Extent::Process, cause.clone());
        self.started.tasks.stop(request).force();
    }

    /// Stops the commands first, and then the connections, so that a waiting client still receives the end of its
    /// command.
    async fn stop(&self, cause: &Cause, left: Duration) -> Self::Report {
        let StartedCommands {
            manager,
            tasks,
            connections,
            endpoint,
        } = &self.started;
        let end = Instant::now() + left;
        let within = left.saturating_sub((FORCE_MAX / 4).min(left / 2));
        let detail = match cause.kind {
            CauseKind::Disconnect => "the MCP client is gone",
            _ => "the server shuts down",
        };
        let report = manager.shutdown(within, detail).await;
        let order = || StopRequest::new(Extent::Process, cause.clone()).grace(FORCE_MAX / 10);
        let left = tasks.stop(order()).receipt().await;
        let time_left = end.saturating_duration_since(Instant::now());
        endpoint.close(time_left / 2).await;
        drop(connections.stop(order()).receipt().await);
        (report, left)
    }

    fn report(&self, (report, left): Self::Report) -> Result<(), CliError> {
        let has_work = |receipt: &&Arc<Receipt>| !receipt.items().is_empty();
        let receipts = report.receipts.iter().chain([&left]);
        let receipts: Vec<_> = receipts.filter(has_work).collect();
        if receipts.is_empty() {
            return Ok(());
        }
        let stderr = self.host.output.stderr();
        let style = self.host.terminal.style(stderr.is_terminal());
        for receipt in receipts.iter().take(PRINTED_RECEIPTS_MAX) {
            let receipt = render_receipt(receipt, style, RECEIPT_WIDTH_DEFAULT);
            stderr.lines(receipt, OutputPriority::Required);
        }
        self.show_line(&summary(&report, &left));
        Ok(())
    }

    fn report_late(&self) -> Result<(), CliError> {
        self.show_line(&late_summary(&self.started.tasks.running()));
        Ok(())
    }

    fn problem(self) -> Option<CliError> {
        self.started.endpoint.problem().map(CliError::failure)
    }
}
