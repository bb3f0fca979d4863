//! Process trees that can be ended for certain, and proved gone: the whole tree, and nothing but the tree.
//!
//! [`launch()`] starts a command and returns three parts: a [`ProcessHandle`] to signal it and wait for it, a
//! [`ProcessDriver`] to spawn, which watches it, and an [`OutputReader`] for its output. [`reattach`] returns handle and
//! driver of a tree that an earlier process left running.
//!
//! ```
//! use allstop_process::{ContainmentChoice, ProcessSpec, launch};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (handle, driver, mut output) = launch(ProcessSpec {
//!     program: "sh".into(),
//!     args: vec!["-c".into(), "sleep 100 & echo started; sleep 100".into()],
//!     cwd: "/".into(),
//!     env: Vec::new(),
//!     env_hidden: Vec::new(),
//!     marker: "a unique text".into(),
//!     containment: ContainmentChoice::GroupAndMarker,
//! })?;
//! # #[expect(clippy::disallowed_methods, reason = "an example for any tokio program")]
//! let watching = tokio::spawn(driver);
//! let mut buffer = [0; 16];
//! assert_eq!(output.read(&mut buffer).await?, "started\n".len());
//!
//! handle.ask(); // SIGTERM to every process of the tree; `force` sends SIGKILL
//! let proof = handle.wait_empty().await?;
//! assert_eq!(proof.as_str(), "process_group_empty");
//! assert!(handle.members().await.is_empty());
//! # watching.await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Levels of containment
//!
//! **Keeper** (Linux). A small helper process, the keeper, starts the command. It is a *child subreaper*: a descendant
//! whose parent ends becomes a child of the keeper, in whatever group, session or environment it is. So the keeper knows
//! all of them, and when the kernel says that it has no child left, the tree is empty: `EndProof::ProcessTreeEmpty` is
//! that proof. The keeper holds a socket to its owner; when that closes, also because the owner was killed with SIGKILL,
//! it kills the tree at once and ends. The program that embeds this crate offers the keeper: [`keeper_main`].
//!
//! **Group and marker** (Linux). For use inside another program: no helper process, and no attribute of that program is
//! changed. The command gets a process group and a marker in its environment; sweeps of `/proc` find its members.
//! `EndProof::ProcessGroupEmpty` says that the sweeps found none; a process that left group, session, environment and
//! parent behind is not found. If its owner is killed with SIGKILL, the tree runs on.
//!
//! **Group** (elsewhere). The process group alone.
//!
//! **Custom**. A [`TreeLauncher`] of the caller's own, such as the simulated system of the test kit.
//!
//! A process that a service starts on request (a container engine, `systemd-run`, `at`, a running `tmux` server) is outside
//! every level. So is the child of a process that has entered another PID namespace (`nsenter`) once its parent has ended.
//! After a stop those are found that still carry the marker; they are killed, and only `ProcessGroupEmpty` is claimed.
//!
//! # Invariants
//!
//! 1. A signal is sent only to a process whose pid *and* start time are those that were seen, through a descriptor that
//!    was opened before the comparison; or to a group that a process which only the sender can reap is a member of.
//! 2. `empty` is published once, last, and only by the proof that its value names.
//! 3. Nothing runs unwatched: dropping the driver kills the tree, unless it was detached.
//! 4. No descendant delays the end of the command's output.
//!
//! # Cancel safety
//!
//! Every wait and every read can be dropped without loss. A detach that the driver has taken is carried out, whether or
//! not anyone waits for its answer. The driver itself kills the tree when it is dropped.

mod containment;
mod driver;
mod group_command;
mod handle;
mod identity;
mod keeper_program;
mod launch;
mod launch_error;
mod output;
mod reattach_error;
mod spec;
mod status;
mod status_channel;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
mod portable;
#[cfg(not(target_os = "linux"))]
use portable as platform;

pub use containment::{ContainedTree, DetachTreeError, TreeContainment, TreeLauncher};
pub use driver::ProcessDriver;
pub use handle::ProcessHandle;
pub use identity::{is_of_this_boot, is_out_of_view, this_process};
pub use keeper_program::{DETACHED_OUTPUT_BYTES_MAX, KeeperProgram};
pub use launch::launch;
pub use launch_error::LaunchError;
pub use output::{OutputReader, OutputSource};
pub use platform::{
    Keepers, all_processes, child_processes, identity_of, is_alive, keeper_main, reattach, signal,
    survivor,
};
pub use reattach_error::ReattachError;
pub use spec::{ContainmentChoice, MARKER_VARIABLE, ProcessSpec};
pub use status::{
    ExitInfo, ProcessSignal, ProcessStatus, ProcessWaitError, SearchReason, TreeMember,
};
pub use status_channel::{StatusReceiver, StatusSender};
