//! Background work of earlier processes: what of it still runs.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::BackgroundId;
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{How, ItemKind, ItemState};
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::turn::{BackgroundWork, SessionState};
use allstop_log::{SessionError, SessionStream};
use allstop_scope::process::{ProcessHandle, is_alive, is_of_this_boot, survivor};
use allstop_scope::{Process, Scope, WorkSpec};
use tokio::time::Instant;

/// Longest time that a process that was never let go may outlive its owner: its keeper kills it within milliseconds.
const KEEPER_KILL_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks at it until then.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Background work whose end the log does not know: of an earlier process, or let go by this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundWork {
    /// Its id.
    pub id: BackgroundId,
    /// The command.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: BackgroundKind,
    /// Whether it was let go on purpose.
    pub detached: bool,
    /// The command's process.
    pub process: Option<ProcessIdentity>,
    /// Its keeper: SIGTERM to this one ends all of it.
    pub keeper: Option<ProcessIdentity>,
    /// Marker that its processes carry in their environment.
    pub marker: Option<Arc<str>>,
    /// The file that its output goes to.
    pub output: Option<Arc<str>>,
    /// Whether its process or its keeper runs, or any that it has started. A pid that passed to another process is not taken for it.
    pub alive: bool,
    /// Whether it runs on only until its keeper has heard that the owner is gone.
    being_killed: bool,
}

impl FoundWork {
    /// Work that this process runs, or has just detached.
    pub(crate) fn running(work: &allstop_tools::BackgroundWork, detached: bool) -> Self {
        let handle = work.process().map(Process::handle);
        Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind(),
            detached,
            process: handle.and_then(ProcessHandle::identity),
            keeper: handle.and_then(|handle| handle.keeper_identity().cloned()),
            marker: handle.map(|handle| Arc::clone(handle.marker())),
            output: work
                .output_file
                .as_ref()
                .map(|path| path.to_string_lossy().into()),
            alive: true,
            being_killed: false,
        }
    }

    /// Work as the log names it. It is taken for alive until [`FoundWork::look`] says otherwise.
    fn recorded(work: &BackgroundWork) -> Self {
        Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind,
            detached: work.attachment == Attachment::Detached,
            process: work.process.clone(),
            keeper: work.keeper.clone(),
            marker: work.marker.clone(),
            output: work.output.clone(),
            alive: true,
            being_killed: false,
        }
    }

    /// Whether any of its processes could run at all.
    fn may_run(&self) -> bool {
        let mut known = self.process.iter().chain(&self.keeper);
        self.alive && known.any(is_of_this_boot)
    }

    /// Looks in `/proc`, which may hang: never on a thread that somebody waits for without a limit.
    pub(crate) fn look(&mut self) {
        let left = self.process.as_ref().map(|main| {
            let marker = self.marker.as_deref();
            survivor(main, self.keeper.as_ref(), marker).is_some()
        });
        let keeper_alive = self.keeper.as_ref().is_some_and(is_alive);
        self.alive = left.unwrap_or(keeper_alive);
        self.being_killed = self.alive && !self.detached && keeper_alive;
    }

    /// The process whose end ends it, while it runs: its keeper, or else its main process.
    pub fn stop_pid(&self) -> Option<u32> {
        let mut known = self.keeper.iter().chain(&self.process);
        Some(known.find(|known| is_alive(known))?.pid)
    }
}

/// Background work without an ending in a session's log, compared with what runs. For a session that another process
/// has open this is that one's work. Looks in `/proc`, which may block.
pub fn found_work(state: &SessionState) -> Vec<FoundWork> {
    let mut found = without_end(state);
    found.iter_mut().for_each(FoundWork::look);
    found
}

fn without_end(state: &SessionState) -> Vec<FoundWork> {
    let works = state.background().iter();
    let works = works.filter(|work| work.ended.is_none());
    works.map(FoundWork::recorded).collect()
}

/// Looks whether these still run, on a thread that nobody has to wait for. Where nobody can look they stay as they were.
///
/// # Cancel safety
/// Cancel safe: then nothing is known of them.
pub(crate) async fn look(scope: &Scope, mut found: Vec<FoundWork>) -> Vec<FoundWork> {
    for work in &mut found {
        work.alive = work.may_run();
    }
    if found.iter().all(|work| !work.alive) {
        return found;
    }
    let spec = WorkSpec::new(ItemKind::Thread, "looking for earlier background work");
    let mut looked = found.clone();
    let looking = scope.spawn_blocking(spec, move |_| {
        let alive = looked.iter_mut().filter(|work| work.alive);
        alive.for_each(FoundWork::look);
        looked
    });
    match looking {
        Ok(looking) => looking.await.unwrap_or(found),
        Err(_stopped) => found,
    }
}

/// Background work without an ending in a session's log, compared with what runs once the keepers have killed what was
/// never detached. Looks in `/proc`, on threads of `scope` that nobody has to wait for.
///
/// # Cancel safety
/// Cancel safe: then nothing is known of it.
pub async fn settled_work(state: &SessionState, scope: &Scope) -> Vec<FoundWork> {
    let mut found = look(scope, without_end(state)).await;
    let until = Instant::now() + KEEPER_KILL_MAX;
    while found.iter().any(|work| work.being_killed) && Instant::now() < until {
        tokio::time::sleep(LOOK_AGAIN).await;
        found = look(scope, found).await;
    }
    found
}

/// Looks for the work of earlier processes, and records what is gone.
///
/// Nobody saw how it ended, so its outcome is `unknown`.
pub(crate) async fn take_stock(
    stream: &mut SessionStream,
    scope: &Scope,
) -> Result<Vec<FoundWork>, SessionError> {
    let found = settled_work(stream.state(), scope).await;
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
pub(crate) fn next_number(state: &SessionState) -> u64 {
    let numbers = state.background().iter().filter_map(|work| {
        let (_, number) = work.id.as_str().rsplit_once('_')?;
        number.parse::<u64>().ok()
    });
    numbers.max().map_or(1, |last| last.saturating_add(1))
}
