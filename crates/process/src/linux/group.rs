//! The containment level `group_and_marker`: a dedicated process group, a marker (a unique value) in the environment,
//! and sweeps, which are searches of all processes in `/proc`.

use std::io;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Containment;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tokio::process::Child;
use tokio::sync::Notify;

use crate::containment::{ContainedTree, TreeContainment, TreeLauncher};
use crate::driver::ProcessDriver;
use crate::group_command::spawn_group;
use crate::identity::{identity, raw_pid};
use crate::launch_error::LaunchError;
use crate::output::output_pipe;
use crate::spec::ProcessSpec;
use crate::status::TreeMember;
use crate::status_channel::StatusSender;

use super::group_driver::GroupDriver;
use super::procfs::stat;
use super::procfs_reader::{read_on_thread, start_on_thread};
use super::readiness::{WatchedDescriptor, watch};
use super::sweep::TreeSweep;
use super::tree::{KnownMembers, as_members, signal_each};

/// Launches trees at this level.
#[derive(Debug)]
pub(crate) struct ProcessGroups;

/// Access to the members of a group, and to members of the same tree that have left the group.
pub(super) struct GroupContainment {
    pub(super) sweep: Arc<TreeSweep>,
    pub(super) known: Arc<KnownMembers>,
    /// Wakes the driver after a call of `force`.
    pub(super) forced: Notify,
}

impl TreeContainment for GroupContainment {
    fn level(&self) -> Containment {
        Containment::GroupAndMarker
    }

    fn ask(&self) {
        let sweep = Arc::clone(&self.sweep);
        let ask = move || signal_each(&sweep.members(), Signal::TERM);
        if start_on_thread(ask.clone()).is_none() {
            // If the system provides no thread, it is better to block the caller than to send no signal.
            ask();
        }
    }

    // Kills only the group. The driver then finds and kills members that have left the group.
    fn force(&self) {
        self.sweep.kill_group();
        self.forced.notify_one();
    }

    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>> {
        let (sweep, known) = (Arc::clone(&self.sweep), Arc::clone(&self.known));
        let read = move || {
            let found = sweep.members();
            known.set_stats(&found);
            as_members(&found)
        };
        read_on_thread(read).map(Option::unwrap_or_default).boxed()
    }

    fn known_members(&self) -> Vec<ProcessIdentity> {
        self.known.get()
    }
}

impl TreeLauncher for ProcessGroups {
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        launch(spec, status, identify)
    }
}

fn launch(
    spec: &ProcessSpec,
    status: StatusSender,
    identify: impl FnOnce(&Child) -> io::Result<(ProcessIdentity, WatchedDescriptor)>,
) -> Result<ContainedTree, LaunchError> {
    let (output, writer) = output_pipe()?;
    let child = spawn_group(spec, writer)?;
    let (main, descriptor) = match identify(&child) {
        Ok(identified) => identified,
        Err(source) => {
            kill_unidentified(spec, &child);
            return Err(LaunchError::setup("descriptor")(source));
        }
    };
    status.started(main.clone());
    let containment = Arc::new(GroupContainment {
        sweep: Arc::new(TreeSweep::of_child(Arc::clone(&spec.marker), main.clone())),
        known: Arc::default(),
        forced: Notify::new(),
    });
    containment.known.set(vec![main]);
    let driver = GroupDriver::new(child, descriptor, Arc::clone(&containment), status);
    Ok(ContainedTree {
        containment,
        driver: ProcessDriver::new(driver.drive()),
        output,
    })
}

/// Identity of a new child, and a descriptor that becomes readable when the child exits. Fails if no descriptor is
/// free.
fn identify(child: &Child) -> io::Result<(ProcessIdentity, WatchedDescriptor)> {
    let main = child
        .id()
        .and_then(stat)
        .ok_or(io::Error::from(io::ErrorKind::NotFound))?;
    let raw = raw_pid(main.pid).ok_or(io::ErrorKind::NotFound)?;
    let descriptor = watch(Arc::new(pidfd_open(raw, PidfdFlags::empty())?))?;
    Ok((identity(main.pid, main.start_ticks), descriptor))
}

/// Kills a command that cannot be watched. The child is not reaped yet, so no other group can have the number of its
/// group.
fn kill_unidentified(spec: &ProcessSpec, child: &Child) {
    if let Some(pid) = child.id() {
        let sweep = TreeSweep::of_child(Arc::clone(&spec.marker), identity(pid, 0));
        sweep.kill(&sweep.members());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::linux::procfs::visit_processes;
    use crate::spec::ContainmentChoice;
    use crate::status_channel::status_channel;

    /// If a launch fails after the command has started, no process of the command is left.
    #[tokio::test]
    async fn a_command_that_cannot_be_identified_is_killed() {
        let spec = ProcessSpec {
            program: "sh".into(),
            args: vec!["-c".into(), "sleep 1000 & wait".into()],
            cwd: "/".into(),
            env: Vec::new(),
            env_hidden: Vec::new(),
            marker: Arc::from("unidentified"),
            containment: ContainmentChoice::GroupAndMarker,
        };
        let (status, _seen) = status_channel();
        let mut started = None;
        let launched = launch(&spec, status, |child| {
            started = child.id();
            Err(io::ErrorKind::NotFound.into())
        });
        assert!(matches!(launched, Err(LaunchError::Setup { .. })));
        let group = started.expect("the command has started");
        let began = Instant::now();
        loop {
            let mut living = 0;
            visit_processes(|stat| living += u32::from(stat.group == group && !stat.is_dead()));
            if living == 0 {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(5), "it runs on");
            tokio::task::yield_now().await;
        }
    }
}
