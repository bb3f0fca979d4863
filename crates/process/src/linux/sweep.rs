//! Finding a tree without a keeper: by its group, its session, its marker, and the children of those found.

use std::collections::HashSet;
use std::iter::successors;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use parking_lot::Mutex;
use rustix::process::Signal;

use crate::spec::MARKER_VARIABLE;

use super::environment::has_variable;
use super::look;
use super::procfs::{ProcessStat, stat, visit_processes};
use super::tree::{kill_pinned_group, rooted, signal_each};

/// Empty sweeps in a row that prove an empty tree: reading `/proc` is not one step, and when the numbers of processes begin
/// anew, one that forks and ends can be missed together with its child.
pub(super) const EMPTY_SWEEPS: u32 = 2;
/// Most empty sweeps that may be unsure. An exec takes about a millisecond; at two milliseconds a sweep this is long enough
/// for one that stalls a while.
const UNSURE_SWEEPS_MAX: u32 = 500;

/// Result of one sweep.
#[derive(Debug)]
pub(super) struct SweepResult {
    /// The living members.
    pub(super) members: Vec<ProcessStat>,
    /// True if a process may be a member and cannot be told: in the middle of an exec it has no environment.
    is_unsure: bool,
}

/// Counts the sweeps that found no member.
#[derive(Debug, Default)]
pub(super) struct EmptinessProof {
    in_a_row: u32,
    unsure: u32,
}

impl EmptinessProof {
    /// True if this sweep, after those before it, proves that no member is left.
    pub(super) fn is_proved_by(&mut self, found: &SweepResult) -> bool {
        if !found.members.is_empty() {
            self.in_a_row = 0;
        } else if found.is_unsure && self.unsure < UNSURE_SWEEPS_MAX {
            self.in_a_row = 0;
            self.unsure += 1;
        } else {
            self.in_a_row += 1;
        }
        self.in_a_row >= EMPTY_SWEEPS
    }
}

/// Searches one tree, and remembers the members that it has found.
///
/// A sweep cannot find a process that was never seen before it left the group and the session, cleared or hid its
/// environment (`ssh-agent` hides it) *and* lost its parent; nor one whose exec stalls through [`UNSURE_SWEEPS_MAX`] sweeps.
/// Only a keeper holds on to those.
#[derive(Debug)]
pub(super) struct TreeSweep {
    marker: Arc<str>,
    main: ProcessIdentity,
    /// Pid of the keeper, which carries the marker, too, and is no member.
    keeper: Option<u32>,
    /// True if every process is asked for its marker, below any parent: an orphan of long ago may be below any process.
    asks_all: bool,
    /// True while the main process is not reaped.
    pinned_by_main: Mutex<bool>,
    /// Processes that were asked for their environment and have not answered: they are not asked again.
    asked: Arc<Mutex<HashSet<(u32, u64)>>>,
    history: Mutex<SweepHistory>,
}

/// Memory of a [`TreeSweep`]. Group and session have the main process's number, which can pass to strangers once it is
/// free. So it counts only while that is impossible: the main process is not reaped, or a member that was seen in them is
/// still in them.
#[derive(Debug)]
struct SweepHistory {
    /// The first sweep after the main process may have been reaped comes at once, and has nothing to compare with.
    is_first: bool,
    /// Members of the last sweep, by pid and start: one that has since left every other sign behind is still known.
    seen: HashSet<(u32, u64)>,
}

