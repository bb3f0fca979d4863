//! Identity of a process: the kernel reuses a pid, but never with the same start time and boot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process on this machine, distinct from a later one with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// Id of the boot (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: std::sync::Arc<str>,
    /// PID namespace in which the pid counts (inode of `/proc/PID/ns/pid`); absent in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
}
