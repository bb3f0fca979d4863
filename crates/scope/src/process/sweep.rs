//! Finding a tree without a keeper: by its group, its session, its marker, and the children of whoever was found.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use parking_lot::Mutex;

use super::procfs::{Stat, has_variable, snapshot};
use super::spec::MARKER_VARIABLE;
use super::tree::rooted;

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
    /// Members of earlier sweeps, by pid and start: one that has since left every other sign behind is still known.
    seen: Mutex<HashSet<(u32, u64)>>,
}

impl Sweep {
    pub(super) fn new(marker: Arc<str>, main: ProcessIdentity, keeper: Option<u32>) -> Self {
        Self { marker, main, keeper, seen: Mutex::default() }
    }

    pub(super) fn main(&self) -> &ProcessIdentity {
        &self.main
    }

    /// The living members now.
    pub(super) fn members(&self) -> Vec<Stat> {
        let all = snapshot();
        // While a group or session has a member, its number is not given to a new process. So if another process has the
        // main process's number, group and session have ended.
        let number_is_ours = all
            .iter()
            .all(|stat| stat.pid != self.main.pid || stat.start_ticks == self.main.start_ticks);
        let mut seen = self.seen.lock();
        let is_root = |stat: &Stat| {
            stat.start_ticks >= self.main.start_ticks // nobody is older than its ancestor
                && (number_is_ours && (stat.group == self.main.pid || stat.session == self.main.pid)
                    || seen.contains(&(stat.pid, stat.start_ticks))
                    || has_variable(stat.pid, MARKER_VARIABLE, &self.marker))
        };
        let mut members = rooted(&all, |stat| self.is_candidate(stat) && is_root(stat));
        members.retain(|stat| self.is_candidate(stat) && !stat.is_dead());
        *seen = members.iter().map(|stat| (stat.pid, stat.start_ticks)).collect();
        members
    }

    fn is_candidate(&self, stat: &Stat) -> bool {
        stat.pid != std::process::id() && Some(stat.pid) != self.keeper
    }
}
