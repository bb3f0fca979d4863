//! Background work that earlier Allstop processes have started, compared with the running processes of the machine.
//! Each command has a keeper: a small process that kills the command's processes if the Allstop process that owns the
//! command ends.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::ids::{BackgroundId, MessageId};
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{EndMethod, ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::turn::{RecordedWork, SessionState};
use allstop_log::{SessionError, SessionWriter};
use allstop_process::{
    ProcessHandle, ReattachError, is_alive, is_of_this_boot, is_out_of_view, survivor,
};
use allstop_scope::{Process, Scope, WorkSpec};
use tokio::time::Instant;

/// Maximum time that a process of attached work may outlive the Allstop process that owns the work. The keeper kills
/// the process within milliseconds.
const KEEPER_KILL_MAX: Duration = Duration::from_secs(1);
/// Pause between two checks during [`KEEPER_KILL_MAX`].
const CHECK_AGAIN: Duration = Duration::from_millis(5);

/// Background work without an end in the log: work of an earlier process, or work that this process detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedWork {
    /// Id of the work.
    pub id: BackgroundId,
    /// Command of the work.
    pub name: Arc<str>,
    /// Kind of the work.
    pub kind: BackgroundKind,
    /// Message of the turn that started the work. `None` for work that this process has detached.
    pub message: Option<MessageId>,
    /// True if the work was detached on purpose.
    pub detached: bool,
    /// Process of the command.
    pub process: Option<ProcessIdentity>,
    /// Keeper of the process. SIGTERM to the keeper ends all of the work.
    pub keeper: Option<ProcessIdentity>,
    /// Marker: a unique value in the environment of all processes of the work.
    pub marker: Option<Arc<str>>,
    /// File for the output of the work.
    pub output: Option<Arc<str>>,
    /// True if the process, its keeper or any process that the command has started runs. Also true if these processes
    /// are in another PID namespace. A process with a reused pid does not count.
    pub alive: bool,
    /// True if the work still runs, but its keeper will kill it because the Allstop process that owns the work is gone.
    being_killed: bool,
}

