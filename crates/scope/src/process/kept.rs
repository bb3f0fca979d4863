//! Starting a keeper, and reaching its tree through it.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Containment;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;
use tokio::process::Command as Program;

use super::driver::ProcessDriver;
use super::handle::{Lever, Shared, detach_channel};
use super::identity::identity_of;
use super::keeper::protocol::Command;
use super::owner::{Orphans, Owner, say};
use super::procfs::signal_exactly;
use super::readiness::watch;
use super::spec::{KeeperProgram, LaunchError, ProcessSpec};
use super::start::{directory_error, prepare};
use super::status::Member;
use super::status_channel::StatusSender;
use super::tree::{as_members, descendants};

struct KeptLever {
    socket: Arc<OwnedFd>,
    keeper: ProcessIdentity,
    orphans: Orphans,
}

impl KeptLever {
    fn say(&self, command: &Command) {
        // Should somebody have stopped it. Where it has ended, the driver knows better.
        let _running = signal_exactly(self.keeper.pid, self.keeper.start_ticks, Signal::CONT);
        say(&self.socket, command);
    }
}

impl Lever for KeptLever {
    fn ask(&self) {
        self.say(&Command::Ask);
    }

    fn force(&self) {
        self.say(&Command::Force);
    }

    fn members(&self) -> Vec<Member> {
        let orphans = self.orphans.lock().clone();
        match orphans {
            Some(sweep) => as_members(&sweep.members()),
            None => as_members(&descendants(self.keeper.pid)),
        }
    }
}

pub(super) fn launch(
    spec: &ProcessSpec,
    keeper: &KeeperProgram,
    output: io::PipeWriter,
    status: StatusSender,
) -> Result<(Arc<Shared>, ProcessDriver), LaunchError> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| LaunchError::setup("socket to the keeper")(errno.into()))?;
    let ours = Arc::new(ours);
    let mut program = Program::new(&keeper.executable);
    program
        .args(&keeper.args)
        .arg(&spec.program)
        .args(&spec.args);
    let mut command = prepare(program, spec, output)?;
    command.stdin(Stdio::from(theirs));
    let child = command.spawn().map_err(|source| {
        directory_error(spec).unwrap_or_else(|| match source.kind() {
            // What the keeper is given is the command, so it is the command that cannot be passed on.
            io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
                LaunchError::Program {
                    program: spec.program.clone(),
                    source,
                }
            }
            _ => LaunchError::Keeper {
                executable: keeper.executable.clone(),
                source,
            },
        })
    })?;
    // Closes this process's ends of pipe and socket.
    drop(command);
    let pid = child.id().unwrap_or_default();
    // Its child cannot be reaped by anybody else, so it is there to be looked at even if it has ended.
    let keeper = identity_of(pid).ok_or(LaunchError::KeeperLost)?;
    let socket = watch(Arc::clone(&ours)).map_err(LaunchError::setup("socket to the keeper"))?;
    let orphans = Orphans::default();
    let lever = KeptLever {
        socket: Arc::clone(&ours),
        keeper: keeper.clone(),
        orphans: Arc::clone(&orphans),
    };
    let (detach_tx, detach_rx) = detach_channel();
    let marker = Arc::clone(&spec.marker);
    let shared = Shared::new(
        marker,
        Containment::Keeper,
        Some(keeper),
        Box::new(lever),
        detach_tx,
    );
    let owner = Owner {
        program: spec.program.clone(),
        marker: Arc::clone(&spec.marker),
        child,
        keeper: pid,
        socket,
        orphans,
        status,
        detach_rx,
        detaching: None,
        failed: None,
    };
    Ok((shared, ProcessDriver::new(owner.drive())))
}
