//! Process trees that can be ended completely, with proof. Only processes of the tree are ended.
//!
//! [`launch()`] starts a command and returns three parts: a [`ProcessHandle`] to signal it and wait for it, a
//! [`ProcessDriver`] to spawn, which watches it, and an [`OutputReader`] for its output. [`reattach`] returns handle
//! and driver of a tree that an earlier process left running.
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
//! **Keeper** (Linux). A small helper process, the keeper, starts the command. The keeper is a *child subreaper*: a
//! descendant whose parent ends becomes a child of the keeper, in any group, session or environment. Therefore the
//! keeper knows all descendants. When the kernel reports that the keeper has no child left, the tree is empty;
//! `EndProof::ProcessTreeEmpty` is that proof. The keeper holds a socket to its owner. When that socket closes, even
//! because the owner was killed with SIGKILL, the keeper kills the tree at once and exits. The program that embeds this
//! crate provides the keeper: [`keeper_main`].
//!
//! **Group and marker** (Linux). For use inside another program: no helper process, and no change to the attributes of
//! that program. The command gets a process group and a marker in its environment; sweeps of `/proc` find its members.
//! `EndProof::ProcessGroupEmpty` means that the sweeps found none. The sweeps do not find a process that has left the
//! group, the session, the environment and the parent. If the owner is killed with SIGKILL, the tree continues to run.
//!
//! **Group** (elsewhere). The process group alone.
//!
//! **Custom**. The caller's own [`TreeLauncher`], such as the simulated system of the test kit.
//!
//! A process that a service starts on request (a container engine, `systemd-run`, `at`, a running `tmux` server) is
//! outside every level. The same applies to the child of a process that has entered another PID namespace (`nsenter`),
//! once its parent has ended. After a stop, a sweep finds and kills such processes if they still carry the marker; then
//! only `ProcessGroupEmpty` is claimed.
//!
//! # Invariants
//!
//! 1. A signal is sent only to a process whose pid *and* start time match, through a descriptor that was opened before
//!    the comparison. A signal to a group requires a member that only the sender can reap.
//! 2. `empty` is published once, last, and only by the proof that its value names.
//! 3. No tree runs unwatched: dropping the driver kills the tree, unless it was detached.
//! 4. No descendant delays the end of the command's output.
//!
//! # Cancel safety
//!
//! Every wait and every read can be dropped without loss. Once the driver has received a detach, the detach is carried
//! out, even if the future is dropped. Dropping the driver itself kills the tree.

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
    Keepers, all_processes, child_processes, identity_of, is_alive, keeper_main, marked_processes,
    reattach, signal, survivor,
};
pub use reattach_error::ReattachError;
pub use spec::{ContainmentChoice, MARKER_VARIABLE, ProcessSpec};
pub use status::{
    ExitInfo, ProcessSignal, ProcessStatus, ProcessWaitError, SearchReason, TreeMember,
};
pub use status_channel::{StatusReceiver, StatusSender};
