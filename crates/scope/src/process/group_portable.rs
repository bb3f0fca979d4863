//! The level `group`, where there is no `/proc`: an own process group, and nothing else is known of the tree.

use std::io::PipeWriter;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, Verified};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::process::{Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::driver::ProcessDriver;
use super::handle::{Lever, Shared, detach_channel};
use super::identity::{identity, raw_pid};
use super::spec::{LaunchError, ProcessSpec};
use super::start::{directory_error, prepare};
use super::status::{ExitInfo, Member};
use super::status_channel::StatusSender;

/// How often a group is asked whether it has members: there is no event for that here.
const LOOK_MIN: Duration = Duration::from_millis(2);
/// The slowest that the pause grows to, for descendants that stay for long.
const LOOK_MAX: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
struct GroupLever(u32);

impl GroupLever {
    fn signal(self, signal: Signal) {
        if let Some(group) = raw_pid(self.0) {
            let _gone = kill_process_group(group, signal);
        }
    }

    fn is_empty(self) -> bool {
        raw_pid(self.0).is_none_or(|group| test_kill_process_group(group).is_err())
    }
}

impl Lever for GroupLever {
    fn ask(&self) {
        self.signal(Signal::TERM);
    }

    fn force(&self) {
        self.signal(Signal::KILL);
    }

    fn members(&self) -> BoxFuture<'static, Vec<Member>> {
        let member = |identity: ProcessIdentity| Member {
            command_line: format!("process group {}", identity.pid),
            identity,
        };
        let members = self.known().into_iter().map(member).collect();
        std::future::ready(members).boxed()
    }

    fn known(&self) -> Vec<ProcessIdentity> {
        if self.is_empty() {
            return Vec::new();
        }
        vec![identity(self.0, 0)]
    }
}

pub(super) fn launch(
    spec: &ProcessSpec,
    output: PipeWriter,
    status: StatusSender,
) -> Result<(Arc<Shared>, ProcessDriver), LaunchError> {
    let mut program = Command::new(&spec.program);
    program.args(&spec.args);
    let mut command = prepare(program, spec, output)?;
    let child = command.spawn().map_err(|source| {
        directory_error(spec).unwrap_or_else(|| LaunchError::Program {
            program: spec.program.clone(),
            source,
        })
    })?;
    drop(command);
    let pid = child.id().unwrap_or_default();
    status.send_modify(|now| now.main = Some(identity(pid, 0)));
    let lever = GroupLever(pid);
    let (detach_tx, _) = detach_channel();
    let shared = Shared::new(
        Arc::clone(&spec.marker),
        Containment::Group,
        None,
        Box::new(lever),
        detach_tx,
    );
    let guard = KillOnDrop(Some(lever));
    Ok((
        Arc::clone(&shared),
        ProcessDriver::new(drive(child, guard, shared, status)),
    ))
}

/// Kills the group of a driver that is dropped early; taken once the group is known to be empty.
struct KillOnDrop(Option<GroupLever>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(lever) = self.0 {
            lever.signal(Signal::KILL);
        }
    }
}

async fn drive(mut child: Child, mut guard: KillOnDrop, shared: Arc<Shared>, status: StatusSender) {
    let exit = match child.wait().await {
        Ok(ended) => match (ended.code(), ended.signal()) {
            (Some(code), _) => ExitInfo::Code(code),
            (None, Some(signal)) => ExitInfo::Signal(signal),
            (None, None) => ExitInfo::Unknown,
        },
        Err(_) => ExitInfo::Unknown,
    };
    status.send_modify(|now| now.exited = Some(exit));
    let mut pause = LOOK_MIN;
    while guard.0.is_some_and(|lever| !lever.is_empty()) {
        tokio::select! {
            () = sleep(pause) => pause = LOOK_MAX.min(pause * 2),
            () = shared.forced.notified() => pause = LOOK_MIN,
        }
    }
    guard.0 = None;
    status.send_modify(|now| now.set_empty(Verified::ProcessGroupEmpty));
}
