//! TreeKill a tree faster than it can grow.
//!
//! Whatever is below a process that is killed becomes a child of the keeper. So killing every child, again and again,
//! reaches everyone; and it costs microseconds, where reading all of `/proc` takes milliseconds: what forks and ends, with
//! a new session at each step, does not get away.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpgid, getpgrp, kill_process};

use super::children::unsigned;
use crate::identity::raw_pid;
use crate::linux::procfs::ProcessStat;
use crate::linux::tree::{descendants, kill_pinned_group, signal_each};

/// How soon everyone is looked for whom killing the children has not reached.
const KILL_ALL_MIN: Duration = Duration::from_millis(5);
/// How slowly at last: for a process in an uninterruptible wait, or one of another user that cannot be signalled.
const KILL_ALL_MAX: Duration = Duration::from_millis(100);

/// A kill that goes on until nobody is left.
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

    /// The number of this child may be given to another from now on.
    pub(super) fn reaped(&mut self, child: u32) {
        self.killed.remove(&child);
    }

    /// One step; says how soon the next is due, unless a child ends before. Whoever is still there after a while is told.
    pub(super) fn step(&mut self, mut tell: impl FnMut(&[ProcessStat])) -> Duration {
        if self.kill_fresh_children() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        if now >= self.all_at {
            // Those below a child that cannot be killed, or all, where the kernel has no list of children.
            let members = descendants(std::process::id());
            members
                .iter()
                .filter(|member| member.parent == std::process::id())
                .for_each(|child| kill_child(child.pid));
            signal_each(&members, Signal::KILL);
            tell(&members);
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

/// Kills a child and its whole group, in one step each: nobody in the group can win a race by forking.
///
/// Both numbers are certain: a child keeps its pid and stays a member of its group until it is reaped, which only this
/// thread does. And the group holds nobody else: the command was started in a session of its own, and a group never spans
/// sessions. The child itself is killed, too, since it may leave the group just before.
fn kill_child(child: u32) {
    let Some(pid) = raw_pid(child) else { return };
    if let Ok(group) = getpgid(Some(pid))
        && group != getpgrp()
    {
        kill_pinned_group(unsigned(group));
    }
    let _refused = kill_process(pid, Signal::KILL);
}
