//! The entries of a group: description, barrier and stops of each scope of the group. A group is a set of scopes that
//! share one lock and one registry of work.
//!
//! An entry exists until its group is dropped, even after the scope has ended. This costs little, because an entry
//! needs less memory than a call in the draft of a turn. Invariants:
//! 1. A piece of work is counted in its entry and in all entries above it in the group. So the count of an entry
//!    includes all work below it in the group.
//! 2. A stop and its cause are stored only in the topmost entry that the stop covers. A query about a lower entry also
//!    searches the entries above it.

use std::sync::Arc;

use allstop_core::Cause;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Placement, ReceiptScope, ScopeIndex, StopInProgress};
use crate::barrier::{NotStarted, StopBarrier};
use crate::sync::{AbortHandle, CancellationToken, CommitDecision};
use crate::work::WorkSpec;

/// Description of a new scope, without its label.
#[derive(Default)]
pub(crate) struct NodeSpec {
    pub(crate) unit: Option<WorkSpec>,
    pub(crate) decision: Option<Arc<CommitDecision>>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) placement: Placement,
}

/// Acknowledgement of the engine that drives a scope.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    #[default]
    None,
    /// The engine has not acknowledged. The number orders the engine among all work of the tree.
    Attached(u64),
    /// The engine has observed the stop at a checkpoint, or had verifiably ended before the stop.
    Done,
}

pub(super) struct Entry {
    above: Option<ScopeIndex>,
    pub(super) label: Arc<str>,
    pub(super) barrier: StopBarrier,
    /// Set if the whole scope is one item of a receipt, such as a tool call with all its work.
    pub(super) unit: Option<Arc<ReceiptScope>>,
    /// The decision between commit and stop. Set only for the scope of a turn.
    pub(super) decision: Option<Arc<CommitDecision>>,
    /// Deadline of this scope itself, without the deadlines above it.
    pub(super) deadline: Option<Instant>,
    pub(super) deadline_timer: Option<AbortHandle>,
    /// An engine, which must acknowledge a stop at a named checkpoint.
    pub(super) engine: Engine,
    /// The stops that cover this scope and everything below it in the group, and that are still needed. Usually these
    /// are at most a wide stop and an account (the receipt for one part of a wider stop).
    pub(super) stops: SmallVec<[Arc<StopInProgress>; 2]>,
    /// True if a stop of this entry was announced, and `stops` no longer contains this stop.
    pub(super) was_stopped: bool,
    /// Stops that came after the commit. They wait until the engine has written the commit.
    pub(super) late_stops: Vec<Arc<StopInProgress>>,
    /// Token for code that uses tokens instead of scopes. Created at the first request.
    pub(super) token: Option<CancellationToken>,
}

impl Entry {
    pub(super) fn new(label: Arc<str>, unit: Option<Arc<ReceiptScope>>, spec: NodeSpec) -> Self {
        Self {
            above: None,
            label,
            barrier: StopBarrier::default(),
            unit,
            decision: spec.decision,
            deadline: spec.deadline,
            deadline_timer: None,
            engine: Engine::default(),
            stops: SmallVec::new(),
            was_stopped: false,
            late_stops: Vec::new(),
            token: None,
        }
    }

    /// True after a stop of this entry has been announced, even if the entry no longer stores this stop.
    fn is_stopped(&self) -> bool {
        self.was_stopped || self.stops.iter().any(|stop| stop.is_announced())
    }

    /// Stores a stop. Of the finished stops, only the stop of this scope itself is still needed.
    pub(super) fn keep_stop(
        &mut self,
        stop: Arc<StopInProgress>,
        is_own: impl Fn(&StopInProgress) -> bool,
    ) {
        self.was_stopped = self.is_stopped();
        self.stops.retain(|stop| !stop.is_done() || is_own(stop));
        self.stops.push(stop);
    }

    /// Closes the barrier for good, and ends the deadline. Returns the timer of the deadline.
    pub(super) fn close(&mut self) -> Option<AbortHandle> {
        self.barrier.close();
        self.deadline = None;
        self.deadline_timer.take()
    }
}

/// All entries of a group. The first entry is for the scope that the group was created for. The other entries are for
/// the scopes that share the group.
pub(super) struct Entries {
    first: Entry,
    others: Vec<Entry>,
}

