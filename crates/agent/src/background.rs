//! Background work of one session, for the runs of that session. Orphaned work is background work of an earlier process
//! of the session that still runs.
//!
//! Starts and ends of work are recorded with the next append: each append includes the changes since the previous
//! append.

use std::fmt;
use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ReceiptItem;
use allstop_core::record::SessionRecord;
use allstop_core::{TurnNumber, Usage};
use allstop_process::ProcessHandle;
use allstop_scope::{Process, Scope};
use allstop_tools::{BackgroundChanges, BackgroundHost, BackgroundRegistry, BackgroundWork};
use parking_lot::Mutex;

use crate::notes::end_of;

/// Callback that lists the orphaned work, as found at the last check.
pub type OrphanItems = Box<dyn Fn() -> Vec<ReceiptItem> + Send + Sync>;

/// Background work of one session.
pub struct SessionBackground {
    registry: BackgroundRegistry,
    /// Parent scope of all work. The registry starts new work in this scope or in a scope below it.
    whole: Mutex<Scope>,
    /// Work whose start or end is not yet recorded. Stored separately, because the registry forgets work that has
    /// ended.
    unrecorded: Mutex<Vec<(Arc<BackgroundWork>, RecordedPart)>>,
    /// Records that were taken for an append but could not be written.
    unwritten: Mutex<Vec<SessionRecord>>,
    left: OrphanItems,
}

impl fmt::Debug for SessionBackground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBackground")
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}

/// Part of the work's lifecycle that is recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RecordedPart {
    Nothing,
    Start,
}

impl SessionBackground {
    /// Creates the background work of a session. Work runs below `scope`, which no stop of a turn covers. `first` is
    /// the number of the first id. `left` lists the orphaned work. Receipts of turns list orphaned work as outside the
    /// extent of the stop.
    pub fn new(scope: Scope, first: u64, left: OrphanItems) -> Arc<Self> {
        Arc::new(Self {
            whole: Mutex::new(scope.clone()),
            registry: BackgroundRegistry::starting_at(scope, first),
            unrecorded: Mutex::default(),
            unwritten: Mutex::default(),
            left,
        })
    }

    /// After the old scope was stopped, sets a new scope for the work that starts from now on.
    pub fn reopen(&self, scope: Scope) {
        *self.whole.lock() = scope.clone();
        self.registry.reopen(scope);
    }

    /// From now on, starts work in `part`, which is a scope below the background scope.
    pub fn start_in(&self, part: Scope) {
        self.registry.reopen(part);
    }

    /// Parent of all background work.
    pub(crate) fn whole(&self) -> Scope {
        self.whole.lock().clone()
    }

    /// Takes the changes since the last call of this method, as records. `turn` is the running turn.
    pub fn take_records(&self, turn: TurnNumber) -> Vec<SessionRecord> {
        let mut records = std::mem::take(&mut *self.unwritten.lock());
        self.unrecorded.lock().retain_mut(|(work, recorded)| {
            if *recorded == RecordedPart::Nothing {
                *recorded = RecordedPart::Start;
                records.push(started(work, turn));
            }
            let end = work.end();
            // The end of detached work is unknown here: the next start of the session determines the end.
            let goes_on = end.is_none() && !work.is_detached();
            records.extend(end.map(|end| SessionRecord::BackgroundEnded {
                id: work.id.clone(),
                state: end.state,
                exit_code: end.exit_code,
                usage: Some(work.metered()).filter(|usage| *usage != Usage::default()),
                answer: end.answer.map(|answer| end_of(&answer).0.into()),
            }));
            goes_on
        });
        records
    }

    /// Takes back records of background work, and receipts, that could not be written between two turns. The next
    /// append includes these records.
    pub fn give_back(&self, unwritten: Vec<SessionRecord>) {
        let of_background = unwritten.into_iter().filter(|record| {
            matches!(
                record,
                SessionRecord::BackgroundStarted { .. }
                    | SessionRecord::BackgroundEnded { .. }
                    | SessionRecord::Stopped { .. }
            )
        });
        self.unwritten.lock().extend(of_background);
    }

    /// Returns the orphaned work.
    pub(crate) fn left(&self) -> Vec<ReceiptItem> {
        (self.left)()
    }

