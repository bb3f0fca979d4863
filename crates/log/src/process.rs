//! Who this process is, for the owner record of a lock.

use std::fs;
use std::sync::{Arc, OnceLock};

use allstop_core::process::ProcessIdentity;

/// This process. Where there is no `/proc`, start and boot are left empty: the lock itself still tells owners apart.
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

/// Field 22. The command's name, field 2, may hold spaces and brackets, so counting starts after its last bracket.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_ticks_survive_a_name_with_brackets() {
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
