//! Who owns background work.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::ids::BackgroundId;
use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::work::BackgroundWork;

/// Ended work that a registry still knows, with its output: about as many as a model looks back at. Each holds up to
/// 56 KiB of output, so together they stay below a megabyte. Of older work the output file remains.
pub const ENDED_WORKS_MAX: usize = 16;

/// The owner of a session, as far as background work is concerned.
pub trait BackgroundHost: Send + Sync + fmt::Debug {
    /// The scope that background work runs in: a stop of the turn does not cover it, one of the session does.
    fn scope(&self) -> Scope;

    /// An id that no other background work of the session has or had.
    fn new_id(&self) -> BackgroundId;

    /// Takes work that runs from now on in a scope of its own below [`BackgroundHost::scope`]. Must not block.
    fn started(&self, work: Arc<BackgroundWork>);

    /// What was started, in order, ended work included for as long as its output may be asked for.
    fn works(&self) -> Vec<Arc<BackgroundWork>>;

    /// What says that work has started, ended or been let go. Work tells it by itself.
    fn changes(&self) -> &BackgroundChanges;
}

/// Counts changes of background work: each start, end and letting go. Clones are the same count.
#[derive(Debug, Clone, Default)]
pub struct BackgroundChanges(watch::Sender<u64>);

impl BackgroundChanges {
    /// The count, to wait for: whoever sees it change looks at all work anew.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    pub(super) fn one_more(&self) {
        self.0.send_modify(|generation| *generation += 1);
    }
}

/// A host that only remembers: for programs without a session, and to build a host on.
#[derive(Debug)]
pub struct BackgroundRegistry {
    scope: Mutex<Scope>,
    next: AtomicU64,
    works: Mutex<VecDeque<Arc<BackgroundWork>>>,
    changes: BackgroundChanges,
}

impl BackgroundRegistry {
    /// Work runs below this scope; ids start at `bg_1`.
    pub fn new(scope: Scope) -> Self {
        Self::starting_at(scope, 1)
    }

    /// The same, for a session that goes on: ids start at `bg_<first>`.
    pub fn starting_at(scope: Scope, first: u64) -> Self {
        Self {
            scope: Mutex::new(scope),
            next: AtomicU64::new(first),
            works: Mutex::default(),
            changes: BackgroundChanges::default(),
        }
    }

    /// From now on work runs below this scope: the old one was stopped, and takes nothing any more. What still runs
    /// there stays there.
    pub fn reopen(&self, scope: Scope) {
        *self.scope.lock() = scope;
    }
}

impl BackgroundHost for BackgroundRegistry {
    fn scope(&self) -> Scope {
        self.scope.lock().clone()
    }

    fn new_id(&self) -> BackgroundId {
        format!("bg_{}", self.next.fetch_add(1, Ordering::Relaxed)).into()
    }

    fn started(&self, work: Arc<BackgroundWork>) {
        let mut works = self.works.lock();
        works.push_back(work);
        let mut too_many = works
            .iter()
            .filter(|work| !work.is_running())
            .count()
            .saturating_sub(ENDED_WORKS_MAX);
        works.retain(|work| {
            let forget = too_many > 0 && !work.is_running();
            too_many -= usize::from(forget);
            !forget
        });
    }

    fn works(&self) -> Vec<Arc<BackgroundWork>> {
        self.works.lock().iter().cloned().collect()
    }

    fn changes(&self) -> &BackgroundChanges {
        &self.changes
    }
}
