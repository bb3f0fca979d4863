//! Opening the store, the servers and the session of a run, and why nothing runs.

use std::time::{Duration, Instant};

use allstop_agent::{History, TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_runtime::{OpenSession, StartError, System, SystemOptions};
use allstop_tools::mcp::McpState;

use super::show::Show;
use crate::commands::sessions::resolve;
use crate::display::found_in_words;
use crate::problem::Problem;

/// Why nothing runs.
pub(super) enum NotStarted {
    /// No envelope: the caller did not ask for anything that could have one.
    Usage(Problem),
    Failed(StopReason, TurnError),
}

impl NotStarted {
    fn of(problem: Problem, kind: TurnErrorKind) -> Self {
        if problem.code == 2 {
            return Self::Usage(problem);
        }
        let Problem { message, hint, .. } = problem;
        let error = TurnError {
            kind,
            message,
            hint,
        };
        Self::Failed(StopReason::Error, error)
    }

    pub(super) fn store(problem: Problem) -> Self {
        Self::of(problem, TurnErrorKind::Store)
    }

    pub(super) fn input(problem: Problem) -> Self {
        Self::of(problem, TurnErrorKind::Invalid)
    }
}

impl From<StartError> for NotStarted {
    fn from(error: StartError) -> Self {
        if error.kind.is_usage() {
            return Self::Usage(error.into());
        }
        Self::Failed(StopReason::Error, error.into())
    }
}

/// Opens the store, starts the servers of tools and opens the session. The deadline of the run bounds this too: any of
/// them may hang.
pub(super) async fn open(
    options: SystemOptions,
    id: Option<String>,
    limit: Option<Duration>,
    show: &Show<'_>,
) -> Result<(System, OpenSession, History), NotStarted> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let system = in_time(deadline, System::open(options), late_store).await??;
    if let Some(said) = starting_servers(&system) {
        show.hint(&said);
        let started = in_time(deadline, system.start_servers(), || late_servers(&system));
        started.await??;
    }
    let opening = async {
        match id {
            Some(id) => {
                let id = resolve(&**system.log(), &id)
                    .await
                    .map_err(NotStarted::store)?;
                Ok(system.resume_session(id).await?)
            }
            None => Ok(system.new_session(None).await?),
        }
    };
    let opened: Result<_, NotStarted> = in_time(deadline, opening, late_store).await?;
    let (session, history) = opened?;
    Ok((system, session, history))
}

/// What is said before the servers of tools are started; `None` where there is none.
pub(crate) fn starting_servers(system: &System) -> Option<String> {
    let servers = system.mcp().all().iter();
    let names: Vec<&str> = servers.map(|server| &**server.name()).collect();
    let said = || format!("starting the servers of tools: {}", names.join(", "));
    (!names.is_empty()).then(said)
}

async fn in_time<T>(
    deadline: Option<Instant>,
    waited_for: impl Future<Output = T>,
    late: impl FnOnce() -> TurnError,
) -> Result<T, NotStarted> {
    let Some(at) = deadline else {
        return Ok(waited_for.await);
    };
    tokio::time::timeout_at(at.into(), waited_for)
        .await
        .map_err(|_elapsed| NotStarted::Failed(StopReason::Timeout, late()))
}

fn late_store() -> TurnError {
    TurnError {
        kind: TurnErrorKind::Store,
        message: "the store was not open when the run's deadline came".to_owned(),
        hint: Some("another process may hold it, or its disk hangs".to_owned()),
    }
}

/// Names the servers that were still starting.
fn late_servers(system: &System) -> TurnError {
    let servers = system.mcp().all().iter();
    let starting = servers.filter(|server| matches!(server.state(), McpState::Starting));
    let names: Vec<String> = starting
        .map(|server| format!("`{}`", server.name()))
        .collect();
    TurnError {
        kind: TurnErrorKind::Unavailable,
        message: format!(
            "the MCP server {} had not answered when the run's deadline came",
            names.join(" and ")
        ),
        hint: Some(
            "a shorter `handshake_timeout` in its section lets the run do without".to_owned(),
        ),
    }
}

/// Names what an earlier process left.
pub(super) fn tell_found(show: &Show<'_>, session: &OpenSession) {
    for found in &session.found {
        show.note(&found_in_words(found));
    }
    if !session.recovered.is_empty() {
        show.note(
            "an earlier run of this session ended without an ending: its turn was rolled back",
        );
    }
}
