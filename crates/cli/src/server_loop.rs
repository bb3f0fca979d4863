//! Main loop that the servers of all protocols share. The server starts and serves requests until a signal arrives or
//! the server ends by itself. Then running work may finish (drain), the rest is stopped, and the process exits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind};
use allstop_scope::GRACE_DEFAULT;
use allstop_terminal::OutputPriority;

use crate::control::{Control, ControlEffect};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::service_manager::ServiceManager;
use crate::start::StartFailure;
use crate::supervise::Supervisor;
use allstop_remote::{OwnedSessions, RemoteListener};

/// A server that accepts requests.
pub(crate) trait HostedServer {
    /// Result of the stop.
    type Report;

    /// Lines for standard output. If port 0 was requested, only these lines contain the actual port.
    fn addresses(&self) -> Option<&str>;

    /// File of the store, or the URLs of its NATS servers; `None` for another store.
    fn store_name(&self) -> Option<PathBuf>;

    /// Shows a line to the operator.
    fn show_line(&self, line: &str);

    /// Resolves when the server ends without a signal. The process then exits with code 0, unless
    /// [`HostedServer::problem`] returns an error.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn ended(&mut self) -> Cause;

    /// Lets running work finish before a stop, for a limited time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn drain(&self, cause: &Cause);

    /// Forces the stop: kills processes and drops futures without further waiting.
    fn force(&self, cause: &Cause);

    /// Stops all work within the time until the exit, and closes the store.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the stop.
    async fn stop(&self, cause: &Cause, left: Duration) -> Self::Report;

    /// Shows the result of the stop. Returns an error if the store lacks ends of stopped work.
    fn report(&self, report: Self::Report) -> Result<(), CliError>;

    /// Shows the work that the stop has not ended within the time limit. Returns an error like
    /// [`HostedServer::report`].
    fn report_late(&self) -> Result<(), CliError>;

    /// Error of a server that ended without a signal, if the user should see one.
    fn problem(self) -> Option<CliError>;
}

/// Opens a server, and serves until the server ends or a signal arrives.
pub(crate) async fn run_server<S: HostedServer>(
    command: &'static str,
    host: &ProcessHost,
    open: impl AsyncFnOnce(&OwnedSessions, &mut Supervisor) -> Result<S, StartFailure>,
) -> Result<Exit, CliError> {
    let mut supervisor = Supervisor::new(host.signals()?, Control::new(GRACE_DEFAULT));
    let sessions = OwnedSessions::new(command, host.folder.clone(), host.scopes());
    let mut server = match open(&sessions, &mut supervisor).await {
        Ok(server) => server,
        Err(StartFailure::Usage(problem)) => return Err(problem),
        Err(StartFailure::Ended(envelope)) => match envelope.error {
            Some(error) => {
                let problem = CliError::failure(error.message);
                let hint = error.hint;
                return Err(CliError { hint, ..problem });
            }
            None => return Ok(exit(&supervisor)),
        },
    };
    if let Some(addresses) = server.addresses() {
        let stdout = host.output.stdout();
        stdout.answer(addresses, OutputPriority::Required);
    }
    sessions.set_store(server.store_name());
    let remote = RemoteListener::listen(sessions, &host.sockets);
    if let Some(problem) = remote.problem() {
        server.show_line(&problem);
    }
    let manager = ServiceManager::of_environment();
    if let Err(problem) = manager.ready() {
        server.show_line(&problem.to_string());
    }
    let (cause, has_ended) = loop {
        tokio::select! {
            biased;
            effect = supervisor.next() => match effect {
                ControlEffect::Stop(cause) | ControlEffect::Force(cause) => break (cause, false),
                ControlEffect::Exit => break (Cause::new(CauseKind::Shutdown), false),
                ControlEffect::Nothing => {}
            },
            cause = server.ended() => break (cause, true),
        }
    };
    if let Err(problem) = manager.stopping(&cause.to_string()) {
        tracing::warn!(%problem, "the end of the server is not reported");
    }
    let stored = shut_down(&server, &mut supervisor, &cause, has_ended).await;
    // If another terminal requested a stop, it gets the receipt (the report of the stop) before this process exits.
    let answered = remote.answered();
    let _answered_or_late = supervisor.wait_to_exit(answered, |_| {}).await;
    match (server.problem(), stored) {
        (Some(problem), _) => Err(problem),
        (None, Err(problem)) => {
            // The reader of this line does not delay the exit after a signal.
            host.print_problem(&problem);
            Ok(Exit {
                code: problem.code(),
                ..exit(&supervisor)
            })
        }
        (None, Ok(())) if has_ended => Ok(Exit::from(0)),
        (None, Ok(())) => Ok(exit(&supervisor)),
    }
}

async fn shut_down(
    server: &impl HostedServer,
    supervisor: &mut Supervisor,
    cause: &Cause,
    has_ended: bool,
) -> Result<(), CliError> {
    // From here on, all waits are bounded, even if the server ended without a signal.
    supervisor.control.end(Instant::now());
    if !has_ended {
        let is_forced = tokio::select! {
            biased;
            // A second signal ends the drain. If there is no drain, it asks for force. The exit time may also be reached.
            effect = supervisor.next() => !matches!(effect, ControlEffect::Stop(_)),
            () = server.drain(cause) => false,
        };
        if is_forced {
            server.force(cause);
        }
    }
    supervisor.control.end_drain(Instant::now());
    let left = supervisor.control.time_left(Instant::now());
    let stopping = server.stop(cause, left);
    let force = |_hurry: ControlEffect| server.force(cause);
    match supervisor.wait_to_exit(stopping, force).await {
        Some(report) => server.report(report),
        None => server.report_late(),
    }
}

fn exit(supervisor: &Supervisor) -> Exit {
    let control = &supervisor.control;
    Exit {
        code: control.exit_code(control.stop_reason()),
        output_wait: control.output_wait(Instant::now()),
    }
}
