//! Choice of a chat's session: a new session, a session that the command line names, or a session that the user
//! selects.

use std::time::SystemTime;

use allstop_runtime::{Envelope, StartError, StoreChoice, open_store};
use allstop_scope::Scope;
use allstop_terminal::{InputReader, OutputQueue, TerminalDevice};

use crate::args::ChatArgs;
use crate::commands::sessions::pick::{PickedSession, SessionCandidate, pick};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::start::{StartFailure, StartStage, begin, late_store};
use crate::supervise::Supervisor;

/// Session of a chat.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChatSession<'a> {
    New,
    Named(&'a str),
    /// The user selects the session from a list on this terminal.
    Asked(&'a OutputQueue),
}

/// Session to resume.
#[derive(Debug)]
pub(super) struct ChosenSession {
    pub(super) name: String,
    /// Reader of the terminal on which the user chose. The reader holds the keys that were typed after the choice.
    pub(super) reader: Option<InputReader>,
}

impl<'a> ChatSession<'a> {
    /// # Errors
    /// If the user has to choose, but no terminal is available.
    pub(super) fn of(
        args: &'a ChatArgs,
        terminal: Option<&'a OutputQueue>,
    ) -> Result<Self, CliError> {
        match (args.session.named(), args.resume, terminal) {
            (Some(name), _, _) => Ok(Self::Named(name)),
            (None, false, _) => Ok(Self::New),
            (None, true, Some(terminal)) => Ok(Self::Asked(terminal)),
            (None, true, None) => {
                let message = "no session is named, and no terminal is available to choose one";
                Err(CliError::usage(message).hint(
                    "name a session: allstop sessions resume last, or a number or id from `allstop sessions list`",
                ))
            }
        }
    }

    /// Returns the session to resume; `None` if the chat begins a new session. Asks the user if necessary.
    pub(super) async fn name(
        self,
        store: &StoreChoice,
        host: &ProcessHost,
        supervisor: &mut Supervisor,
    ) -> Result<Option<ChosenSession>, StartFailure> {
        let queue = match self {
            Self::New => return Ok(None),
            Self::Named(name) => {
                let name = name.to_owned();
                return Ok(Some(ChosenSession { name, reader: None }));
            }
            Self::Asked(queue) => queue,
        };
        let candidates = candidates(store, host, supervisor).await?;
        let device = TerminalDevice::of_process();
        let (Some(device), false) = (device, candidates.is_empty()) else {
            let problem = CliError::usage("no session to continue");
            return Err(StartFailure::Usage(
                problem.hint("`allstop chat` starts a session"),
            ));
        };
        let chosen = pick(candidates, device, (queue, &host.terminal), supervisor).await?;
        let reason = supervisor.control.stop_reason();
        let given_up = || StartFailure::Ended(Box::new(Envelope::of_no_run(None, reason, None)));
        let named = |picked: PickedSession| ChosenSession {
            name: picked.id.to_string(),
            reader: Some(picked.reader),
        };
        chosen
            .map(|picked| Some(named(picked)))
            .ok_or_else(given_up)
    }
}

/// Reads the sessions of the store. A stop ends the wait for them, even if a disk hangs.
async fn candidates(
    store: &StoreChoice,
    host: &ProcessHost,
    supervisor: &mut Supervisor,
) -> Result<Vec<SessionCandidate>, StartFailure> {
    // The search for sessions must not create a store.
    if matches!(store, StoreChoice::Sqlite(path) if !path.exists()) {
        return Ok(Vec::new());
    }
    let scope = Scope::root("process", host.scopes());
    let mut stage = StartStage {
        supervisor,
        scope: &scope,
        grace: None,
    };
    let (store, root) = (store.clone(), scope.clone());
    let reading = begin(&scope, "reading the sessions", async move {
        let store = open_store(&store, &root).await?;
        let read = SessionCandidate::read_all(&**store.log(), SystemTime::now().into()).await;
        Ok(read.map_err(StartError::from)?)
    });
    stage.wait(reading, late_store).await?.ok_or_stopped()?
}
