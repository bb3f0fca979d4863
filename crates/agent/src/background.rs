//! The background work of one session, as its run sees it.
//!
//! Starts and ends are noticed when records are written: whatever has changed since goes into the same append.

use std::sync::Arc;

use allstop_core::TurnNumber;
use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{Evidence, ItemState};
use allstop_core::record::SessionRecord;
use allstop_scope::Scope;
use allstop_scope::process::ExitInfo;
use allstop_tools::{BackgroundHost, BackgroundRegistry, BackgroundWork};
use parking_lot::Mutex;

/// The background work of one session.
#[derive(Debug)]
pub struct Background {
    registry: BackgroundRegistry,
    /// What the log says of each work, in the order of the registry.
    recorded: Mutex<Vec<Recorded>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Recorded {
    Running,
    Over,
}

impl Background {
    /// Work runs below this scope, which no turn's stop covers. `first` is the number of the first id.
    pub fn new(scope: Scope, first: u64) -> Arc<Self> {
        Arc::new(Self {
            registry: BackgroundRegistry::starting_at(scope, first),
            recorded: Mutex::default(),
        })
    }

    /// What has happened since the last call, as records. `turn` is the one that runs.
    pub fn take_records(&self, turn: TurnNumber) -> Vec<SessionRecord> {
        let mut recorded = self.recorded.lock();
        let mut records = Vec::new();
        for (at, work) in self.registry.works().iter().enumerate() {
            if recorded.len() <= at {
                recorded.push(Recorded::Running);
                records.push(started(work, turn));
            }
            let Some(state) = recorded.get_mut(at) else {
                continue;
            };
            if *state == Recorded::Running
                && let Some(ended) = ended(work)
            {
                *state = Recorded::Over;
                records.push(ended);
            }
        }
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
        self.registry.started(work);
    }

    fn works(&self) -> Vec<Arc<BackgroundWork>> {
        self.registry.works()
    }
}

fn started(work: &BackgroundWork, turn: TurnNumber) -> SessionRecord {
    let handle = work.process.handle();
    SessionRecord::BackgroundStarted {
        id: work.id.clone(),
        turn,
        call_id: work.call_id.clone(),
        name: Arc::clone(&work.name),
        kind: allstop_core::record::BackgroundKind::Shell,
        attachment: work.attachment,
        process: handle.identity(),
        keeper: handle.keeper_identity().cloned(),
        output: work
            .output_file
            .as_ref()
            .map(|path| path.to_string_lossy().into()),
    }
}

fn ended(work: &BackgroundWork) -> Option<SessionRecord> {
    let handle = work.process.handle();
    let status = handle.status();
    let status = status.borrow();
    let over = status.empty.is_some() || status.failed.is_some();
    if !over {
        return None;
    }
    let state = match (handle.strongest_signal(), status.empty) {
        (Some(how), Some(verified)) => ItemState::Stopped {
            how,
            evidence: Evidence::verified(verified),
            after_ms: handle.stopped_after().unwrap_or_default().into(),
        },
        _ => ItemState::Finished { after_ms: None },
    };
    Some(SessionRecord::BackgroundEnded {
        id: work.id.clone(),
        state,
        exit_code: match status.exited {
            Some(ExitInfo::Code(code)) => Some(code),
            _ => None,
        },
    })
}
