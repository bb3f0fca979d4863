//! Identity of a process: a pid alone is reused, a pid with its start time and boot is not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process of this machine, told apart from a later one with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ProcessIdentity {
    /// The pid.
    pub pid: u32,
    /// Its start, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// The boot it belongs to (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: std::sync::Arc<str>,
}
