//! Sweeps: searches of all processes in `/proc` for the members of a process tree without a keeper. Members are found
//! by group, by session, as children of known members, and by the marker, a unique value in the environment of the
//! tree's processes.

use std::collections::HashSet;
use std::iter::successors;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use parking_lot::Mutex;
use rustix::process::Signal;

use crate::spec::MARKER_VARIABLE;

use super::environment::has_variable;
use super::procfs::{ProcessStat, stat, visit_processes};
use super::procfs_reader;
use super::tree::{kill_pinned_group, rooted, signal_each};

/// Number of consecutive empty sweeps that prove an empty tree. A read of `/proc` is not atomic. If a process forks and
/// ends while the pids wrap around, one sweep can miss both the process and its child.
pub(super) const EMPTY_SWEEPS: u32 = 2;
/// Maximum number of empty sweeps with an unsure result. An exec takes about a millisecond and a sweep about two
/// milliseconds, so this number is enough even if an exec stalls for a while.
const UNSURE_SWEEPS_MAX: u32 = 500;

/// Result of one sweep.
#[derive(Debug)]
pub(super) struct SweepResult {
    /// The living members.
    pub(super) members: Vec<ProcessStat>,
    /// True if some process may be a member, but this is unknown because the process is in the middle of an exec and
    /// has no environment.
    is_unsure: bool,
}

/// Counts the consecutive sweeps that found no member.
#[derive(Debug, Default)]
pub(super) struct EmptinessProof {
    in_a_row: u32,
    unsure: u32,
}

impl EmptinessProof {
    /// True if this sweep, together with the previous sweeps, proves that no member is left.
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

/// Searches the members of one tree, and remembers the members of the last sweep.
///
/// A sweep cannot find a process if all of the following happened before any sweep saw the process. The process lost
/// its parent, left the group and the session, *and* cleared or hid its environment (`ssh-agent` hides its
/// environment). A sweep also misses a process whose exec takes longer than [`UNSURE_SWEEPS_MAX`] sweeps. Only a keeper
/// can reach these processes.
#[derive(Debug)]
pub(super) struct TreeSweep {
    marker: Arc<str>,
    main: ProcessIdentity,
    /// Pid of the keeper. The keeper also has the marker, but is not a member.
    keeper: Option<u32>,
    /// True if every process is checked for the marker, regardless of its parent, because an old orphan may have any
    /// process as its parent.
    asks_all: bool,
    /// True as long as the main process is certainly not reaped.
    pinned_by_main: Mutex<bool>,
    /// Processes whose environment is still being read. No second read is started for them.
    asked: Arc<Mutex<HashSet<(u32, u64)>>>,
    history: Mutex<SweepHistory>,
}

/// Memory of a [`TreeSweep`]. The group and the session have the number of the main process. When this number is free,
/// the kernel can reuse it. Therefore a sweep uses the number only if a reuse is impossible: the main process is not
/// reaped, or a known member is still in the group or session.
#[derive(Debug)]
struct SweepHistory {
    /// True before the first sweep, if this sweep comes at once after the main process may have been reaped. The first
    /// sweep has no earlier members for comparison, so it uses the number unless another process has the number as its
    /// pid.
    is_first: bool,
    /// Members of the last sweep, by pid and start time. Such a process stays a member even if it has left the group
    /// and lost all other signs.
    seen: HashSet<(u32, u64)>,
}

/// A process whose environment is being read. The read drops this value when it ends, however late. After that, a new
/// read can be started.
struct PendingAnswer(Arc<Mutex<HashSet<(u32, u64)>>>, (u32, u64));

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl TreeSweep {
    /// Creates a sweep for a main process that the caller has not reaped yet.
    pub(super) fn of_child(marker: Arc<str>, main: ProcessIdentity) -> Self {
        Self::new(marker, main, None, true, true)
    }

    /// Creates a sweep for the tree of a keeper that has just been killed.
    pub(super) fn of_lost_keeper(marker: Arc<str>, main: ProcessIdentity, keeper: u32) -> Self {
        Self::new(marker, main, Some(keeper), false, true)
    }

    /// Creates a sweep for a tree that another process left running. If the main process has ended, another process may
    /// now have its number.
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

    /// Records that the main process may be reaped from now on.
    pub(super) fn unpin(&self) {
        *self.pinned_by_main.lock() = false;
    }

    /// The members that are alive now.
    pub(super) fn members(&self) -> Vec<ProcessStat> {
        self.find().members
    }

    /// The members that are alive now, with a flag that reports whether the list may be incomplete.
    pub(super) fn find(&self) -> SweepResult {
        let number = self.main.pid;
        let mut history = self.history.lock();
        // The value is read before the search, so that it applies to all processes that the search finds.
        let is_pinned = *self.pinned_by_main.lock();
        let is_younger = |stat: &ProcessStat| stat.start_ticks >= self.main.start_ticks; // ancestors are never younger
        let may_adopt = may_adopt();
        let mut all = Vec::new();
        let mut marked = HashSet::new();
        let mut is_unsure = false;
        let is_complete = visit_processes(|stat| {
            all.push(stat);
            // Unless `asks_all` is set, only adopted processes are checked for the marker, because all other members
            // are found through their parents.
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

    /// True if a process has the marker. `None` if the result is unknown at this time.
    fn is_marked(&self, stat: &ProcessStat) -> Option<bool> {
        let (pid, as_seen) = (stat.pid, (stat.pid, stat.start_ticks));
        if !self.asked.lock().insert(as_seen) {
            return None;
        }
        let marker = Arc::clone(&self.marker);
        let answers = PendingAnswer(Arc::clone(&self.asked), as_seen);
        let answer = procfs_reader::read_in_time(move || {
            let _until_answered = answers;
            has_variable(pid, MARKER_VARIABLE, &marker)
        });
        answer.flatten()
    }

    /// Sends SIGKILL to these members. If the number of the group certainly belongs to this tree, also kills the whole
    /// group in one step.
    pub(super) fn kill(&self, members: &[ProcessStat]) {
        self.kill_group();
        signal_each(members, Signal::KILL);
    }

    /// Sends SIGKILL to the whole group, if the number of the group certainly belongs to this tree. Reads nothing from
    /// `/proc`.
    pub(super) fn kill_group(&self) {
        // Holds the lock during the kill, so that `unpin` waits for the kill. `unpin` precedes the reaping of the main
        // process.
        let is_pinned = self.pinned_by_main.lock();
        if *is_pinned {
            kill_pinned_group(self.main.pid);
        }
    }

    fn is_candidate(&self, stat: &ProcessStat) -> bool {
        stat.pid != std::process::id() && Some(stat.pid) != self.keeper
    }
}

/// Processes that may adopt a member that has lost its parents: the ancestors of this process, and pid 1.
fn may_adopt() -> HashSet<u32> {
    let parent = |pid: &u32| stat(*pid).map(|stat| stat.parent);
    let mut adopters: HashSet<u32> = successors(Some(std::process::id()), parent).collect();
    adopters.insert(1);
    adopters
}
