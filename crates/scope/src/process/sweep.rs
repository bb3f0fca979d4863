//! Finding a tree without a keeper: by its group, its session, its marker, and the children of whoever was found.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use parking_lot::Mutex;
use rustix::process::Signal;

use super::procfs::{Stat, has_variable, snapshot};
use super::spec::MARKER_VARIABLE;
use super::tree::{kill_pinned_group, rooted, signal_each};

/// How often a sweep has to find nobody: reading `/proc` is not one step, and a process that forks and ends while it is
/// read can be missed together with its child. What is missed twice in a row would have to do that all the time.
pub(super) const EMPTY_SWEEPS: u32 = 2;

/// What is known of one tree, and whom it was seen to contain.
///
/// What a sweep cannot find: a process that was never seen before it left the group and the session, cleared its
/// environment *and* lost its parent. Only a keeper holds on to that one.
#[derive(Debug)]
pub(super) struct Sweep {
    marker: Arc<str>,
    main: ProcessIdentity,
    /// The keeper carries the marker, too, and is no member.
    keeper: Option<u32>,
    history: Mutex<History>,
}

/// Group and session have the main process's number, which can pass to strangers once it is free. So it counts only
/// while that is impossible: the main process is not reaped, or a member that was seen in them is still in them.
#[derive(Debug)]
struct History {
    pinned_by_main: bool,
    /// The first sweep after the main process may have been reaped comes at once, and has nothing to compare with.
    is_first: bool,
    /// Members of the last sweep, by pid and start: one that has since left every other sign behind is still known.
    seen: HashSet<(u32, u64)>,
}

impl Sweep {
    /// For a main process that the caller has yet to reap.
    pub(super) fn of_child(marker: Arc<str>, main: ProcessIdentity) -> Self {
        Self::new(marker, main, None, true)
    }

    /// For the tree of a keeper that has just been killed.
    pub(super) fn of_orphans(marker: Arc<str>, main: ProcessIdentity, keeper: u32) -> Self {
        Self::new(marker, main, Some(keeper), false)
    }

    fn new(
        marker: Arc<str>,
        main: ProcessIdentity,
        keeper: Option<u32>,
        pinned_by_main: bool,
    ) -> Self {
        let history = Mutex::new(History {
            pinned_by_main,
            is_first: true,
            seen: HashSet::new(),
        });
        Self {
            marker,
            main,
            keeper,
            history,
        }
    }

    pub(super) fn main(&self) -> &ProcessIdentity {
        &self.main
    }

    /// From now on the main process may be reaped.
    pub(super) fn unpin(&self) {
        self.history.lock().pinned_by_main = false;
    }

    /// The living members now.
    pub(super) fn members(&self) -> Vec<Stat> {
        let number = self.main.pid;
        let mut history = self.history.lock();
        let all = snapshot();
        let in_number = |stat: &Stat| stat.group == number || stat.session == number;
        let is_seen = |stat: &Stat| history.seen.contains(&(stat.pid, stat.start_ticks));
        let is_stranger =
            |stat: &Stat| stat.pid == number && stat.start_ticks != self.main.start_ticks;
        let number_is_ours = history.pinned_by_main
            || history.is_first && !all.iter().any(is_stranger)
            || all.iter().any(|stat| in_number(stat) && is_seen(stat));
        let is_root = |stat: &Stat| {
            stat.start_ticks >= self.main.start_ticks // nobody is older than its ancestor
                && (number_is_ours && in_number(stat)
                    || is_seen(stat)
                    || !stat.is_dead() && has_variable(stat.pid, MARKER_VARIABLE, &self.marker))
        };
        let mut members = rooted(&all, |stat| self.is_candidate(stat) && is_root(stat));
        members.retain(|stat| self.is_candidate(stat) && !stat.is_dead());
        history.seen = members
            .iter()
            .map(|stat| (stat.pid, stat.start_ticks))
            .collect();
        history.is_first = false;
        members
    }

    /// SIGKILL for these members; and for the whole group in one step, if its number is certain to be its own.
    pub(super) fn kill(&self, members: &[Stat]) {
        {
            // Under the lock: whoever unpins, and then reaps, waits for it.
            let history = self.history.lock();
            if history.pinned_by_main {
                kill_pinned_group(self.main.pid);
            }
        }
        signal_each(members, Signal::KILL);
    }

    fn is_candidate(&self, stat: &Stat) -> bool {
        stat.pid != std::process::id() && Some(stat.pid) != self.keeper
    }
}
