//! A simulated process that counts the requests that it gets.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Containment;

use super::{AtomicUsize, Ordering};

#[derive(Debug, Clone, Copy)]
pub enum ContainmentChoice {
    GroupAndMarker,
}

#[derive(Clone)]
pub(crate) struct ProcessHandle(Arc<Told>);

struct Told {
    asked: AtomicUsize,
    forced: AtomicUsize,
}

impl ProcessHandle {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Told {
            asked: AtomicUsize::new(0),
            forced: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn ask(&self) {
        self.0.asked.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn force(&self) {
        self.0.forced.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn was_asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire) > 0
    }

    pub(crate) fn was_forced(&self) -> bool {
        self.0.forced.load(Ordering::Acquire) > 0
    }

    pub(crate) fn containment(&self) -> Containment {
        Containment::GroupAndMarker
    }

    pub(crate) fn known_members(&self) -> Vec<ProcessIdentity> {
        Vec::new()
    }
}
