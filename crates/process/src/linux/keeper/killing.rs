//! Killing a tree faster than it can grow.
//!
//! The children of a killed process become children of the keeper. Therefore killing all children repeatedly reaches
//! the whole tree. This takes microseconds, while reading all of `/proc` takes milliseconds. A process that forks and
//! ends, with a new session at each step, does not escape.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpgid, getpgrp, kill_process};

use super::children::unsigned;
use crate::identity::raw_pid;
use crate::linux::procfs::ProcessStat;
use crate::linux::tree::{descendants, kill_pinned_group, signal_each};

/// First pause before a search for all descendants, for descendants that survive the kills of children.
const KILL_ALL_MIN: Duration = Duration::from_millis(5);
/// Longest pause before such a search, for a process in an uninterruptible wait or of another user.
const KILL_ALL_MAX: Duration = Duration::from_millis(100);

/// A kill that is repeated until no process is left.
pub(super) struct TreeKill {
    /// Children that were killed and not yet reaped.
    killed: HashSet<u32>,
    pause: Duration,
    all_at: Instant,
}

impl TreeKill {
    pub(super) fn begin() -> Self {
        Self {
            killed: HashSet::new(),
            pause: KILL_ALL_MIN,
            all_at: Instant::now() + KILL_ALL_MIN,
        }
    }

    /// Records that the pid of this child may be reused from now on.
    pub(super) fn reaped(&mut self, child: u32) {
        self.killed.remove(&child);
    }

    /// Does one step, and returns the time until the next step, unless a child ends before. After a while, passes the
    /// remaining members to `tell`.
    pub(super) fn step(&mut self, mut tell: impl FnMut(&[ProcessStat])) -> Duration {
        if self.kill_fresh_children() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        if now >= self.all_at {
            // Descendants of a child that cannot be killed, or all descendants if the kernel provides no list of
            // children.
            let members = descendants(std::process::id());
            tell(&members);
            members
                .iter()
                .filter(|member| member.parent == std::process::id())
                .for_each(|child| kill_child(child.pid));
            signal_each(&members, Signal::KILL);
            self.all_at = now + self.pause;
            self.pause = KILL_ALL_MAX.min(self.pause * 2);
        }
        self.all_at.saturating_duration_since(now)
    }

    fn kill_fresh_children(&mut self) -> bool {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let mut any = false;
        for child in children
            .split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
        {
            if self.killed.insert(child) {
                any = true;
                kill_child(child);
            }
        }
        any
    }
}

/// Kills a child and its whole group, in one step each, so that no member of the group can escape by forking.
///
/// Both numbers are certain. A child keeps its pid and stays a member of its group until it is reaped, which only this
/// thread does. The group contains no foreign process, because the command was started in its own session, and a group
/// never spans sessions. The child itself is killed too, because it may have left the group just before.
fn kill_child(child: u32) {
    let Some(pid) = raw_pid(child) else { return };
    if let Ok(group) = getpgid(Some(pid))
        && group != getpgrp()
    {
        kill_pinned_group(unsigned(group));
    }
    let _refused = kill_process(pid, Signal::KILL);
}
