//! The start of a command in stages: input, the store, MCP servers, the session. Each stage is work in a scope, so a
//! stop or the run's deadline can end it, even if a file or a disk hangs. The receipt of the stop names the stage.

mod continued;
pub(crate) mod default_model;
pub(crate) mod definitions;
mod in_use;
pub(crate) mod options;
pub(crate) mod project;
mod reporter;
mod stage;
mod trusted_project;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::SessionId;
use allstop_core::receipt::ItemKind;
use allstop_remote::{OwnedSessions, RemoteListener, SocketFolder};
use allstop_runtime::{
    OpenSession, QuestionRecipient, SessionSetup, StartErrorKind, StoreChoice, System,
    SystemOptions,
};
use allstop_scope::{RootOptions, Scope, WorkCx, WorkSpec};
use allstop_tools::mcp::McpState;
use allstop_tools::permission::ModeSwitch;

use crate::supervise::Supervisor;
pub(crate) use continued::{ContinuedWords, NamedSession};
pub(crate) use reporter::StartReporter;
pub(crate) use stage::{StartFailure, StartStage, begin};

/// Interval between two attempts to open a session that another process has open. Another process releases a session
/// without a notification.
const RELEASE_LOOK: Duration = Duration::from_millis(50);

/// Reads the input of a start on a separate thread. The read may hang: a file may be a pipe without a writer, or the
/// disk may hang.
pub(crate) async fn read<T: Send + 'static>(
    scopes: RootOptions,
    supervisor: &mut Supervisor,
    read: impl FnOnce(&WorkCx) -> Result<T, StartFailure> + Send + 'static,
) -> Result<T, StartFailure> {
    let scope = Scope::root("process", scopes);
    let spec = WorkSpec::new(ItemKind::Thread, "reading the configuration");
    let reading = scope.spawn_blocking(spec, move |cx| read(&cx));
    let mut stage = StartStage {
        supervisor,
        scope: &scope,
        // A stop has no grace here: the only work is the read, which needs no time for a clean end.
        grace: Some(Duration::ZERO),
    };
    stage.wait(reading, late_input).await?
}

/// Input of [`open`].
pub(crate) struct Opening {
    /// The command, for other terminals.
    pub(crate) command: &'static str,
    pub(crate) system: SystemOptions,
    /// The session to continue; `None` for a new session.
    pub(crate) session: Option<NamedSession>,
    pub(crate) asks: QuestionRecipient,
    pub(crate) reporter: StartReporter,
    /// Folder of the sockets of all processes. Another process may have the session open.
    pub(crate) sockets: SocketFolder,
}

/// A system with its open session.
pub(crate) struct Opened {
    pub(crate) system: Arc<System>,
    /// Socket for other terminals.
    pub(crate) listener: RemoteListener,
    pub(crate) open: OpenSession,
    /// Permission mode of the session.
    pub(crate) mode: ModeSwitch,
    /// Lines about the model and the folder of a continued session.
    pub(crate) continued: ContinuedWords,
}

