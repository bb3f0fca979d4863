//! Who owns background work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::ids::BackgroundId;
use allstop_scope::Scope;
use parking_lot::Mutex;

use super::work::BackgroundWork;

/// The owner of a session, as far as background work is concerned.
pub trait BackgroundHost: Send + Sync + fmt::Debug {
    /// The scope that background work runs in: a stop of the turn does not cover it, one of the session does.
    fn scope(&self) -> Scope;

    /// An id that no other background work of the session has or had.
    fn new_id(&self) -> BackgroundId;

    /// Takes work that runs from now on in a scope of its own below [`BackgroundHost::scope`]. Must not block. The
    /// host watches for its end ([`BackgroundWork::ended`]) and writes what the log needs.
    fn started(&self, work: Arc<BackgroundWork>);

    /// All that was started, in order, ended work included for as long as its output may be asked for.
    fn works(&self) -> Vec<Arc<BackgroundWork>>;
}

/// A host that only remembers: for programs without a session, and to build a host on.
#[derive(Debug)]
pub struct BackgroundRegistry {
    scope: Scope,
    next: AtomicU64,
    works: Mutex<Vec<Arc<BackgroundWork>>>,
}

impl BackgroundRegistry {
    /// Work runs below this scope; ids start at `bg_1`.
    pub fn new(scope: Scope) -> Self {
        Self::starting_at(scope, 1)
    }

    /// The same, for a session that goes on: ids start at `bg_<first>`.
    pub fn starting_at(scope: Scope, first: u64) -> Self {
        Self {
            scope,
            next: AtomicU64::new(first),
            works: Mutex::default(),
        }
    }
}

impl BackgroundHost for BackgroundRegistry {
    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn new_id(&self) -> BackgroundId {
        format!("bg_{}", self.next.fetch_add(1, Ordering::Relaxed)).into()
    }

    fn started(&self, work: Arc<BackgroundWork>) {
        self.works.lock().push(work);
    }

    fn works(&self) -> Vec<Arc<BackgroundWork>> {
        self.works.lock().clone()
    }
}
