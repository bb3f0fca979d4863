//! `allstop copilot`: sessions for the GitHub Copilot SDKs, on standard input and output or on a port.

mod endpoint;

use std::sync::Arc;
use std::time::Instant;

use allstop_copilot::{ConnectionAccess, CopilotOptions, CopilotServer};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_jsonrpc::FrameError;
use allstop_runtime::{ModelChoice, System, SystemOptions};
use allstop_scope::{FORCE_MAX, GRACE_DEFAULT, Scope, ScopeOptions, StopRequest, WorkHandle};
use allstop_terminal::OutputPriority;
use allstop_tools::permission::{FixedAnswer, PermissionAnswer};
use anyhow::Context as _;

use crate::args::CopilotArgs;
use crate::control::{Control, ControlEffect};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{ProcessHost, variable};
use crate::remote::{ClientQuestions, OwnedSessions, RemoteListener};
use crate::start::options::{Given, config_of, system};
use crate::start::project;
use crate::start::{self, StartFailure, StartStage};
use crate::supervise::Supervisor;

/// Variable with the token that clients on a port have to send. The SDKs set it.
const TOKEN_VARIABLE: &str = "COPILOT_CONNECTION_TOKEN";

/// A server that takes requests.
struct RunningCopilot {
    server: CopilotServer,
    system: Arc<System>,
    agent: Scope,
    connections: Scope,
    /// Resolves when the clients are gone: on standard input and output only.
    /// Ends with the client on standard input and output: with the reason, if that one sent what cannot be read.
    serving: WorkHandle<Option<FrameError>>,
    address: Option<String>,
}

/// Serves until the client is gone, asks for a shutdown, or a signal comes.
pub(crate) async fn copilot(args: CopilotArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let access = access(&args)?;
    let mut supervisor = Supervisor::new(host.signals()?, Control::new(GRACE_DEFAULT));
    let sessions = OwnedSessions::new("copilot", host.folder.clone(), host.scopes());
    let running = match open(args, access, &sessions, host, &mut supervisor).await {
        Ok(running) => running,
        Err(StartFailure::Usage(problem)) => return Err(problem),
        Err(StartFailure::Ended(envelope)) => match envelope.error {
            Some(error) => {
                let problem = CliError::failure(error.message);
                return Err(CliError {
                    hint: error.hint,
                    ..problem
                });
            }
            None => return Ok(exit(&supervisor)),
        },
    };
    let RunningCopilot {
        server,
        system,
        agent,
        connections,
        mut serving,
        address,
    } = running;
    if let Some(address) = &address {
        // The SDKs wait for this line.
        host.output.stdout().answer(address, OutputPriority::Must);
    }
    sessions.set_store(system.store_file());
    let remote = RemoteListener::listen(sessions);
    if let Some(problem) = remote.problem() {
        tracing::warn!("{problem}");
    }
    let mut malformed = None;
    let (cause, is_asked) = loop {
        tokio::select! {
            biased;
            effect = supervisor.next() => match effect {
                ControlEffect::Stop(cause) | ControlEffect::Force(cause) => break (cause, false),
                ControlEffect::Exit => break (Cause::new(CauseKind::Shutdown), false),
                ControlEffect::Nothing => {}
            },
            () = server.shutdown_requested() => {
                break (Cause::new(CauseKind::Shutdown).detail("the client asked for it"), true);
            }
            gone = &mut serving => {
                malformed = gone.ok().flatten();
                break (Cause::new(CauseKind::Disconnect).detail("the client is gone"), true);
            }
        }
    };
    if is_asked {
        supervisor.control.end(Instant::now());
    }
    let force = |_hurry: ControlEffect| {
        let request = StopRequest::new(Extent::Process, cause.clone());
        agent.stop(request).force();
    };
    let stopping = async {
        let _receipts = server.close(&cause).await;
        let short = || StopRequest::new(Extent::Process, cause.clone()).grace(FORCE_MAX / 10);
        let (agent, connections) = (agent.stop(short()), connections.stop(short()));
        drop(tokio::join!(agent.receipt(), connections.receipt()));
        system.close().await;
        // Who has asked for a stop from another terminal has its receipt before this process is gone.
        remote.answered().await;
    };
    let in_time = supervisor.wait_to_exit(stopping, force).await;
    if in_time.is_none() {
        tracing::warn!("the time is over: what still runs ends with the process");
    }
    if let Some(error) = malformed {
        let problem = format!("the client sent what cannot be read: {error}");
        return Err(CliError::failure(problem));
    }
    Ok(if is_asked {
        Exit::from(0)
    } else {
        exit(&supervisor)
    })
}

/// Right of the clients. On a port anybody on this machine could run commands without a token.
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

/// Reads flags and files, then starts the server. A signal ends it in every stage.
async fn open(
    args: CopilotArgs,
    access: ConnectionAccess,
    sessions: &OwnedSessions,
    host: &ProcessHost,
    supervisor: &mut Supervisor,
) -> Result<RunningCopilot, StartFailure> {
    let given = Given::of(host);
    let port = (!args.stdio).then_some(args.port);
    let options = CopilotOptions {
        version: env!("CARGO_PKG_VERSION").into(),
        unattended_max: args.unattended.0,
        unasked: unasked(&args),
    };
    let system_options = start::read(given.scopes.clone(), supervisor, move |_cx| {
        Ok(read(&args, given)?)
    })
    .await?;
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

/// Answer to a permission question that no client answers.
fn unasked(args: &CopilotArgs) -> PermissionAnswer {
    let answer = args.permissions.answer();
    answer.unwrap_or(PermissionAnswer::Unanswered)
}

fn read(args: &CopilotArgs, given: Given) -> Result<SystemOptions, CliError> {
    let project = project::trusted(&args.model, &given.folder, &given.voice)?;
    let mut config = config_of(&args.model, project.as_deref())?;
    args.permissions.set_mode(&mut config);
    config.deadlines.grace = args.grace.or(config.deadlines.grace);
    let store = ProcessHost::store(&args.store, config.store.path.clone())?;
    let prompter = FixedAnswer(unasked(args));
    let record = args.model.record.clone();
    let has_model = config.model.name.is_some();
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
    sessions.take_clients(system.registry(), ClientQuestions::AnybodyAnswers);
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
        address,
    })
}

fn exit(supervisor: &Supervisor) -> Exit {
    let control = &supervisor.control;
    Exit {
        code: control.exit_code(control.stop_reason()),
        output_wait: control.output_wait(Instant::now()),
    }
}