impl Entries {
    pub(super) fn of(first: Entry) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }

    /// Adds an entry below the entry `above`.
    pub(super) fn add(&mut self, above: ScopeIndex, entry: Entry) -> ScopeIndex {
        self.others.push(Entry {
            above: Some(above),
            ..entry
        });
        let index = u32::try_from(self.others.len());
        ScopeIndex(index.expect("memory is full long before"))
    }

    pub(super) fn get(&self, ScopeIndex(index): ScopeIndex) -> &Entry {
        let other = index.checked_sub(1).map(|at| self.others.get(at as usize));
        other.map_or(&self.first, |entry| entry.expect(STAYS))
    }

    pub(super) fn get_mut(&mut self, ScopeIndex(index): ScopeIndex) -> &mut Entry {
        match index.checked_sub(1) {
            None => &mut self.first,
            Some(at) => self.others.get_mut(at as usize).expect(STAYS),
        }
    }

    /// This entry, and the entries above it in the group.
    pub(super) fn upwards(&self, from: ScopeIndex) -> impl Iterator<Item = &Entry> {
        std::iter::successors(Some(self.get(from)), |entry| {
            entry.above.map(|index| self.get(index))
        })
    }

    pub(super) fn is_below(&self, index: ScopeIndex, top: ScopeIndex) -> bool {
        let mut next = Some(index);
        // An entry is always created after the entry above it, so its index is higher.
        while let Some(index) = next.filter(|index| index.0 > top.0) {
            next = self.get(index).above;
        }
        next == Some(top)
    }

    /// The indices of an entry and of the entries below it in the group.
    pub(super) fn below(&self, top: ScopeIndex) -> impl Iterator<Item = ScopeIndex> + use<'_> {
        let all = top.0..=self.others.len() as u32;
        all.map(ScopeIndex)
            .filter(move |index| self.is_below(*index, top))
    }

    /// Cause of the first stop of a scope. Later stops do not change the cause.
    pub(super) fn cause(&self, index: ScopeIndex) -> Option<&Cause> {
        self.upwards(index).find_map(|entry| entry.barrier.cause())
    }

    /// Checks whether work could be registered here now.
    pub(super) fn check(&self, index: ScopeIndex) -> Result<(), NotStarted> {
        match self.cause(index) {
            Some(cause) => Err(NotStarted::Stopped(cause.clone())),
            None => self.get(index).barrier.check(),
        }
    }

    /// True after a stop that covers this scope has been announced.
    pub(super) fn is_stopped(&self, index: ScopeIndex) -> bool {
        self.upwards(index).any(Entry::is_stopped)
    }

    /// True if a stop covers this scope. The stop may be announced or not, and finished or not.
    pub(super) fn is_covered(&self, index: ScopeIndex) -> bool {
        self.upwards(index).any(|entry| !entry.stops.is_empty())
    }

    /// True if a receipt may still list work of this scope that has ended. This is true while the stop of this scope is
    /// running, or if a stop covers more than this scope.
    pub(super) fn is_asked_for(&self, index: ScopeIndex) -> bool {
        let mut above = self.upwards(index).skip(1);
        let own = &self.get(index).stops;
        own.is_empty()
            || own.iter().any(|stop| !stop.is_done())
            || above.any(|entry| !entry.stops.is_empty())
    }

    pub(super) fn live(&self, index: ScopeIndex) -> usize {
        self.get(index).barrier.live()
    }

    /// The item of a receipt that contains the work of this scope. `None` if neither this entry nor an entry above it
    /// in the group is an item.
    pub(super) fn unit(&self, index: ScopeIndex) -> Option<&Arc<ReceiptScope>> {
        self.upwards(index).find_map(|entry| entry.unit.as_ref())
    }

    /// Checks the barrier and counts one piece of work, in one step.
    pub(super) fn register(&mut self, index: ScopeIndex) -> Result<(), NotStarted> {
        self.check(index)?;
        self.get_mut(index).barrier.begin();
        self.for_each_upwards(index, |entry| entry.barrier.count());
        Ok(())
    }

    /// Removes one piece of work, or an engine, from the counts.
    pub(super) fn finish(&mut self, index: ScopeIndex) {
        self.for_each_upwards(index, |entry| entry.barrier.finish());
    }

    /// If the last work in an entry has now ended, counts down the running stops of that entry.
    pub(super) fn ended_one(&self, index: ScopeIndex) {
        let emptied = self
            .upwards(index)
            .filter(|entry| entry.barrier.live() == 0);
        let stops = emptied.flat_map(|entry| &entry.stops);
        for stop in stops.filter(|stop| !stop.is_done()) {
            stop.count().decrement();
        }
    }

    pub(super) fn abort_timers(&mut self) {
        for entry in std::iter::once(&mut self.first).chain(&mut self.others) {
            if let Some(timer) = entry.deadline_timer.take() {
                timer.abort();
            }
        }
    }

    fn for_each_upwards(&mut self, from: ScopeIndex, mut act: impl FnMut(&mut Entry)) {
        let mut next = Some(from);
        while let Some(index) = next {
            let entry = self.get_mut(index);
            act(entry);
            next = entry.above;
        }
    }
}

const STAYS: &str = "an entry stays as long as its group";
