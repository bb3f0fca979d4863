//! The registry of a node: what runs in it, how it is forced, and how it ended. Work enters by the barrier, and every
//! count of a stop goes down in the step that takes the work out.

use std::borrow::Cow;
use std::sync::Arc;

use allstop_core::Cause;
use tokio::time::Instant;

use super::cover::Engine;
use super::{Node, NodeState, Unit};
use crate::gate::NotStarted;
use crate::process::ProcessHandle;
use crate::sync::AbortHandle;
use crate::work::{Details, EndedWork, Ending, Force, Registration, WorkEntry, WorkSpec};

/// Names one piece of work of a node. The slot is used again after its end; the number is not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkKey {
    slot: usize,
    seq: u64,
}

/// What came over a piece of work while it was being made.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Meanwhile {
    pub(crate) stopped: bool,
    pub(crate) forced: bool,
}

/// Work, as a node lists it.
pub(crate) enum Listed<'a> {
    /// All that ended under a stop, if anything did.
    Ended(&'a [EndedWork]),
    /// It runs.
    Running(&'a WorkEntry),
    /// It has been asked for and has not begun.
    Waiting(&'a Unit),
    /// The engine that drives the scope, by its number, while it has not acknowledged a stop.
    Engine(u64),
}

/// Which futures a round of force drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FuturesOf {
    /// Only those of a node in which no process runs.
    NodesWithoutProcess,
    AllNodes,
}

/// What a round of force has to do at one node.
#[derive(Default)]
pub(crate) struct Forcible {
    pub(crate) processes: Vec<ProcessHandle>,
    pub(crate) futures: Vec<AbortHandle>,
}

impl NodeState {
    /// A piece of work, or the engine, has ended. The running stops count nodes: this one is done when nothing is left.
    pub(super) fn ended_one(&self) {
        if self.gate.live() > 0 {
            return;
        }
        for stop in self.stops.iter().filter(|stop| !stop.is_done()) {
            stop.count().one_less();
        }
    }

    /// Takes a piece of work out, whose end it is here.
    fn take(&mut self, key: WorkKey) -> WorkEntry {
        let entry = self.work.remove(key.slot);
        self.asked -= usize::from(entry.force.is_asked());
        self.gate.finish();
        entry
    }

    /// The entry, unless that work has ended.
    fn entry_mut(&mut self, key: WorkKey) -> Option<&mut WorkEntry> {
        self.work
            .get_mut(key.slot)
            .filter(|entry| entry.seq == key.seq)
    }
}

impl Node {
    pub(crate) fn register(
        self: &Arc<Self>,
        spec: WorkSpec,
        force: Force,
    ) -> Result<Registration, NotStarted> {
        let seq = self.env.next_seq();
        let mut state = self.state.lock();
        state.gate.register()?;
        state.asked += usize::from(force.is_asked());
        let entry = WorkEntry {
            seq,
            spec,
            force,
            acknowledged: None,
            forced: false,
        };
        let key = WorkKey {
            slot: state.work.insert(entry),
            seq,
        };
        drop(state);
        Ok(Registration::new(Arc::clone(self), key))
    }

    /// Says how a registered piece of work is forced, once its task exists. A future that force came for meanwhile is
    /// dropped here; what else came over the work is for the caller to carry out.
    pub(crate) fn set_force(&self, key: WorkKey, force: Force) -> Meanwhile {
        let mut state = self.state.lock();
        let stopped = state.gate.cause().is_some();
        let Some(entry) = state.entry_mut(key) else {
            return Meanwhile::default();
        };
        let forced = entry.forced;
        let is_asked = force.is_asked();
        debug_assert!(!entry.force.is_asked(), "its task was being made");
        let abort = match &force {
            Force::Abort(future) if forced => Some(future.clone()),
            _ => None,
        };
        entry.force = force;
        state.asked += usize::from(is_asked);
        drop(state);
        // Outside the lock: an abort can run the future's destructor here, which ends its registration.
        if let Some(future) = abort {
            future.abort();
        }
        Meanwhile { stopped, forced }
    }

    /// The work heard the stop, whose cause is returned. Without a stop there is nothing to acknowledge: a flag set early
    /// would later read back as an observation.
    pub(crate) fn acknowledge(&self, key: WorkKey, checkpoint: Cow<'static, str>) -> Option<Cause> {
        let mut state = self.state.lock();
        let cause = state.gate.cause()?.clone();
        if let Some(entry) = state.entry_mut(key) {
            entry.acknowledged.get_or_insert(checkpoint);
        }
        Some(cause)
    }

    /// Where a piece of work heard the stop.
    pub(crate) fn acknowledged(&self, key: WorkKey) -> Option<Cow<'static, str>> {
        self.state.lock().entry_mut(key)?.acknowledged.clone()
    }

    /// The futures of this node heard the stop, whose cause is returned. Without one there is nothing to acknowledge.
    pub(crate) fn acknowledge_futures(&self, checkpoint: &'static str) -> Option<Cause> {
        let mut state = self.state.lock();
        let cause = state.gate.cause()?.clone();
        for (_, entry) in &mut state.work {
            if matches!(entry.force, Force::Abort(_) | Force::AbortSoon) {
                entry.acknowledged.get_or_insert(checkpoint.into());
            }
        }
        Some(cause)
    }

    pub(crate) fn end_work(&self, key: WorkKey, ending: Ending, details: Option<Box<Details>>) {
        // Dropped after the lock: what a remote's closure holds may be the last handle of a scope below.
        let force;
        let mut state = self.state.lock();
        let entry = state.take(key);
        force = entry.force;
        if state.stops.is_empty() {
            return;
        }
        let ending = match (ending, entry.acknowledged) {
            (Ending::Returned, Some(checkpoint)) => Ending::Acknowledged(checkpoint),
            (Ending::Dropped, _) if matches!(force, Force::Remote(_)) => Ending::NotConfirmed,
            (ending, _) => ending,
        };
        state.ended.push(EndedWork {
            seq: entry.seq,
            spec: entry.spec,
            ending,
            at: Instant::now(),
            details,
            was_thread: matches!(force, Force::Thread),
        });
        state.ended_one();
    }

    /// Moves a piece of work to another node: from now on it belongs there, and stops of this one do not cover it.
    pub(crate) fn release_work(&self, key: WorkKey) {
        let mut state = self.state.lock();
        let released = state.take(key);
        state.ended_one();
        drop(state);
        drop(released);
    }

    /// The same, unless a stop covers this node: in one step with the check. A closed scope lets go.
    pub(crate) fn release_unless_stopped(&self, key: WorkKey) -> Result<(), NotStarted> {
        let mut state = self.state.lock();
        if let Some(cause) = state.gate.cause() {
            return Err(NotStarted::Stopped(cause.clone()));
        }
        let released = state.take(key);
        drop(state);
        drop(released);
        Ok(())
    }

    /// Lists what ended here under a stop and what runs, in one step: work that ends meanwhile is in one of the two.
    pub(crate) fn list(&self, mut visit: impl FnMut(Listed<'_>)) {
        let state = self.state.lock();
        if !state.ended.is_empty() {
            visit(Listed::Ended(&state.ended));
        }
        for (_, entry) in &state.work {
            visit(Listed::Running(entry));
        }
        if let Engine::Attached(seq) = state.engine {
            visit(Listed::Engine(seq));
        }
        if state.gate.waits()
            && let Some(unit) = &self.unit
            && unit.is_call()
        {
            visit(Listed::Waiting(unit));
        }
    }

    /// What a round of force has to do here, in one step: what is being made at this moment is either found here, or
    /// learns from [`Node::set_force`] that force came for it.
    pub(crate) fn forcible(&self, futures_of: FuturesOf) -> Forcible {
        let mut forcible = Forcible::default();
        let mut state = self.state.lock();
        for (_, entry) in &state.work {
            if let Force::Process(process) = &entry.force {
                forcible.processes.push(process.clone());
            }
        }
        if futures_of == FuturesOf::NodesWithoutProcess && !forcible.processes.is_empty() {
            return forcible;
        }
        for (_, entry) in &mut state.work {
            match &entry.force {
                Force::Abort(future) => forcible.futures.push(future.clone()),
                Force::AbortSoon => entry.forced = true,
                _ => {}
            }
        }
        forcible
    }
}
