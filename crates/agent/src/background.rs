//! The background work of one session, as its run sees it.
//!
//! Starts and ends are noticed when records are written: whatever has changed since goes into the same append.

use std::sync::Arc;

use allstop_core::TurnNumber;
use allstop_core::ids::BackgroundId;
use allstop_core::record::SessionRecord;
use allstop_scope::process::ProcessHandle;
use allstop_scope::{Process, Scope};
use allstop_tools::{BackgroundChanges, BackgroundHost, BackgroundRegistry, BackgroundWork};
use parking_lot::Mutex;

/// The background work of one session.
#[derive(Debug)]
pub struct Background {
    registry: BackgroundRegistry,
    /// Of what the log does not know everything yet, and whether it knows of the start. By itself: the registry
    /// forgets ended work.
    unrecorded: Mutex<Vec<(Arc<BackgroundWork>, Known)>>,
}

/// What the log knows of work that has not ended there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Known {
    Nothing,
    Start,
}

impl Background {
    /// Work runs below this scope, which no turn's stop covers. `first` is the number of the first id.
    pub fn new(scope: Scope, first: u64) -> Arc<Self> {
        Arc::new(Self {
            registry: BackgroundRegistry::starting_at(scope, first),
            unrecorded: Mutex::default(),
        })
    }

    /// From now on work runs below this scope: the old one was stopped.
    pub fn reopen(&self, scope: Scope) {
        self.registry.reopen(scope);
    }

    /// What has happened since the last call, as records. `turn` is the one that runs.
    pub fn take_records(&self, turn: TurnNumber) -> Vec<SessionRecord> {
        let mut records = Vec::new();
        self.unrecorded.lock().retain_mut(|(work, known)| {
            if *known == Known::Nothing {
                *known = Known::Start;
                records.push(started(work, turn));
            }
            let end = work.end();
            // Work that was let go has no end here: the next start finds it.
            let goes_on = end.is_none() && !work.is_let_go();
            records.extend(end.map(|end| SessionRecord::BackgroundEnded {
                id: work.id.clone(),
                state: end.state,
                exit_code: end.exit_code,
            }));
            goes_on
        });
        records
    }

    /// The work that runs.
    pub fn running(&self) -> Vec<Arc<BackgroundWork>> {
        let mut works = self.registry.works();
        works.retain(|work| work.is_running());
        works
    }
}

impl BackgroundHost for Background {
    fn scope(&self) -> Scope {
        self.registry.scope()
    }

    fn new_id(&self) -> BackgroundId {
        self.registry.new_id()
    }

    fn started(&self, work: Arc<BackgroundWork>) {
        self.unrecorded
            .lock()
            .push((Arc::clone(&work), Known::Nothing));
        self.registry.started(work);
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
        output: work
            .output_file
            .as_ref()
            .map(|path| path.to_string_lossy().into()),
    }
}
