//! Process trees that can be ended completely, with proof. No process outside the tree is ended.
//!
//! [`launch()`] starts a command and returns three parts. The [`ProcessHandle`] signals the command and waits for it.
//! The [`ProcessDriver`] watches the command, and must be spawned. The [`OutputReader`] reads the output of the
//! command. [`reattach`] returns a handle and a driver for a tree that an earlier process left running.
//!
//! ```
//! use allstop_process::{ProcessSpec, launch};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = ProcessSpec::new("sh", "a unique text");
//! let script = "sleep 100 & echo started; sleep 100";
//! let (handle, driver, mut output) = launch(spec.args(["-c", script]))?;
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
//! **Keeper** (Linux). A small helper process, the keeper, starts the command. The keeper is a *child subreaper*: if
//! the parent of a descendant ends, the descendant becomes a child of the keeper. The process group, session and
//! environment of the descendant do not matter. Therefore the keeper knows all descendants. When the kernel reports
//! that the keeper has no child left, the tree is empty. `EndProof::ProcessTreeEmpty` is that proof. The keeper has a
//! socket to its owner, the process that launched the command. When that socket closes, even if the owner was killed
//! with SIGKILL, the keeper kills the tree at once and exits. The program that uses this crate also runs as the keeper:
//! see [`keeper_main`].
//!
//! **Group and marker** (Linux). For use inside another program: this level needs no helper process, and does not
//! change any attribute of that program. The command gets a process group, and a marker (a unique value) in its
//! environment. Sweeps, which are searches of all processes in `/proc`, find the members of the tree.
//! `EndProof::ProcessGroupEmpty` means that the sweeps found no member. A process escapes the sweeps if it has left the
//! group and the session, has cleared its environment, and has lost its parent. If the owner is killed with SIGKILL,
//! the tree continues to run.
//!
//! **Group** (elsewhere). The process group alone.
//!
//! **Custom**. The caller's own [`TreeLauncher`], such as the simulated system of the test kit.
//!
//! If a process asks a service to start another process (a container engine, `systemd-run`, `at`, a running `tmux`
//! server), the new process is outside every level of containment. The child of a process that has entered another PID
//! namespace (`nsenter`) is also outside, after its parent has ended. After a stop, a sweep finds and kills such
//! processes if they still carry the marker. The proof is then only `ProcessGroupEmpty`.
//!
//! # Invariants
//!
//! 1. A signal is sent only to a process whose pid *and* start time match. The signal is sent through a descriptor that
//!    was opened before the comparison. A signal to a group requires that the group has a member that only the sender
//!    can reap.
//! 2. The field `empty` of the status is published once, after all other facts, and only after the proof that its value
//!    names.
//! 3. No tree runs unwatched: dropping the driver kills the tree, unless the tree was detached.
//! 4. No descendant delays the end of the command's output.
//!
//! # Cancel safety
//!
//! Every wait and every read can be dropped without loss. Once the driver has received a request to detach, the request
//! is carried out, even if the future is dropped. Dropping the driver itself kills the tree.

#[cfg(target_os = "linux")]
mod command_slots;
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
mod reservation;
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
    ExitInfo, MarkedProcess, MarkedSearch, ProcessSignal, ProcessStatus, ProcessWaitError,
    SearchReason, TreeMember,
};
pub use status_channel::{StatusReceiver, StatusSender};
