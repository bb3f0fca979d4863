//! Opening the store and the session of a run, and why nothing runs.

use std::time::Duration;

use allstop_agent::{History, TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_runtime::{OpenSession, StartError, System, SystemOptions};

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

/// Opens the store and the session. The deadline of the run bounds this too: a store may hang.
pub(super) async fn open(
    options: SystemOptions,
    id: Option<String>,
    limit: Option<Duration>,
) -> Result<(System, OpenSession, History), NotStarted> {
    let opening = async {
        let system = System::open(options).await?;
        let (session, history) = match id {
            Some(id) => {
                let id = resolve(&**system.log(), &id)
                    .await
                    .map_err(NotStarted::store)?;
                system.resume_session(id).await?
            }
            None => system.new_session(None).await?,
        };
        Ok((system, session, history))
    };
    let Some(limit) = limit else {
        return opening.await;
    };
    let late = |_elapsed| {
        let error = TurnError {
            kind: TurnErrorKind::Store,
            message: "the store was not open when the run's deadline came".to_owned(),
            hint: Some("another process may hold it, or its disk hangs".to_owned()),
        };
        Err(NotStarted::Failed(StopReason::Timeout, error))
    };
    tokio::time::timeout(limit, opening)
        .await
        .unwrap_or_else(late)
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
