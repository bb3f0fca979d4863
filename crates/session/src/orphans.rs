//! Orphaned work: background work that runs without this process, because it was detached or an earlier process left it
//! running.

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ItemState;
use allstop_core::record::SessionRecord;
use allstop_scope::Scope;

use crate::orphan_scan::OrphanedWork;
use crate::orphan_search::{OrphanSearch, UnsearchedTurns};

/// Orphaned work of one session.
#[derive(Debug, Default)]
pub(crate) struct OrphanList {
    tracked: Vec<TrackedOrphan>,
    /// Turns whose calls the search at the open of the session could not account for.
    pub(crate) unsearched: UnsearchedTurns,
}

#[derive(Debug)]
pub(crate) struct TrackedOrphan {
    pub(crate) work: OrphanedWork,
    /// Scope of the work; `None` before a stop is requested.
    pub(crate) scope: Option<Scope>,
    /// State of the work after the stop, until the log contains this state.
    pub(crate) ended: Option<ItemState>,
    /// True after [`OrphanList::take_ends`] has taken the state for the log.
    is_recorded: bool,
}

impl OrphanList {
    /// Stores the result of the search at the open of the session.
    pub(crate) fn opened(&mut self, left: OrphanSearch) {
        self.add(left.works);
        self.unsearched = left.unsearched;
    }

    /// Adds work that this process does not watch, or no longer watches.
    pub(crate) fn add(&mut self, works: impl IntoIterator<Item = OrphanedWork>) {
        for work in works.into_iter().filter(|work| work.alive) {
            self.tracked.retain(|orphan| orphan.work.id != work.id);
            self.tracked.push(TrackedOrphan {
                work,
                scope: None,
                ended: None,
                is_recorded: false,
            });
        }
    }

    /// Stores the result of a check. Returns the ids of ended work that needs a record. Excludes work that a stop has
    /// taken into a scope, because the stop records the end of that work.
    pub(crate) fn checked(&mut self, works: Vec<OrphanedWork>) -> Vec<BackgroundId> {
        let mut lost = Vec::new();
        for work in works {
            let known = self.find(&work.id);
            if known.is_some_and(|orphan| orphan.scope.is_some()) {
                continue;
            }
            if work.alive {
                self.add([work]);
            } else {
                self.tracked.retain(|orphan| orphan.work.id != work.id);
                lost.push(work.id);
            }
        }
        lost
    }

    /// Drops the scopes that stops have created for the work. These scopes have ended together with the session's
    /// scope.
    pub(crate) fn forget_stops(&mut self) {
        for orphan in &mut self.tracked {
            orphan.scope = None;
            orphan.is_recorded = false;
        }
    }

    /// State of the work as of the last check.
    pub(crate) fn works(&self) -> Vec<OrphanedWork> {
        self.tracked
            .iter()
            .map(|orphan| orphan.work.clone())
            .collect()
    }

    pub(crate) fn find(&mut self, id: &BackgroundId) -> Option<&mut TrackedOrphan> {
        self.tracked.iter_mut().find(|orphan| orphan.work.id == *id)
    }

    /// Takes the records of work that has ended since the last call.
    pub(crate) fn take_ends(&mut self) -> Vec<SessionRecord> {
        let ended = self.tracked.iter_mut().filter_map(|orphan| {
            let state = orphan.ended.take()?;
            orphan.is_recorded = true;
            Some(SessionRecord::BackgroundEnded {
                id: orphan.work.id.clone(),
                state,
                exit_code: None,
                usage: None,
                answer: None,
            })
        });
        ended.collect()
    }

    /// True if a stop has taken work into a scope, and the end of this work is not known yet.
    pub(crate) fn are_ending(&self) -> bool {
        let mut orphans = self.tracked.iter();
        orphans
            .any(|orphan| orphan.scope.is_some() && orphan.ended.is_none() && !orphan.is_recorded)
    }
}
