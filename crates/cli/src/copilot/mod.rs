//! `allstop copilot`: serves sessions to clients that use a GitHub Copilot SDK, on standard input and output or on a
//! port.

mod endpoint;

use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_copilot::{ConnectionAccess, CopilotOptions, CopilotServer, ShutdownWork};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_jsonrpc::FrameError;
use allstop_runtime::{ModelChoice, System, SystemOptions};
use allstop_scope::{FORCE_MAX, GRACE_DEFAULT, Scope, ScopeOptions, StopRequest, WorkHandle};
use allstop_tools::permission::{FixedAnswer, PermissionAnswer};
use anyhow::Context as _;

use crate::args::CopilotArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{ProcessHost, variable};
use crate::server_loop::{HostedServer, run_server};
use crate::shutdown::write_back;
use crate::start::options::{HostOptions, config_of, note_unusable_servers, system};
use crate::start::project;
use crate::start::{self, StartFailure, StartStage};
use crate::supervise::Supervisor;
use allstop_remote::{ClientQuestions, OwnedSessions};

/// Environment variable with the token that clients on a port must send. The SDKs set this variable when they start the
/// server.
const TOKEN_VARIABLE: &str = "COPILOT_CONNECTION_TOKEN";

/// File with the settings that clients store.
const SETTINGS_FILE: &str = "settings.json";

/// A running server.
struct RunningCopilot {
    server: CopilotServer,
    system: Arc<System>,
    agent: Scope,
    connections: Scope,
    /// Work that serves the client on standard input and output, or that accepts clients on a port. On standard input,
    /// this work ends when the client disconnects. Its result is an error if this client sent an unreadable message.
    serving: WorkHandle<Option<FrameError>>,
    /// The error of `serving`, if this work has ended with an error.
    malformed: Option<FrameError>,
    address: Option<String>,
    /// Id of the program that has started the server on a port with an SDK. The server ends after this program, even if
    /// the program was killed. On standard input, the end of the input has this effect.
    program: Option<u32>,
}

/// Time between two checks of the program. The system sends no event when a parent process ends.
const PROGRAM_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Completes when the program has ended: then another process has adopted this process.
///
/// # Cancel safety
/// Cancel safe.
async fn ended(program: Option<u32>) {
    let Some(program) = program else {
        return std::future::pending().await;
    };
    let mut checks = tokio::time::interval(PROGRAM_CHECK_INTERVAL);
    while parent_id() == program {
        checks.tick().await;
    }
}

/// Serves until the client disconnects or requests a shutdown, or until a signal arrives.
pub(crate) async fn copilot(args: CopilotArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let access = access(&args)?;
    // The id is read before the long start, in which the program may end.
    let program = (args.sdk.headless && !args.stdio).then(parent_id);
    let opened = async |sessions: &OwnedSessions, supervisor: &mut Supervisor| {
        let opened = open(args, access, sessions, host, supervisor).await?;
        Ok(RunningCopilot { program, ..opened })
    };
    run_server("copilot", host, opened).await
}

impl HostedServer for RunningCopilot {
    type Report = ();

    /// The SDKs wait for this line in the output of the server.
    fn addresses(&self) -> Option<&str> {
        self.address.as_deref()
    }

    fn store_name(&self) -> Option<PathBuf> {
        self.system.store_file()
    }

    fn show_line(&self, line: &str) {
        tracing::warn!("{line}");
    }

    async fn ended(&mut self) -> Cause {
        tokio::select! {
            biased;
            () = self.server.shutdown_requested() => {
                Cause::new(CauseKind::Shutdown).detail("the client asked for it")
            }
            () = ended(self.program) => {
                Cause::new(CauseKind::Disconnect).detail("the program that started the server has ended")
            }
            gone = &mut self.serving => {
                self.malformed = gone.ok().flatten();
                Cause::new(CauseKind::Disconnect).detail("the client is gone")
            }
        }
    }

    /// Does nothing: the turns of the clients are stopped without a time to finish.
    async fn drain(&self, _cause: &Cause) {}

    fn force(&self, cause: &Cause) {
        let request = StopRequest::new(Extent::Process, cause.clone());
        self.agent.stop(request).force();
    }

    async fn stop(&self, cause: &Cause, _left: Duration) {
        self.system.mcp().end_with_stopped_calls();
        let _receipts = self.server.close(cause).await;
        let short = || StopRequest::new(Extent::Process, cause.clone()).grace(FORCE_MAX / 10);
        let (agent, connections) = (self.agent.stop(short()), self.connections.stop(short()));
        drop(tokio::join!(agent.receipt(), connections.receipt()));
        write_back(&**self.system.log()).await;
        self.system.close().await;
    }

    fn report(&self, (): ()) -> Result<(), CliError> {
        Ok(())
    }