/// A process that is being asked. Dropped when it has answered, however late: then it can be asked again.
struct PendingAnswer(Arc<Mutex<HashSet<(u32, u64)>>>, (u32, u64));

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl TreeSweep {
    /// For a main process that the caller has yet to reap.
    pub(super) fn of_child(marker: Arc<str>, main: ProcessIdentity) -> Self {
        Self::new(marker, main, None, true, true)
    }

    /// For the tree of a keeper that has just been killed.
    pub(super) fn of_lost_keeper(marker: Arc<str>, main: ProcessIdentity, keeper: u32) -> Self {
        Self::new(marker, main, Some(keeper), false, true)
    }

    /// For a tree that another process left. The number of a main process that has ended may be anybody's by now.
    pub(super) fn of_earlier(
        marker: Arc<str>,
        main: ProcessIdentity,
        keeper: Option<u32>,
        main_lives: bool,
    ) -> Self {
        Self {
            asks_all: true,
            ..Self::new(marker, main, keeper, false, main_lives)
        }
    }

    fn new(
        marker: Arc<str>,
        main: ProcessIdentity,
        keeper: Option<u32>,
        pinned_by_main: bool,
        is_first: bool,
    ) -> Self {
        let history = Mutex::new(SweepHistory {
            is_first,
            seen: HashSet::new(),
        });
        Self {
            marker,
            main,
            keeper,
            asks_all: false,
            pinned_by_main: Mutex::new(pinned_by_main),
            asked: Arc::default(),
            history,
        }
    }

    /// From now on the main process may be reaped.
    pub(super) fn unpin(&self) {
        *self.pinned_by_main.lock() = false;
    }

    /// The living members now.
    pub(super) fn members(&self) -> Vec<ProcessStat> {
        self.find().members
    }

    /// The living members now, and whether these are certain to be all.
    pub(super) fn find(&self) -> SweepResult {
        let number = self.main.pid;
        let mut history = self.history.lock();
        // Before the look: what was pinned then is what it shows.
        let is_pinned = *self.pinned_by_main.lock();
        let is_younger = |stat: &ProcessStat| stat.start_ticks >= self.main.start_ticks; // nobody is older than its ancestor
        let may_adopt = may_adopt();
        let mut all = Vec::new();
        let mut marked = HashSet::new();
        let mut is_unsure = false;
        let is_complete = visit_processes(|stat| {
            all.push(stat);
            // Any other process is found by its parent.
            let is_adopted = may_adopt.contains(&stat.parent);
            let is_asked = (is_adopted || self.asks_all) && !stat.is_kernel;
            if is_asked && is_younger(&stat) && !stat.is_dead() && self.is_candidate(&stat) {
                match self.is_marked(&stat) {
                    Some(true) => drop(marked.insert(stat.pid)),
                    Some(false) => {}
                    None => is_unsure |= is_adopted,
                }
            }
        });
        let in_number = |stat: &ProcessStat| stat.group == number || stat.session == number;
        let is_seen = |stat: &ProcessStat| history.seen.contains(&(stat.pid, stat.start_ticks));
        let has_taken_number =
            |stat: &ProcessStat| stat.pid == number && stat.start_ticks != self.main.start_ticks;
        let number_is_ours = is_pinned
            || history.is_first && !all.iter().any(has_taken_number)
            || all.iter().any(|stat| in_number(stat) && is_seen(stat));
        let is_root = |stat: &ProcessStat| {
            is_younger(stat)
                && (number_is_ours && in_number(stat)
                    || is_seen(stat)
                    || marked.contains(&stat.pid))
        };
        let mut members = rooted(&all, |stat| self.is_candidate(stat) && is_root(stat));
        members.retain(|stat| self.is_candidate(stat) && !stat.is_dead());
        let as_seen = |stat: &ProcessStat| (stat.pid, stat.start_ticks);
        history.seen = members.iter().map(as_seen).collect();
        history.is_first = false;
        SweepResult {
            members,
            is_unsure: !is_complete || is_unsure,
        }
    }

    /// True if a process carries the marker. `None`: that cannot be told now.
    fn is_marked(&self, stat: &ProcessStat) -> Option<bool> {
        let (pid, as_seen) = (stat.pid, (stat.pid, stat.start_ticks));
        if !self.asked.lock().insert(as_seen) {
            return None;
        }
        let marker = Arc::clone(&self.marker);
        let answers = PendingAnswer(Arc::clone(&self.asked), as_seen);
        let answer = look::ask(move || {
            let _until_answered = answers;
            has_variable(pid, MARKER_VARIABLE, &marker)
        });
        answer.flatten()
    }

    /// SIGKILL for these members; and for the whole group in one step, if its number is certain to be its own.
    pub(super) fn kill(&self, members: &[ProcessStat]) {
        self.kill_group();
        signal_each(members, Signal::KILL);
    }

    /// SIGKILL for the whole group, if its number is certain to be its own. Looks at nothing.
    pub(super) fn kill_group(&self) {
        // Under the lock: `unpin`, which comes before the reaping, waits for it.
        let is_pinned = self.pinned_by_main.lock();
        if *is_pinned {
            kill_pinned_group(self.main.pid);
        }
    }

    fn is_candidate(&self, stat: &ProcessStat) -> bool {
        stat.pid != std::process::id() && Some(stat.pid) != self.keeper
    }
}

/// Processes that may adopt a member that has lost its parents: the ancestors of this process, and the first of all.
fn may_adopt() -> HashSet<u32> {
    let parent = |pid: &u32| stat(*pid).map(|stat| stat.parent);
    let mut adopters: HashSet<u32> = successors(Some(std::process::id()), parent).collect();
    adopters.insert(1);
    adopters
}
