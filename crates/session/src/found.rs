//! Background work of earlier processes: what of it still runs.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::BackgroundId;
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{How, ItemState};
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::turn::{BackgroundWork, SessionState};
use allstop_log::{SessionError, SessionStream};
use allstop_scope::process::{is_alive, survivor};
use tokio::time::Instant;

/// How long a process that was never let go may outlive its owner: its keeper kills it within milliseconds.
const KEEPER_KILL_MAX: Duration = Duration::from_secs(1);
/// How often it is looked at until then.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Background work whose end the log does not know: of an earlier process, or let go by this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundWork {
    /// Its id.
    pub id: BackgroundId,
    /// The command.
    pub name: Arc<str>,
    /// What it is.
    pub kind: BackgroundKind,
    /// Whether it was let go on purpose.
    pub detached: bool,
    /// The command's process.
    pub process: Option<ProcessIdentity>,
    /// Its keeper: SIGTERM to this one ends all of it.
    pub keeper: Option<ProcessIdentity>,
    /// What its processes carry in their environment.
    pub marker: Option<Arc<str>>,
    /// The file that its output goes to.
    pub output: Option<Arc<str>>,
    /// Whether its process or its keeper runs, or any that it has started. A pid that passed to another process is not taken for it.
    pub alive: bool,
}

impl FoundWork {
    pub(crate) fn of(work: &BackgroundWork) -> Self {
        let mut found = Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind,
            detached: work.attachment == Attachment::Detached,
            process: work.process.clone(),
            keeper: work.keeper.clone(),
            marker: work.marker.clone(),
            output: work.output.clone(),
            alive: false,
        };
        found.look();
        found
    }

    pub(crate) fn look(&mut self) {
        let left = self.process.as_ref().map(|main| {
            let marker = self.marker.as_deref();
            survivor(main, self.keeper.as_ref(), marker).is_some()
        });
        self.alive = left.unwrap_or_else(|| self.keeper.as_ref().is_some_and(is_alive));
    }

    /// The process whose end ends it, while it runs: its keeper, or else its main process.
    pub fn stop_pid(&self) -> Option<u32> {
        let known = self.keeper.iter().chain(&self.process);
        known
            .into_iter()
            .find(|known| is_alive(known))
            .map(|known| known.pid)
    }

    /// Whether it runs on only until its keeper has heard that the owner is gone.
    fn is_being_killed(&self) -> bool {
        self.alive && !self.detached && self.keeper.as_ref().is_some_and(is_alive)
    }
}

/// What a session's log says of background work that has no ending, compared with what runs. For a session that
/// another process has open this is that one's work.
pub fn found_work(state: &SessionState) -> Vec<FoundWork> {
    let without_end = state
        .background()
        .iter()
        .filter(|work| work.ended.is_none());
    without_end.map(FoundWork::of).collect()
}

/// Looks for the work of earlier processes, and records what is gone.
///
/// Nobody saw how it ended, so its outcome is `unknown`.
pub async fn take_stock(stream: &mut SessionStream) -> Result<Vec<FoundWork>, SessionError> {
    let mut found = found_work(stream.state());
    let until = Instant::now() + KEEPER_KILL_MAX;
    while found.iter().any(FoundWork::is_being_killed) && Instant::now() < until {
        tokio::time::sleep(LOOK_AGAIN).await;
        found.iter_mut().for_each(FoundWork::look);
    }
    let gone: Vec<SessionRecord> = found
        .iter()
        .filter(|work| !work.alive)
        .map(|work| SessionRecord::BackgroundEnded {
            id: work.id.clone(),
            state: ItemState::Unknown {
                how: How::Dropped,
                after_ms: None,
            },
            exit_code: None,
            usage: None,
        })
        .collect();
    if !gone.is_empty() {
        stream.append(gone).await?;
    }
    Ok(found)
}

/// The number of the next background id: no id is given twice in a session.
pub fn next_number(state: &SessionState) -> u64 {
    let numbers = state.background().iter().filter_map(|work| {
        let (_, number) = work.id.as_str().rsplit_once('_')?;
        number.parse::<u64>().ok()
    });
    numbers.max().map_or(1, |last| last.saturating_add(1))
}