impl OrphanedWork {
    /// Work that this process runs or has just detached.
    pub(crate) fn running(work: &allstop_tools::BackgroundWork, detached: bool) -> Self {
        let handle = work.process().map(Process::handle);
        Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind(),
            message: None,
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

    /// Work as recorded in the log. The work counts as alive until [`OrphanedWork::check`] has checked it.
    pub(crate) fn recorded(work: &RecordedWork) -> Self {
        Self {
            id: work.id.clone(),
            name: Arc::clone(&work.name),
            kind: work.kind,
            message: work.message.clone(),
            detached: work.attachment == Attachment::Detached,
            process: work.process.clone(),
            keeper: work.keeper.clone(),
            marker: work.marker.clone(),
            output: work.output.clone(),
            alive: true,
            being_killed: false,
        }
    }

    /// Work as recorded in the log, compared with the running processes. Reads `/proc`, which may block.
    pub fn of_record(work: &RecordedWork) -> Self {
        let mut work = Self::recorded(work);
        work.check();
        work
    }

    fn known(&self) -> impl Iterator<Item = &ProcessIdentity> {
        self.keeper.iter().chain(&self.process)
    }

    /// True if a process of the work may still exist. Processes that were started before the last boot of the machine
    /// no longer exist.
    fn may_run(&self) -> bool {
        self.alive && self.known().any(is_of_this_boot)
    }

    /// True if the processes are in another PID namespace. The work may run, but this process can neither check nor
    /// stop the work.
    pub fn is_out_of_view(&self) -> bool {
        self.alive && self.known().any(is_out_of_view)
    }

    /// Checks the work by reading `/proc`, which may hang. Never call this on a thread that a caller awaits without a
    /// time limit.
    pub(crate) fn check(&mut self) {
        if self.is_out_of_view() {
            return;
        }
        let has_survivor = self.process.as_ref().map(|main| {
            let marker = self.marker.as_deref();
            survivor(main, self.keeper.as_ref(), marker).is_some()
        });
        let keeper_alive = self.keeper.as_ref().is_some_and(is_alive);
        self.alive = has_survivor.unwrap_or(keeper_alive);
        self.being_killed = self.alive && !self.detached && keeper_alive;
    }

    /// Receipt item for work that runs, or that may run in another PID namespace, which this process cannot see.
    pub fn running_item(&self) -> ReceiptItem {
        let out_of_view = self.is_out_of_view();
        let state = if out_of_view {
            ItemState::Unreachable {
                why: NotStoppedReason::WatcherGone,
            }
        } else {
            ItemState::StillRunning {
                why: NotStoppedReason::ProcessesLeft,
            }
        };
        let (id, name) = (self.id.as_str(), Arc::clone(&self.name));
        let mut item = ReceiptItem::new(ItemKind::Background, id, name, state);
        item.note = out_of_view.then(|| ReattachError::OutOfView.to_string().into());
        item
    }

    /// Record of the end of this work if it is gone. The outcome is `unknown`.
    pub fn lost(&self) -> SessionRecord {
        end_of_lost(self.id.clone())
    }

    /// Pid of the process to end in order to end the work: the keeper if it runs, or else the main process.
    pub fn stop_pid(&self) -> Option<u32> {
        Some(self.known().find(|known| is_alive(known))?.pid)
    }
}

/// Returns the background work that has no recorded end in a session's log. Compares this work with the running
/// processes. If another process has the session open, the result is the work of that process. Reads `/proc`, which may
/// block.
pub fn scan_orphans(state: &SessionState) -> Vec<OrphanedWork> {
    let works = state.background().iter();
    let works = works.filter(|work| work.ended.is_none());
    works.map(OrphanedWork::of_record).collect()
}

fn without_end(state: &SessionState) -> Vec<OrphanedWork> {
    let works = state.background().iter();
    let works = works.filter(|work| work.ended.is_none());
    works.map(OrphanedWork::recorded).collect()
}

/// Checks on a separate thread whether the work still runs. If the check is impossible, the state of the work does not
/// change.
///
/// # Cancel safety
/// Cancel safe: dropping the future only discards the result of the check.
pub(crate) async fn check_alive(scope: &Scope, mut found: Vec<OrphanedWork>) -> Vec<OrphanedWork> {
    for work in &mut found {
        work.alive = work.may_run();
    }
    if found.iter().all(|work| !work.alive) {
        return found;
    }
    let spec = WorkSpec::new(ItemKind::Thread, "checking earlier background work");
    let mut checked = found.clone();
    let checking = scope.spawn_blocking(spec, move |_| {
        let alive = checked.iter_mut().filter(|work| work.alive);
        alive.for_each(OrphanedWork::check);
        checked
    });
    match checking {
        Ok(checking) => checking.await.unwrap_or(found),
        Err(_stopped) => found,
    }
}

/// Waits, for at most one second, until the keepers have killed the attached work of ended processes. Then returns the
/// background work that has no recorded end in a session's log, compared with the running processes. Reads `/proc`, on
/// threads of `scope`.
///
/// # Cancel safety
/// Cancel safe: dropping the future only discards the result of the check.
pub async fn settled_work(state: &SessionState, scope: &Scope) -> Vec<OrphanedWork> {
    let mut found = check_alive(scope, without_end(state)).await;
    let until = Instant::now() + KEEPER_KILL_MAX;
    // A stopped scope starts no more checks.
    while found.iter().any(|work| work.being_killed)
        && Instant::now() < until
        && !scope.is_stopped()
    {
        tokio::time::sleep(CHECK_AGAIN).await;
        found = check_alive(scope, found).await;
    }
    found
}

/// Running work of earlier processes, except work that a keeper is killing. Reads `/proc`, on a thread of `scope`.
///
/// # Cancel safety
/// Cancel safe: dropping the future only discards the result of the check.
pub(crate) async fn running_orphans(state: &SessionState, scope: &Scope) -> Vec<OrphanedWork> {
    let mut found = check_alive(scope, without_end(state)).await;
    found.retain(|work| work.alive && !work.being_killed);
    found
}

/// Records the end of work that is gone. The outcome is `unknown`, since this process did not observe the end.
pub(crate) async fn record_lost_work(
    writer: &mut SessionWriter,
    lost: Vec<BackgroundId>,
) -> Result<(), SessionError> {
    let ends: Vec<SessionRecord> = lost.into_iter().map(end_of_lost).collect();
    if ends.is_empty() {
        return Ok(());
    }
    writer.append(ends).await
}

fn end_of_lost(id: BackgroundId) -> SessionRecord {
    SessionRecord::BackgroundEnded {
        id,
        state: ItemState::Unknown {
            how: EndMethod::Dropped,
            after_ms: None,
        },
        exit_code: None,
        usage: None,
        answer: None,
    }
}

/// Number of the next background id: ids are unique within a session.
pub(crate) fn next_number(state: &SessionState) -> u64 {
    let numbers = state.background().iter().filter_map(|work| {
        let (_, number) = work.id.as_str().rsplit_once('_')?;
        number.parse::<u64>().ok()
    });
    numbers.max().map_or(1, |last| last.saturating_add(1))
}
