//! Kills the process tree of a keeper faster than the tree can grow. The keeper is the helper process that started the
//! tree.
//!
//! If a process is killed, its children become children of the keeper. So if the keeper repeatedly kills all of its
//! children, the keeper reaches the whole tree. Each repetition takes microseconds, while a read of the whole `/proc`
//! takes milliseconds. Even a process that repeatedly forks and ends, each time in a new session, does not escape.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpgid, getpgrp, kill_process};

use super::children::unsigned;
use crate::identity::raw_pid;
use crate::linux::procfs::ProcessStat;
use crate::linux::tree::{descendants, kill_pinned_group, signal_each};

/// First pause before a search for all descendants. The search finds descendants that are still alive after the
/// children were killed.
const KILL_ALL_MIN: Duration = Duration::from_millis(5);
/// Longest pause before such a search, if a process is in an uninterruptible wait or belongs to another user.
const KILL_ALL_MAX: Duration = Duration::from_millis(100);

/// A kill that is repeated until no process is left.
pub(super) struct TreeKill {
    /// Children that were killed but are not reaped yet.
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

    /// Records that the kernel may reuse the pid of this child from now on.
    pub(super) fn reaped(&mut self, child: u32) {
        self.killed.remove(&child);
    }

    /// Runs one step of the kill. Returns the time until the next step, which comes earlier if a child ends. After a
    /// while, passes the remaining members to `tell`.
    pub(super) fn step(&mut self, mut tell: impl FnMut(&[ProcessStat])) -> Duration {
        if self.kill_fresh_children() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        if now >= self.all_at {
            // The list contains the descendants of a child that cannot be killed. If the kernel provides no list of
            // children, the list contains all descendants.
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

/// Kills a child and its whole group, each in one step, so that no member of the group can escape by forking.
///
/// Neither the pid nor the group id can belong to another tree. Until a child is reaped, it keeps its pid and stays a
/// member of its group, and only this thread reaps it. The group contains no foreign process, because the command was
/// started in its own session, and all members of a group are in one session. The child itself is killed too, because
/// it may have left the group just before the kill.
fn kill_child(child: u32) {
    let Some(pid) = raw_pid(child) else { return };
    if let Ok(group) = getpgid(Some(pid))
        && group != getpgrp()
    {
        kill_pinned_group(unsigned(group));
    }
    let _refused = kill_process(pid, Signal::KILL);
}
