//! Identity of this process for the owner record of a lock, and a check if another owner runs.

use std::fs;
use std::sync::{Arc, OnceLock};

use allstop_core::process::ProcessIdentity;

/// Identity of this process. Without `/proc`, start and boot are empty; the lock itself still distinguishes owners.
pub(crate) fn this_process() -> &'static ProcessIdentity {
    static THIS: OnceLock<ProcessIdentity> = OnceLock::new();
    THIS.get_or_init(|| {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        ProcessIdentity {
            pid: std::process::id(),
            start_ticks: start_ticks(&stat).unwrap_or(0),
            boot_id: Arc::from(boot.trim()),
        }
    })
}

/// Field 22 of `/proc/PID/stat`. Field 2, the command, may contain spaces and `)`: count after the last `)`.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// True if this process is known to run. False for a process of another boot, machine or pid namespace, for one that
/// `/proc` does not show, and for a zombie.
pub(crate) fn is_seen_alive(owner: &ProcessIdentity) -> bool {
    let boot = &this_process().boot_id;
    if boot.is_empty() || owner.boot_id != *boot {
        return false;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", owner.pid)).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    let has_ended = state.is_none_or(|state| state.starts_with(['Z', 'X', 'x']));
    !has_ended && start_ticks(&stat) == Some(owner.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_reused_pid_and_another_boot_are_not_the_owner() {
        let ours = this_process().clone();
        assert!(is_seen_alive(&ours));
        let start_ticks = ours.start_ticks + 1;
        assert!(!is_seen_alive(&ProcessIdentity {
            start_ticks,
            ..ours.clone()
        }));
        let boot_id = Arc::from("another");
        assert!(!is_seen_alive(&ProcessIdentity { boot_id, ..ours }));
    }

    #[test]
    fn start_ticks_are_found_behind_parentheses_in_the_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(start_ticks(stat), Some(4242));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_known() {
        assert_eq!(this_process().pid, std::process::id());
        assert_ne!(this_process().start_ticks, 0);
        assert!(!this_process().boot_id.is_empty());
    }
}
