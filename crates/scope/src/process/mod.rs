//! Child processes that can be ended for certain: the whole tree, and nothing but the tree.
//!
//! [`launch`] starts a command and gives three things: a [`ProcessHandle`] to signal it and wait for it, a
//! [`ProcessDriver`] to spawn, which watches it, and an [`OutputReader`] for what it prints.
//!
//! # Levels of containment
//!
//! **Keeper** (Linux). The command is started by a small process of its own, its keeper, that is a *child subreaper*: a
//! descendant whose parent ends falls to the keeper, whatever group, session or environment it has made for itself. So
//! the keeper knows all of them, and when the kernel says that it has no child left, the tree is empty:
//! `Verified::ProcessTreeEmpty` is that proof. The keeper holds a socket to its owner; when that closes, also because the
//! owner was killed with SIGKILL, it kills the tree at once and ends.
//!
//! **Group and marker** (Linux). For use inside somebody else's program: no helper program, and no attribute of that
//! process is changed. The command gets a process group and a marker in its environment; members are found by a sweep of
//! `/proc`. `Verified::ProcessGroupEmpty` says that the group has no member and that the sweep found nothing; a process
//! that left group, session, environment and parent behind is not found. Nobody ends such a tree when its owner is killed
//! with SIGKILL.
//!
//! **Group** (elsewhere). The process group alone.
//!
//! **Simulated**. For tests: no process, but a double of *group and marker* that claims what that would claim.
//!
//! What starts a process through a service (a container engine, `systemd-run`, `at`) starts it outside every level.
//!
//! # Invariants
//!
//! 1. A signal is sent only to a process whose pid *and* start time are those that were seen, through a descriptor that
//!    was opened before the comparison; or to a group that a process which only the sender can reap is a member of.
//! 2. `empty` is published once, last, and only by the proof that its value names.
//! 3. Nothing runs unwatched: dropping the driver kills the tree, unless it was detached.
//! 4. No descendant delays the end of the command's output.

mod driver;
#[cfg(target_os = "linux")]
mod found;
#[cfg(not(target_os = "linux"))]
#[path = "found_portable.rs"]
mod found;
mod found_error;
mod handle;
mod identity;
pub mod keeper;
#[cfg(target_os = "linux")]
mod keeper_client;
mod output;
mod simulated;
mod spec;
mod status;
mod status_channel;

#[cfg(target_os = "linux")]
mod group;
#[cfg(not(target_os = "linux"))]
#[path = "group_portable.rs"]
mod group;
#[cfg(target_os = "linux")]
mod keeper_launch;
#[cfg(target_os = "linux")]
mod keepers;
#[cfg(not(target_os = "linux"))]
#[path = "keepers_portable.rs"]
mod keepers;
#[cfg(target_os = "linux")]
mod look;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(target_os = "linux")]
mod procfs;
#[cfg(target_os = "linux")]
mod readiness;
mod start;
#[cfg(target_os = "linux")]
mod sweep;
#[cfg(target_os = "linux")]
mod tree;

pub use driver::ProcessDriver;
pub use found::{find_again, survivor};
pub use found_error::FindError;
pub use handle::{DetachError, ProcessHandle};
pub use identity::{identity_of, is_alive, is_of_this_boot, signal};
pub use keepers::Keepers;
pub use output::OutputReader;
pub use simulated::{SimulatedLife, SimulatedProcesses, SimulatedTree};
pub use spec::{ContainmentChoice, KeeperProgram, LaunchError, MARKER_VARIABLE, ProcessSpec};
pub use start::launch;
pub use status::{ExitInfo, Member, ProcessStatus, Signal, Unobserved};
pub use status_channel::StatusReceiver;
