//! The scope in which an agent runs by itself. A scope is a node of the tree in which all work runs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_core::SessionId;
use allstop_scope::{RootOptions, Scope};

/// The scope of an agent's runs, created at the first run unless the program has passed one.
#[derive(Debug, Default)]
pub(crate) struct HomeScope {
    scope: OnceLock<Scope>,
    runs: AtomicU64,
}

impl HomeScope {
    pub(crate) fn of(scope: Scope) -> Self {
        Self {
            scope: scope.into(),
            runs: AtomicU64::new(0),
        }
    }

    pub(crate) fn scope(&self) -> &Scope {
        let create = || Scope::root("agent", RootOptions::for_any_runtime());
        self.scope.get_or_init(create)
    }

    /// Name of the next run in receipts.
    pub(crate) fn next_run(&self) -> SessionId {
        let number = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        SessionId::new(format!("run_{number}"))
    }
}
