//! The owner of background work.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::ids::BackgroundId;
use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::work::BackgroundWork;

/// Maximum number of ended units of work that a registry keeps with their output. A model hardly ever asks for the
/// output of older work. Each unit holds up to 56 KiB of output, so all units together stay below a megabyte. The
/// output files of older work remain.
pub const ENDED_WORKS_MAX: usize = 16;

/// The owner of background work: a session, or a [`BackgroundRegistry`].
pub trait BackgroundHost: Send + Sync + fmt::Debug {
    /// Scope in which background work runs. A stop of the session includes this scope, but a stop of a turn does not.
    fn scope(&self) -> Scope;

    /// Creates an id that no other work of the session has or has had.
    fn new_id(&self) -> BackgroundId;

    /// Takes over work. From now on, the work runs in a separate scope below [`BackgroundHost::scope`]. Must not block.
    fn adopt(&self, work: Arc<BackgroundWork>);

    /// All work in the order of its start, including ended work whose output can still be read.
    fn works(&self) -> Vec<Arc<BackgroundWork>>;

    /// Counter of starts, ends and detachments. The work itself, not the host, increments the counter.
    fn changes(&self) -> &BackgroundChanges;
}

/// Counter of changes of background work: starts, ends and detachments. Clones share one counter.
#[derive(Debug, Clone, Default)]
pub struct BackgroundChanges(watch::Sender<u64>);

impl BackgroundChanges {
    /// Subscribes to the counter. The subscriber should read the state of all work again after each change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    pub(super) fn increment(&self) {
        self.0.send_modify(|generation| *generation += 1);
    }
}

/// A host that only keeps a list of work. Used by programs without a session, and as a part of other hosts.
#[derive(Debug)]
pub struct BackgroundRegistry {
    scope: Mutex<Scope>,
    next: AtomicU64,
    works: Mutex<VecDeque<Arc<BackgroundWork>>>,
    changes: BackgroundChanges,
}

impl BackgroundRegistry {
    /// Creates a registry whose work runs below `scope`, with ids from `bg_1`.
    pub fn new(scope: Scope) -> Self {
        Self::starting_at(scope, 1)
    }

    /// Creates a registry for a resumed session, with ids from `bg_<first>`.
    pub fn starting_at(scope: Scope, first: u64) -> Self {
        Self {
            scope: Mutex::new(scope),
            next: AtomicU64::new(first),
            works: Mutex::default(),
            changes: BackgroundChanges::default(),
        }
    }

    /// Runs new work below `scope` from now on. Needed after a stop of the old scope, which then accepts no more work.
    /// Work that still runs in the old scope stays there.
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

    fn adopt(&self, work: Arc<BackgroundWork>) {
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