    fn report_late(&self) -> Result<(), CliError> {
        self.show_line("time limit reached: the remaining work ends with the process");
        Ok(())
    }

    fn problem(self) -> Option<CliError> {
        let error = self.malformed?;
        let problem = format!("the client sent an unreadable message: {error}");
        Some(CliError::failure(problem))
    }
}

/// Access check for clients. A port needs a token: otherwise any user of this machine could run commands through the
/// port.
fn access(args: &CopilotArgs) -> Result<ConnectionAccess, CliError> {
    if args.stdio {
        return Ok(ConnectionAccess::Trusted);
    }
    let token = variable(TOKEN_VARIABLE).and_then(|token| token.into_string().ok());
    match token.filter(|token| !token.is_empty()) {
        Some(token) => Ok(ConnectionAccess::Token(token.into())),
        None => Err(CliError::usage(format!("{TOKEN_VARIABLE} is not set"))
            .hint("set it to a secret that clients send, or use --stdio")),
    }
}

/// Reads flags and files, then starts the server. A signal can end the start at any stage.
async fn open(
    args: CopilotArgs,
    access: ConnectionAccess,
    sessions: &OwnedSessions,
    host: &ProcessHost,
    supervisor: &mut Supervisor,
) -> Result<RunningCopilot, StartFailure> {
    let given = HostOptions::of(host);
    let settings_folder = ProcessHost::client_settings_folder();
    let port = (!args.stdio).then_some(args.port);
    let options = CopilotOptions::new(env!("CARGO_PKG_VERSION"))
        .unattended_max(args.unattended.0)
        .default_answer(unasked(&args))
        .auto_model(args.auto_model.as_deref().map(Arc::from))
        .sockets(host.sockets.clone())
        .before_shutdown(host.traces.clone().map(|traces| {
            // Some SDKs kill the process after the answer to its shutdown.
            ShutdownWork::new(move || traces.flush_file())
        }))
        .settings_file(
            settings_folder
                .as_ref()
                .map(|folder| folder.join(SETTINGS_FILE)),
        );
    let mut system_options = start::read(given.scopes.clone(), supervisor, move |_cx| {
        Ok(read(&args, given)?)
    })
    .await?;
    system_options.reserved.extend(settings_folder);
    let grace = system_options.config.deadlines.grace;
    let grace = grace.map_or(GRACE_DEFAULT, Into::into);
    supervisor.control.set_grace(grace);
    let root = system_options.root();
    let mut stage = StartStage {
        supervisor,
        scope: &root,
        grace: None,
    };
    let opening = open_server(
        root.clone(),
        sessions.clone(),
        system_options,
        options,
        access,
        port,
    );
    let opening = start::begin(&root, "start of the server", opening);
    let opened = stage.wait(opening, start::late_store).await?;
    Ok(opened.ok_or_stopped()??)
}

/// Answer to a permission question if no client answers it.
fn unasked(args: &CopilotArgs) -> PermissionAnswer {
    let answer = args.permissions.answer();
    answer.unwrap_or(PermissionAnswer::Unanswered)
}

fn read(args: &CopilotArgs, given: HostOptions) -> Result<SystemOptions, CliError> {
    let project = project::trusted(&args.model, &given.folder, &given.reporter)?;
    let mut config = config_of(&args.model, &project)?;
    args.permissions.set_mode(&mut config);
    config.deadlines.grace = args.grace.time.or(config.deadlines.grace);
    let store = ProcessHost::store(&args.store, config.store.path.clone())?;
    let prompter = FixedAnswer(unasked(args));
    let record = args.model.record.clone();
    let has_model = config.model.name.is_some();
    note_unusable_servers(&config, &given.reporter);
    let mut options = system(store, record, given, config, Arc::new(prompter));
    if !has_model {
        options.model = Some(ModelChoice::PerSession);
    }
    Ok(options)
}

async fn open_server(
    root: Scope,
    sessions: OwnedSessions,
    system_options: SystemOptions,
    options: CopilotOptions,
    access: ConnectionAccess,
    port: Option<u16>,
) -> Result<RunningCopilot, CliError> {
    let child = |label: &str| root.child(label.to_owned(), ScopeOptions::default());
    let agent = child("agent").context("a scope for the agent")?;
    let connections = child("connections").context("a scope for the connections")?;
    let system = Arc::new(System::open_in(agent.clone(), system_options).await?);
    sessions.take_clients(system.registry(), ClientQuestions::AnyWatcher);
    system.start_servers().await?;
    let server = CopilotServer::new(Arc::clone(&system), connections.clone(), options);
    let (serving, address) = match port {
        Some(port) => endpoint::on_port(&server, &connections, port, access).await?,
        None => (endpoint::on_stdio(&server, &connections)?, None),
    };
    Ok(RunningCopilot {
        server,
        system,
        agent,
        connections,
        serving,
        malformed: None,
        address,
        program: None,
    })
}
