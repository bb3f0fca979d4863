//! `allstop serve`: tasks over A2A, durable in the store, until a signal.

mod echo;
mod health;
mod push;
mod start;

use std::path::Path;
use std::time::Instant;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent, HumanDuration};
use allstop_runtime::StoreChoice;
use allstop_scope::{FORCE_MAX, GRACE_DEFAULT, Scope, StopRequest, WorkSpec};
use allstop_task::ShutdownReport;
use anyhow::Context as _;

use crate::args::ServeArgs;
use crate::control::{Control, ControlEffect};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::supervise::Supervisor;
use crate::terminal::OutputPriority;
use start::{RunningServer, start};

/// Serves until a signal; then stops the tasks, and exits with the code of the signal.
pub(crate) async fn serve(args: ServeArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    check_address(&args)?;
    let store = match &args.store.store {
        Some(path) if path == Path::new(":memory:") => StoreChoice::Memory,
        _ => ProcessHost::store(&args.store, None)?,
    };
    let grace = args
        .grace
        .map_or(GRACE_DEFAULT, |HumanDuration(grace)| grace);
    let mut supervisor = Supervisor::new(host.signals()?, Control::new(grace));
    let mut scopes = host.scopes();
    scopes.grace = grace;
    let root = Scope::root("process", scopes);
    let store_text = match &store {
        StoreChoice::Sqlite(path) => path.display().to_string(),
        StoreChoice::Memory => "in memory".to_owned(),
    };
    let starting = {
        let (root, args) = (root.clone(), args.clone());
        let spec = WorkSpec::new(ItemKind::Future, "start of the server");
        root.clone().spawn(
            spec,
            move |_cx| async move { start(&root, &args, store).await },
        )
    };
    let starting = starting.context("the server cannot start")?;
    let server = tokio::select! {
        biased;
        effect = supervisor.next() => {
            let (ControlEffect::Stop(cause) | ControlEffect::Force(cause)) = effect else {
                return Ok(stopped(&supervisor));
            };
            drop(root.stop(StopRequest::new(Extent::Process, cause)));
            return Ok(stopped(&supervisor));
        }
        started = starting => started.context("the start of the server")??,
    };
    // For scripts: with port 0 only this line tells the address.
    let address = format!("listening on http://{}\n", server.address);
    host.output.stdout().answer(&address, OutputPriority::Must);
    tell(host, &format!("agent {} · store {store_text}", args.agent));
    let cause = loop {
        match supervisor.next().await {
            ControlEffect::Stop(cause) | ControlEffect::Force(cause) => break cause,
            ControlEffect::Exit => break Cause::new(CauseKind::Shutdown),
            ControlEffect::Nothing => {}
        }
    };
    shut_down(host, &mut supervisor, &server, cause).await;
    Ok(stopped(&supervisor))
}

/// Without authentication the server listens on this machine only.
fn check_address(args: &ServeArgs) -> Result<(), CliError> {
    let address = args.listen;
    if address.ip().is_loopback() || args.token_file.is_some() {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{address} can be reached from other machines, and there is no authentication"
    ))
    .hint("give the users tokens (--token-file FILE), or listen on 127.0.0.1"))
}

/// Stops the tasks, then the connections: a client that waits gets the end of its task.
async fn shut_down(
    host: &ProcessHost,
    supervisor: &mut Supervisor,
    server: &RunningServer,
    cause: Cause,
) {
    server.readiness.set(false);
    tell(host, &format!("stopping: {cause}"));
    let within = supervisor
        .control
        .time_left(Instant::now())
        .saturating_sub(FORCE_MAX / 4);
    let stopping = async {
        let report = server
            .manager
            .shutdown(within, "the server shuts down")
            .await;
        let end = || StopRequest::new(Extent::Process, cause.clone()).grace(FORCE_MAX / 10);
        let (connections, push) = (server.connections.stop(end()), server.push.stop(end()));
        connections.receipt().await;
        push.receipt().await;
        report
    };
    match supervisor.wait_to_exit(stopping, |_hurry| {}).await {
        Some(report) => tell(host, &summary(&report)),
        None => tell(
            host,
            "the time is over: what still runs ends with the process",
        ),
    }
}

fn summary(report: &ShutdownReport) -> String {
    let left = report.receipts.iter().filter(|receipt| !receipt.quiet());
    let (left, stopped) = (left.count(), report.receipts.len());
    let tasks = match stopped {
        0 => "no task was running".to_owned(),
        1 => "1 task was stopped".to_owned(),
        count => format!("{count} tasks were stopped"),
    };
    match (left, report.not_stored) {
        (0, 0) => format!("{tasks}; nothing is left running"),
        (left, not_stored) => {
            format!("{tasks}; {left} left work running, the end of {not_stored} is not stored")
        }
    }
}

fn stopped(supervisor: &Supervisor) -> Exit {
    let control = &supervisor.control;
    Exit {
        code: control.exit_code(control.stop_reason()),
        output_wait: control.output_wait(Instant::now()),
    }
}

fn tell(host: &ProcessHost, line: &str) {
    host.output
        .stderr()
        .lines(line.to_owned(), OutputPriority::Must);
}
