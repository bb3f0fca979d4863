//! Evidence from outside the demo's Allstop processes: processes in `/proc`, and files that the shells of the tasks
//! write.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_process::{all_processes, is_alive};

/// Time to wait for a sign of life. A living shell rewrites its file about six times in this time.
const SILENCE: Duration = Duration::from_millis(300);

/// Number of processes whose command line contains this text.
pub(super) fn processes_that_name(text: &str) -> u64 {
    let all = all_processes().into_iter();
    all.filter(|member| member.command_line.contains(text))
        .count() as u64
}

/// Number of the given processes that still run.
pub(super) fn still_alive(seen: &[ProcessIdentity]) -> u64 {
    seen.iter().filter(|identity| is_alive(identity)).count() as u64
}

/// Reads the pid that a shell has written into this file.
pub(super) fn pid_in(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// Checks if a shell shows a sign of life within [`SILENCE`]: 1 if the file changes, otherwise 0.
pub(super) async fn signs_of_life(path: &Path) -> u64 {
    let sign = || fs::read(path).unwrap_or_default();
    let before = sign();
    tokio::time::sleep(SILENCE).await;
    u64::from(sign() != before)
}

/// Lines of the ledger, in which each task writes a line, with the number of occurrences of each line.
pub(super) fn ledger(path: &Path) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    lines
}
