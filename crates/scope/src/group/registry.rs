//! The registry of a group of scopes: running work of the scopes, the means to end this work by force, and ended work.
//! Work must pass the barrier of its scope before it is added. When work is removed, the counts of the stops are
//! decremented in the same step.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use allstop_core::Cause;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::entry::Engine;
use super::{EndedWork, GroupState, Node, ReceiptScope, ScopeIndex, WorkEntry};
use crate::barrier::NotStarted;
use crate::sync::{AbortHandle, ProcessHandle};
use crate::work::{Details, Ending, Force, WorkSpec};

/// Key of one piece of work in a group. After the work has ended, its slot is reused. The number is never reused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkKey {
    slot: usize,
    seq: u64,
}

/// Events for a piece of work that happened while its task was being created.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct StopDuringSpawn {
    pub(crate) stopped: bool,
    pub(crate) forced: bool,
}

/// Entry in a scope's list of work.
pub(crate) enum ListedWork<'a> {
    /// Number of the following pieces of work, which have ended under a stop.
    EndedCount(usize),
    /// Work that ended under a stop.
    Ended(&'a EndedWork),
    /// Running work.
    Running(&'a WorkEntry),
    /// A call that was requested and has not begun.
    Waiting(&'a ReceiptScope),
    /// An engine that has not acknowledged a stop: its number, and the label of the scope that it drives.
    Engine(u64, &'a Arc<str>),
}

/// Selects the futures that a round of force drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FuturesOf {
    /// Only futures of scopes in which no process runs.
    ScopesWithoutProcess,
    AllScopes,
}

/// The work that a round of force must end in one group.
#[derive(Default)]
pub(crate) struct ForceTargets {
    pub(crate) processes: Vec<ProcessHandle>,
    pub(crate) futures: Vec<AbortHandle>,
}

impl GroupState {
    /// Removes a piece of work that has ended.
    fn take(&mut self, key: WorkKey) -> WorkEntry {
        let entry = self.work.remove(key.slot);
        self.asked -= usize::from(entry.force.is_asked());
        self.entries.finish(entry.index);
        entry
    }

    /// The entry. `None` if the work has ended.
    fn entry_mut(&mut self, key: WorkKey) -> Option<&mut WorkEntry> {
        self.work
            .get_mut(key.slot)
            .filter(|entry| entry.seq == key.seq)
    }
}

impl Node {
    /// Adds a piece of work. Fails if the barrier is closed. The check and the addition are one step.
    pub(crate) fn add_work(&self, spec: WorkSpec, force: Force) -> Result<WorkKey, NotStarted> {
        let seq = self.env().next_seq();
        let mut state = self.group.state.lock();
        state.entries.register(self.index)?;
        state.asked += usize::from(force.is_asked());
        let entry = WorkEntry {
            index: self.index,
            seq,
            spec,
            force,
            acknowledged: None,
            forced: false,
        };
        let slot = state.work.insert(entry);
        Ok(WorkKey { slot, seq })
    }

    /// Sets the means to force a registered piece of work, after its task was created. If the work was forced in the
    /// meantime, drops its future. The caller must handle the other events that this function returns.
    pub(crate) fn set_force(&self, key: WorkKey, force: Force) -> StopDuringSpawn {
        let mut state = self.group.state.lock();
        let stopped = state.entries.cause(self.index).is_some();
        let Some(entry) = state.entry_mut(key) else {
            return StopDuringSpawn::default();
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
        // This happens outside the lock. An abort can run the destructor of the future here, and the destructor ends
        // the future's registration, which takes the lock.
        if let Some(future) = abort {
            future.abort();
        }
        StopDuringSpawn { stopped, forced }
    }

    /// Records that the work observed the stop, and returns the cause of the stop. Records nothing if no stop covers
    /// the work, because a later stop would take the record for an acknowledgement of that later stop.
    pub(crate) fn acknowledge(&self, key: WorkKey, checkpoint: Cow<'static, str>) -> Option<Cause> {
        let mut state = self.group.state.lock();
        let cause = state.entries.cause(self.index)?.clone();
        if let Some(entry) = state.entry_mut(key) {
            entry.acknowledged.get_or_insert(checkpoint);
        }
        Some(cause)
    }

    /// The checkpoint at which a piece of work observed the stop.
    pub(crate) fn acknowledged(&self, key: WorkKey) -> Option<Cow<'static, str>> {
        self.group.state.lock().entry_mut(key)?.acknowledged.clone()
    }

    /// Like [`Node::acknowledge`], but for all futures of this scope.
    pub(crate) fn acknowledge_futures(&self, checkpoint: &'static str) -> Option<Cause> {
        let mut state = self.group.state.lock();
        let cause = state.entries.cause(self.index)?.clone();
        for (_, entry) in &mut state.work {
            if entry.index == self.index
                && matches!(entry.force, Force::Abort(_) | Force::AbortSoon)
            {
                entry.acknowledged.get_or_insert(checkpoint.into());
            }
        }
        Some(cause)
    }

    pub(crate) fn end_work(&self, key: WorkKey, ending: Ending, details: Option<Box<Details>>) {
        // Dropped after the lock is released. The closure of a remote may have the last handle of a scope below, and
        // dropping that handle takes the lock.
        let force;
        let mut state = self.group.state.lock();
        let entry = state.take(key);
        force = entry.force;
        if !state.entries.is_covered(entry.index) {
            return;
        }
        let ending = match (ending, entry.acknowledged) {
            (Ending::Returned, Some(checkpoint)) => Ending::Acknowledged(checkpoint),
            (Ending::Dropped, _) if matches!(force, Force::Remote(_)) => Ending::NotConfirmed,
            (ending, _) => ending,
        };
        state.ended.push(EndedWork {
            index: entry.index,
            seq: entry.seq,
            spec: entry.spec,
            ending,
            at: Instant::now(),
            details,
            was_thread: matches!(force, Force::Thread),
        });
        state.entries.ended_one(entry.index);
    }

    /// Removes a piece of work that has moved to another scope. Stops of this scope no longer cover the work.
    pub(crate) fn release_work(&self, key: WorkKey) {
        let mut state = self.group.state.lock();
        let released = state.take(key);
        state.entries.ended_one(released.index);
        drop(state);
        drop(released);
    }

    /// Like [`Node::release_work`], but fails if a stop covers this scope. The check and the removal are one step. A
    /// scope that is closed without a stop still releases its work.
    pub(crate) fn release_unless_stopped(&self, key: WorkKey) -> Result<(), NotStarted> {
        let mut state = self.group.state.lock();
        if let Some(cause) = state.entries.cause(self.index) {
            return Err(NotStarted::Stopped(cause.clone()));
        }
        let released = state.take(key);
        drop(state);
        drop(released);
        Ok(())
    }

    /// Lists running work, and work that ended under a stop, for this scope and the scopes below it that share the
    /// group. Each piece of work is listed with its unit. The whole list is created in one step, so that work that ends
    /// at the same time is listed exactly once.
    pub(crate) fn list(&self, mut visit: impl FnMut(Option<&Arc<ReceiptScope>>, ListedWork<'_>)) {
        let state = self.group.state.lock();
        let entries = &state.entries;
        let is_here = |index: ScopeIndex| entries.is_below(index, self.index);
        // The unit may be far above, so it is looked up only if there is an item to list.
        let outside = OnceCell::new();
        let outside = || outside.get_or_init(|| self.group.position.unit()).as_ref();
        let unit_of = |index: ScopeIndex| entries.unit(index).or_else(outside);
        if !state.ended.is_empty() {
            visit(
                unit_of(self.index),
                ListedWork::EndedCount(state.ended.len()),
            );
        }
        for ended in state.ended.iter().filter(|ended| is_here(ended.index)) {
            visit(unit_of(ended.index), ListedWork::Ended(ended));
        }
        let work = state.work.iter().map(|(_, entry)| entry);
        for entry in work.filter(|entry| is_here(entry.index)) {
            visit(unit_of(entry.index), ListedWork::Running(entry));
        }
        for index in entries.below(self.index) {
            let entry = entries.get(index);
            if let Engine::Attached(seq) = entry.engine {
                visit(unit_of(index), ListedWork::Engine(seq, &entry.label));
            }
            if entry.barrier.waits()
                && entries.cause(index).is_none()
                && let Some(unit) = &entry.unit
                && unit.is_call()
            {
                visit(Some(unit), ListedWork::Waiting(unit));
            }
        }
    }

    /// The work that a round of force must end, here and in the scopes below that share the group. The list is created
    /// in one step. If a task is being created, either this function finds the task, or [`Node::set_force`] forces it.
    pub(crate) fn force_targets(&self, futures_of: FuturesOf) -> ForceTargets {
        let mut targets = ForceTargets::default();
        let mut with_process: SmallVec<[ScopeIndex; 4]> = SmallVec::new();
        let mut state = self.group.state.lock();
        let GroupState { entries, work, .. } = &mut *state;
        for (_, entry) in work.iter() {
            if let Force::Process(process) = &entry.force
                && entries.is_below(entry.index, self.index)
            {
                targets.processes.push(process.clone());
                with_process.push(entry.index);
            }
        }
        for (_, entry) in work.iter_mut() {
            if !entries.is_below(entry.index, self.index)
                || futures_of == FuturesOf::ScopesWithoutProcess
                    && with_process.contains(&entry.index)
            {
                continue;
            }
            match &entry.force {
                Force::Abort(future) => targets.futures.push(future.clone()),
                Force::AbortSoon => entry.forced = true,
                _ => {}
            }
        }
        targets
    }
}
