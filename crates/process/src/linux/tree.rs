//! Trees of processes: descendants, members with their command lines, and signals to each.

use std::collections::{HashMap, HashSet, VecDeque};

use allstop_core::process::ProcessIdentity;
use parking_lot::Mutex;
use rustix::process::{Signal, kill_process_group};

use crate::identity::{identity, raw_pid};
use crate::status::TreeMember;

use super::identity::{is_alive, signal_exactly};
use super::procfs::{ProcessStat, command_line, short_name, visit_processes};
use super::procfs_reader;

/// The members of a tree when they were last watched or signalled. Reading this list does not query the system.
#[derive(Debug, Default)]
pub(super) struct KnownMembers(Mutex<Vec<ProcessIdentity>>);

impl KnownMembers {
    pub(super) fn get(&self) -> Vec<ProcessIdentity> {
        self.0.lock().clone()
    }

    pub(super) fn set(&self, members: Vec<ProcessIdentity>) {
        *self.0.lock() = members;
    }

    pub(super) fn set_stats(&self, members: &[ProcessStat]) {
        let living = members.iter().filter(|member| !member.is_dead());
        let living = living.map(|member| identity(member.pid, member.start_ticks));
        self.set(living.collect());
    }
}

/// Living processes of this machine that are visible from here, with their command lines. Blocks for a few
/// milliseconds, or longer if the memory of a process is locked.
pub fn all_processes() -> Vec<TreeMember> {
    listed(|_| true)
}

/// Living children of this process, with their command lines. Blocks like [`all_processes`].
pub fn child_processes() -> Vec<TreeMember> {
    let me = std::process::id();
    listed(|stat| stat.parent == me)
}

fn listed(is_wanted: impl Fn(&ProcessStat) -> bool) -> Vec<TreeMember> {
    let mut found = Vec::new();
    let _is_complete = visit_processes(|stat| {
        if !stat.is_dead() && is_wanted(&stat) {
            found.push(TreeMember {
                identity: identity(stat.pid, stat.start_ticks),
                command_line: command_line(stat.pid),
            });
        }
    });
    found
}

/// The processes that satisfy `is_root`, and all their descendants. Roots come first, so that a shell gets its signal
/// before its children. Otherwise the shell would continue with its next command when a child ends.
pub(super) fn rooted(
    all: &[ProcessStat],
    is_root: impl Fn(&ProcessStat) -> bool,
) -> Vec<ProcessStat> {
    let mut children: HashMap<u32, Vec<&ProcessStat>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut queue: VecDeque<&ProcessStat> = all.iter().filter(|stat| is_root(stat)).collect();
    while let Some(stat) = queue.pop_front() {
        if seen.insert(stat.pid) {
            found.push(*stat);
            queue.extend(children.get(&stat.pid).into_iter().flatten());
        }
    }
    found
}

/// The descendants of a process, including zombies, without the process itself.
pub(super) fn descendants(root: u32) -> Vec<ProcessStat> {
    let mut all = Vec::new();
    // No caller uses an empty result as proof.
    let _is_complete = visit_processes(|stat| all.push(stat));
    rooted(&all, |stat| stat.parent == root)
}

/// Signals each process exactly once. If a process is suspended, also sends SIGCONT, because SIGTERM would have no
/// effect otherwise.
pub(super) fn signal_each(members: &[ProcessStat], signal: Signal) {
    for member in members.iter().filter(|member| !member.is_dead()) {
        // If the system refuses the signal (for example because the member has changed its user), the member stays
        // alive, so later sweeps still find it.
        let hit = signal_exactly(member.pid, member.start_ticks, signal).unwrap_or(false);
        if hit && signal != Signal::KILL && member.is_stopped() {
            let _continued = signal_exactly(member.pid, member.start_ticks, Signal::CONT);
        }
    }
}

/// Sends SIGKILL to a group in one step of the kernel, so that no member can escape by forking.
///
/// The caller must make sure that the number does not belong to another group. This is certain if the group has a
/// member that only the caller can reap.
pub(super) fn kill_pinned_group(group: u32) {
    if let Some(group) = raw_pid(group) {
        // If the kill fails with ESRCH or EPERM, later sweeps find the remaining members of the group.
        let _left = kill_process_group(group, Signal::KILL);
    }
}

/// The living members with their command lines. If the read for one process takes too long, this process and all later
/// processes get the kernel's short name instead.
pub(super) fn as_members(stats: &[ProcessStat]) -> Vec<TreeMember> {
    let mut answers = true;
    let mut named = Vec::new();
    for stat in stats.iter().filter(|stat| !stat.is_dead()) {
        let pid = stat.pid;
        let line = answers
            .then(|| procfs_reader::read_in_time(move || command_line(pid)))
            .flatten();
        answers = line.is_some();
        named.push(TreeMember {
            identity: identity(pid, stat.start_ticks),
            command_line: line.unwrap_or_else(|| short_name(pid)),
        });
    }
    // A short-lived process may have ended since the list was made, and the list may also contain the process that
    // replaced it.
    named.retain(|member| is_alive(&member.identity));
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, parent: u32) -> ProcessStat {
        ProcessStat {
            pid,
            state: b'S',
            parent,
            group: pid,
            session: pid,
            threads: 1,
            start_ticks: 1,
            is_kernel: false,
            environment_end: 1,
        }
    }

    #[test]
    fn only_descendants_are_found_in_any_order() {
        let all = [stat(9, 7), stat(7, 5), stat(5, 1), stat(6, 1), stat(8, 6)];
        let mut found: Vec<_> = rooted(&all, |stat| stat.pid == 5)
            .iter()
            .map(|stat| stat.pid)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [5, 7, 9]);
    }

    #[test]
    fn children_of_this_process_are_listed_until_they_have_ended() {
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.expect("it starts");
        let is_it = |member: &TreeMember| member.identity.pid == child.id();
        assert!(child_processes().iter().any(is_it));
        assert!(all_processes().iter().any(is_it));
        child.kill().expect("it is ended");
        child.wait().expect("it is reaped");
        let is_it = |member: &TreeMember| member.identity.pid == child.id();
        assert!(!child_processes().iter().any(is_it));
    }

    #[test]
    fn a_cycle_of_reused_pids_ends() {
        let all = [stat(2, 3), stat(3, 2)];
        assert_eq!(rooted(&all, |stat| stat.pid == 2).len(), 2);
    }
}