    /// Returns the running work.
    pub fn running(&self) -> Vec<Arc<BackgroundWork>> {
        let mut works = self.registry.works();
        works.retain(|work| work.is_running());
        works
    }
}

impl BackgroundHost for SessionBackground {
    fn scope(&self) -> Scope {
        self.registry.scope()
    }

    fn new_id(&self) -> BackgroundId {
        self.registry.new_id()
    }

    fn adopt(&self, work: Arc<BackgroundWork>) {
        self.unrecorded
            .lock()
            .push((Arc::clone(&work), RecordedPart::Nothing));
        self.registry.adopt(work);
    }

    fn works(&self) -> Vec<Arc<BackgroundWork>> {
        self.registry.works()
    }

    fn changes(&self) -> &BackgroundChanges {
        self.registry.changes()
    }
}

fn started(work: &BackgroundWork, turn: TurnNumber) -> SessionRecord {
    let handle = work.process().map(Process::handle);
    SessionRecord::BackgroundStarted {
        id: work.id.clone(),
        turn,
        call_id: work.call_id.clone(),
        name: Arc::clone(&work.name),
        kind: work.kind(),
        attachment: work.attachment(),
        process: handle.and_then(ProcessHandle::identity),
        keeper: handle.and_then(|handle| handle.keeper_identity().cloned()),
        marker: handle.map(|handle| Arc::clone(handle.marker())),
        output: work
            .output_file
            .as_ref()
            .map(|path| path.to_string_lossy().into()),
    }
}

#[cfg(test)]
mod tests {
    use allstop_scope::{RootOptions, ScopeOptions};
    use allstop_tools::background::ENDED_WORKS_MAX;
    use allstop_tools::{BoundedOutput, OutputFolder, OutputLimits, TaskSpec, start_task};

    use super::*;

    fn words(records: &[SessionRecord]) -> Vec<String> {
        let word = |record: &SessionRecord| match record {
            SessionRecord::BackgroundStarted { id, kind, .. } => format!("{id} {kind:?}"),
            SessionRecord::BackgroundEnded { id, state, .. } => format!("{id} {}", state.as_str()),
            other => panic!("not of background work: {other:?}"),
        };
        records.iter().map(word).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_start_and_end_is_recorded_once_even_of_forgotten_work() {
        let root = Scope::root("session", RootOptions::single_runtime());
        let jobs = root.child("background", ScopeOptions::default());
        let background =
            SessionBackground::new(jobs.expect("nothing is stopped"), 1, Box::new(Vec::new));
        let start = |name: &'static str| {
            let folder = Arc::new(OutputFolder::new("/nowhere"));
            let spec = TaskSpec::new(
                "call_1",
                background.scope(),
                name,
                BoundedOutput::new(OutputLimits::default(), folder),
                allstop_tools::CallLink::unwatched("call".into()),
            );
            let task = move |_cx| async move {
                match name {
                    "ends" => Ok(String::new()),
                    _ => std::future::pending().await,
                }
            };
            start_task(&*background, spec, task).expect("nothing is stopped")
        };
        let runs = start("runs");
        let first = background.take_records(TurnNumber(1));
        assert_eq!(words(&first), ["bg_1 Agent"]);
        for _ in 0..ENDED_WORKS_MAX + 3 {
            start("ends").ended().await;
        }
        let later = words(&background.take_records(TurnNumber(1)));
        assert_eq!(later.len(), 2 * (ENDED_WORKS_MAX + 3));
        assert_eq!(later[..2], ["bg_2 Agent", "bg_2 finished"]);
        assert_eq!(background.take_records(TurnNumber(1)), []);
        let stop = runs.stop(allstop_core::Cause::new(allstop_core::CauseKind::User));
        drop(stop.await);
        let last = background.take_records(TurnNumber(2));
        assert_eq!(words(&last), ["bg_1 stopped"]);
        background.give_back(last);
        let again = background.take_records(TurnNumber(2));
        assert_eq!(words(&again), ["bg_1 stopped"], "the store had refused it");
        assert_eq!(background.take_records(TurnNumber(2)), []);
    }
}
