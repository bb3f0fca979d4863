//! The containment level `group`: a dedicated process group, without any other information about the tree.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, EndProof};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::process::{Signal, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::containment::{ContainedTree, TreeContainment, TreeLauncher};
use crate::driver::ProcessDriver;
use crate::group_command::spawn_group;
use crate::identity::{identity, raw_pid};
use crate::launch_error::LaunchError;
use crate::output::output_pipe;
use crate::spec::ProcessSpec;
use crate::status::{ExitInfo, TreeMember};
use crate::status_channel::StatusSender;

/// First pause between two checks whether a group still has members. The checks are needed because the system sends no
/// event.
const LOOK_MIN: Duration = Duration::from_millis(2);
/// Longest pause between two checks, if descendants run for a long time.
const LOOK_MAX: Duration = Duration::from_millis(200);

/// Launches trees at this level.
#[derive(Debug)]
pub(crate) struct PortableGroups;

struct PortableGroup {
    leader: u32,
    /// Wakes the driver after a call of `force`.
    forced: Notify,
}

impl PortableGroup {
    fn signal(&self, signal: Signal) {
        if let Some(group) = raw_pid(self.leader) {
            let _gone = kill_process_group(group, signal);
        }
    }

    fn is_empty(&self) -> bool {
        raw_pid(self.leader).is_none_or(|group| test_kill_process_group(group).is_err())
    }
}

impl TreeContainment for PortableGroup {
    fn level(&self) -> Containment {
        Containment::Group
    }

    fn ask(&self) {
        self.signal(Signal::TERM);
    }

    fn force(&self) {
        self.signal(Signal::KILL);
        self.forced.notify_one();
    }

    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>> {
        let member = |identity: ProcessIdentity| TreeMember {
            command_line: format!("process group {}", identity.pid),
            identity,
        };
        let members = self.known_members().into_iter().map(member).collect();
        std::future::ready(members).boxed()
    }

    fn known_members(&self) -> Vec<ProcessIdentity> {
        if self.is_empty() {
            return Vec::new();
        }
        vec![identity(self.leader, 0)]
    }
}

impl TreeLauncher for PortableGroups {
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        let (output, writer) = output_pipe()?;
        let child = spawn_group(spec, writer)?;
        let leader = child.id().unwrap_or_default();
        status.started(identity(leader, 0));
        let group = Arc::new(PortableGroup {
            leader,
            forced: Notify::new(),
        });
        let guard = KillOnDrop(Some(Arc::clone(&group)));
        Ok(ContainedTree {
            containment: group,
            driver: ProcessDriver::new(drive(child, guard, status)),
            output,
        })
    }
}

/// Kills the group if the driver is dropped early. `None` after the group is known to be empty.
struct KillOnDrop(Option<Arc<PortableGroup>>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            group.signal(Signal::KILL);
        }
    }
}

async fn drive(mut child: Child, mut guard: KillOnDrop, status: StatusSender) {
    let exit = match child.wait().await {
        Ok(ended) => ExitInfo::new(ended.code(), ended.signal()),
        Err(_) => ExitInfo::Unknown,
    };
    status.exited(exit);
    let mut pause = LOOK_MIN;
    while let Some(group) = &guard.0
        && !group.is_empty()
    {
        tokio::select! {
            () = sleep(pause) => pause = LOOK_MAX.min(pause * 2),
            () = group.forced.notified() => pause = LOOK_MIN,
        }
    }
    guard.0 = None;
    status.emptied(EndProof::ProcessGroupEmpty);
}
