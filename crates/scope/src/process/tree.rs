//! Who descends from whom, and signals to all of them.

use std::collections::{HashMap, HashSet, VecDeque};

use rustix::process::{Signal, kill_process_group};

use super::identity::{identity, is_alive, raw_pid};
use super::look;
use super::procfs::{Stat, command_line, short_name, signal_exactly, visit_processes};
use super::status::Member;

/// Everyone whose chain of parents leads to a process that `is_root` names, and those roots themselves. Roots first, so
/// that a shell is asked before its children, and does not take their end for a reason to go on.
pub(super) fn rooted(all: &[Stat], is_root: impl Fn(&Stat) -> bool) -> Vec<Stat> {
    let mut children: HashMap<u32, Vec<&Stat>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut queue: VecDeque<&Stat> = all.iter().filter(|stat| is_root(stat)).collect();
    while let Some(stat) = queue.pop_front() {
        if seen.insert(stat.pid) {
            found.push(*stat);
            queue.extend(children.get(&stat.pid).into_iter().flatten());
        }
    }
    found
}

/// The descendants of a process, itself excluded, zombies included.
pub(super) fn descendants(root: u32) -> Vec<Stat> {
    let mut all = Vec::new();
    // Whoever asks takes nobody's absence for a proof.
    let _is_complete = visit_processes(|stat| all.push(stat));
    rooted(&all, |stat| stat.parent == root)
}

/// Signals each process exactly once. One that is stopped is continued, or it would not hear a SIGTERM.
pub(super) fn signal_each(members: &[Stat], signal: Signal) {
    for member in members.iter().filter(|member| !member.is_dead()) {
        // A refusal (a member that changed its user) leaves it alive, and whoever proves emptiness sees it.
        let hit = signal_exactly(member.pid, member.start_ticks, signal).unwrap_or(false);
        if hit && signal != Signal::KILL && member.is_stopped() {
            let _continued = signal_exactly(member.pid, member.start_ticks, Signal::CONT);
        }
    }
}

/// SIGKILL for a group as one step of the kernel, against which no member can win a race by forking.
///
/// The caller must know that the number cannot have passed to another group: a process that only the caller can reap is
/// a member.
pub(super) fn kill_pinned_group(group: u32) {
    if let Some(group) = raw_pid(group) {
        // ESRCH or EPERM: what is left of it is looked for by whoever proves emptiness.
        let _left = kill_process_group(group, Signal::KILL);
    }
}

/// The living ones, as others see them. A process that does not answer in time, and those after it, are named by the
/// kernel's short name.
pub(super) fn as_members(stats: &[Stat]) -> Vec<Member> {
    let mut answers = true;
    let mut named = Vec::new();
    for stat in stats.iter().filter(|stat| !stat.is_dead()) {
        let pid = stat.pid;
        let line = answers
            .then(|| look::ask(move || command_line(pid)))
            .flatten();
        answers = line.is_some();
        named.push(Member {
            identity: identity(pid, stat.start_ticks),
            command_line: line.unwrap_or_else(|| short_name(pid)),
        });
    }
    // A short one may have ended since, and its successor be on the list as well.
    named.retain(|member| is_alive(&member.identity));
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, parent: u32) -> Stat {
        Stat {
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
    fn descendants_are_found_whatever_their_order_and_strangers_are_not() {
        let all = [stat(9, 7), stat(7, 5), stat(5, 1), stat(6, 1), stat(8, 6)];
        let mut found: Vec<_> = rooted(&all, |stat| stat.pid == 5)
            .iter()
            .map(|stat| stat.pid)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [5, 7, 9]);
    }

    #[test]
    fn a_cycle_of_reused_pids_ends() {
        let all = [stat(2, 3), stat(3, 2)];
        assert_eq!(rooted(&all, |stat| stat.pid == 2).len(), 2);
    }
}