/// Opens the store, starts the MCP servers and opens the session.
///
/// `hint` is called to show a line to the waiting user.
pub(crate) async fn open(
    opening: Opening,
    supervisor: &mut Supervisor,
    hint: impl Fn(&str),
) -> Result<Opened, StartFailure> {
    let Opening {
        command,
        system: options,
        session,
        asks,
        reporter,
        sockets,
    } = opening;
    let wait = session.as_ref().map_or(Duration::ZERO, NamedSession::wait);
    let configured_mode = options.config.permissions.mode;
    let root = options.root();
    // The socket exists from here on, so that other terminals can find a process whose start takes long.
    let owned = OwnedSessions::new(command, options.folder.clone(), options.scopes.clone());
    owned.set_store(store_file(&options.store));
    let listener = RemoteListener::listen(owned, &sockets);
    let mut stage = StartStage {
        supervisor,
        scope: &root,
        grace: None,
    };
    let opening = continued::open_system(root.clone(), options, session, reporter);
    let opening = begin(&root, "opening the store", opening);
    let (system, session) = stage.wait(opening, late_store).await?.ok_or_stopped()??;
    let (system, (id, continued)) = (Arc::new(system), session.unzip());
    if let Some(said) = starting_servers(&system) {
        hint(&said);
        let starting = Arc::clone(&system);
        let starting = begin(&root, "starting MCP servers", async move {
            starting.start_servers().await
        });
        let late = || late_servers(&system);
        stage.wait(starting, late).await?.ok_or_stopped()??;
    }
    let mode = ModeSwitch::new(configured_mode);
    let setup = SessionSetup::default().recipient(asks).mode(mode.clone());
    let opening = open_session(Arc::clone(&system), id, setup, wait, sockets);
    let opening = begin(&root, "opening the session", opening);
    let late = || {
        if wait.is_zero() {
            late_store()
        } else {
            late_session()
        }
    };
    let open = stage.wait(opening, late).await?.ok_or_stopped()??;
    Ok(Opened {
        system,
        listener,
        open,
        mode,
        continued: continued.unwrap_or_default(),
    })
}

/// File of a store that is not open yet.
fn store_file(store: &StoreChoice) -> Option<PathBuf> {
    match store {
        StoreChoice::Sqlite(path) => std::path::absolute(path).ok(),
        StoreChoice::Memory | StoreChoice::Nats(_) => None,
    }
}

/// Opens the session. If another process has the session open, waits for its release, for at most `wait`.
async fn open_session(
    system: Arc<System>,
    id: Option<SessionId>,
    setup: SessionSetup,
    wait: Duration,
    sockets: SocketFolder,
) -> Result<OpenSession, StartFailure> {
    let Some(id) = id else {
        return Ok(system.new_session(None, setup).await?);
    };
    // A time beyond the range of the clock has no end. The run's deadline and a signal still end the wait.
    let until = Instant::now().checked_add(wait);
    loop {
        match system.resume_session(id.clone(), setup.clone()).await {
            Err(error) if error.kind == StartErrorKind::SessionInUse => {
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(in_use::with_remedy(error, &id, &sockets).await.into());
                }
            }
            opened => return Ok(opened?),
        }
        tokio::time::sleep(RELEASE_LOOK).await;
    }
}

/// Hint that the MCP servers are being started; `None` if no server is configured.
fn starting_servers(system: &System) -> Option<String> {
    let servers = system.mcp().all().iter();
    let names: Vec<&str> = servers.map(|server| &**server.name()).collect();
    let said = || format!("starting MCP servers: {}", names.join(", "));
    (!names.is_empty()).then(said)
}

fn late_input() -> TurnError {
    TurnError {
        kind: TurnErrorKind::Invalid,
        message: "the run's deadline passed before the configuration and the prompts were read"
            .to_owned(),
        hint: Some("check for a file or a standard input without an end".to_owned()),
    }
}

pub(crate) fn late_store() -> TurnError {
    TurnError {
        kind: TurnErrorKind::Store,
        message: "the run's deadline passed before the store was open".to_owned(),
        hint: Some("another process may hold the store, or its disk may hang".to_owned()),
    }
}

fn late_session() -> TurnError {
    TurnError {
        kind: TurnErrorKind::Busy,
        message: "the run's deadline passed while another process had the session open".to_owned(),
        hint: Some("`allstop ps` names the process".to_owned()),
    }
}

/// Error for a deadline during the start of the MCP servers. It names the servers that were still starting.
fn late_servers(system: &System) -> TurnError {
    let servers = system.mcp().all().iter();
    let starting = servers.filter(|server| matches!(server.state(), McpState::Starting));
    let names: Vec<String> = starting
        .map(|server| format!("`{}`", server.name()))
        .collect();
    TurnError {
        kind: TurnErrorKind::Unavailable,
        message: format!(
            "the run's deadline passed before the MCP server {} answered",
            names.join(" and ")
        ),
        hint: Some(
            "set a shorter `handshake_timeout` in the server's section to run without the server"
                .to_owned(),
        ),
    }
}
