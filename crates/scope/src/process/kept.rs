//! The owner's side of a keeper: starting it, hearing it, and what to do should it be killed or not answer.
//!
//! Invariants:
//! 1. `ProcessTreeEmpty` is published only after the keeper has said `empty` and has itself ended.
//! 2. A keeper that ends without saying so takes the proof with it: its tree is killed by sweep, and only
//!    `ProcessGroupEmpty` is claimed.
//! 3. The socket closes with the driver, and so the keeper kills.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, Verified};
use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::process::{Child, Command as Program};
use tokio::sync::mpsc;
use tokio::sync::watch::Sender;
use tokio::time::sleep;

use super::driver::ProcessDriver;
use super::handle::{DetachError, DetachRequest, Lever, Shared, detach_channel};
use super::identity::{identity, identity_of};
use super::keeper::protocol::{Command, PACKET_BYTES_MAX, PATH_BYTES_MAX, Report};
use super::procfs::signal_exactly;
use super::readiness::{Watched, watch};
use super::spec::{KeeperProgram, LaunchError, ProcessSpec};
use super::start::{directory_error, prepare};
use super::status::{ExitInfo, Member, ProcessStatus};
use super::sweep::{EMPTY_SWEEPS, Sweep};
use super::tree::{as_members, descendants, signal_each};

/// How often the tree of a dead keeper is looked for again.
const SWEEP_REPEAT: Duration = Duration::from_millis(5);

struct KeptLever {
    socket: Arc<OwnedFd>,
    keeper: ProcessIdentity,
    /// In place of the keeper once that was killed.
    orphans: Arc<Mutex<Option<Arc<Sweep>>>>,
}

impl KeptLever {
    fn say(&self, command: &Command) {
        // Should somebody have stopped it. Where it has ended, the driver knows better.
        let _running = signal_exactly(self.keeper.pid, self.keeper.start_ticks, Signal::CONT);
        say(&self.socket, command);
    }
}

fn say(socket: &OwnedFd, command: &Command) {
    // A full socket holds hundreds of the same commands already; a closed one is seen by the driver.
    let _unheard = send(
        socket,
        &command.encode(),
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
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
    status: Sender<ProcessStatus>,
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
        let executable = keeper.executable.clone();
        directory_error(spec).unwrap_or(LaunchError::Keeper { executable, source })
    })?;
    // Closes this process's ends of pipe and socket.
    drop(command);
    let pid = child.id().unwrap_or_default();
    // Its child cannot be reaped by anybody else, so it is there to be looked at even if it has ended.
    let keeper = identity_of(pid).ok_or(LaunchError::KeeperLost)?;
    let socket = watch(Arc::clone(&ours)).map_err(LaunchError::setup("socket to the keeper"))?;
    let orphans = Arc::default();
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
        spec: spec.clone(),
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

struct Owner {
    spec: ProcessSpec,
    child: Child,
    keeper: u32,
    socket: Watched,
    orphans: Arc<Mutex<Option<Arc<Sweep>>>>,
    status: Sender<ProcessStatus>,
    detach_rx: mpsc::Receiver<DetachRequest>,
    detaching: Option<DetachRequest>,
    /// Published together with emptiness, so that a wait for that is never cut short.
    failed: Option<LaunchError>,
}

enum Event {
    Reported(Report),
    KeeperEnded,
    Detach(DetachRequest),
}

enum Next {
    Watch,
    Empty,
    Orphaned,
    LetGo,
}

impl Owner {
    async fn drive(mut self) {
        loop {
            let event = tokio::select! {
                report = hear(&self.socket) => report.map_or(Event::KeeperEnded, Event::Reported),
                Some(request) = self.detach_rx.recv(), if self.detaching.is_none() => Event::Detach(request),
            };
            match self.handle(event) {
                Next::Watch => {}
                Next::Empty => {
                    // It has nothing left to do, and its end is part of what is claimed.
                    self.end_keeper().await;
                    self.publish_empty(Verified::ProcessTreeEmpty);
                    return;
                }
                Next::Orphaned => return self.end_orphans().await,
                Next::LetGo => return,
            }
        }
    }

    fn handle(&mut self, event: Event) -> Next {
        match event {
            Event::Reported(report) => return self.handle_report(&report),
            Event::KeeperEnded => return Next::Orphaned,
            Event::Detach(request) => {
                match absolute(&request.output_file) {
                    Ok(path) => say(self.socket.get_ref(), &Command::Detach(path)),
                    Err(source) => {
                        answer_detach(request, |output_file| {
                            Err(DetachError::OutputFile {
                                output_file,
                                source,
                            })
                        });
                        return Next::Watch;
                    }
                }
                self.detaching = Some(request);
            }
        }
        Next::Watch
    }

    fn handle_report(&mut self, report: &Report) -> Next {
        match *report {
            Report::Started { pid, start_ticks } => {
                self.status
                    .send_modify(|now| now.main = Some(identity(pid, start_ticks)));
            }
            Report::Failed { errno } => {
                let source = io::Error::from_raw_os_error(errno);
                self.failed = Some(LaunchError::Program {
                    program: self.spec.program.clone(),
                    source,
                });
                return Next::Empty;
            }
            Report::Exited(exit) => self.status.send_modify(|now| now.exited = Some(exit)),
            Report::Empty => return Next::Empty,
            Report::Detached => {
                self.status.send_modify(|now| now.detached = true);
                if let Some(request) = self.detaching.take() {
                    answer_detach(request, |_| Ok(()));
                }
                return Next::LetGo;
            }
            Report::NotDetached { errno } => {
                if let Some(request) = self.detaching.take() {
                    let source = io::Error::from_raw_os_error(errno);
                    answer_detach(request, |output_file| {
                        Err(DetachError::OutputFile {
                            output_file,
                            source,
                        })
                    });
                }
            }
        }
        Next::Watch
    }

    async fn end_keeper(&mut self) {
        let _ended = self.child.start_kill();
        let _status = self.child.wait().await;
    }

    /// The keeper was killed: finds its tree without it and ends that.
    async fn end_orphans(&mut self) {
        self.end_keeper().await;
        let main = self.status.borrow().main.clone();
        let Some(main) = main else {
            // Killed before it said that it had started anything. If it had, the command died with it (the death signal)
            // unless it forked at once; the marker finds what is left.
            self.failed = Some(LaunchError::KeeperLost);
            return self.sweep_away(identity(self.keeper, 0)).await;
        };
        self.sweep_away(main).await;
    }

    async fn sweep_away(&mut self, main: ProcessIdentity) {
        let sweep = Arc::new(Sweep::of_orphans(
            Arc::clone(&self.spec.marker),
            main,
            self.keeper,
        ));
        *self.orphans.lock() = Some(Arc::clone(&sweep));
        let mut empty_sweeps = 0;
        loop {
            let members = sweep.members();
            empty_sweeps = if members.is_empty() {
                empty_sweeps + 1
            } else {
                0
            };
            if empty_sweeps >= EMPTY_SWEEPS {
                break;
            }
            signal_each(&members, Signal::KILL);
            sleep(SWEEP_REPEAT).await;
        }
        self.publish_empty(Verified::ProcessGroupEmpty);
    }

    fn publish_empty(&mut self, verified: Verified) {
        let failed = self.failed.take().map(Arc::new);
        self.status.send_modify(|now| {
            if failed.is_none() {
                now.exited.get_or_insert(ExitInfo::Unknown);
            }
            now.failed = failed;
            now.empty = Some(verified);
        });
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Handles keep the socket open; what ends the tree of a dropped driver is this. After a detach it changes nothing.
        let _closed = shutdown(self.socket.get_ref(), Shutdown::Both);
    }
}

fn answer_detach(request: DetachRequest, answer: impl FnOnce(PathBuf) -> Result<(), DetachError>) {
    // Whoever asked may have stopped waiting.
    let _unheard = request.reply.send(answer(request.output_file));
}

/// The keeper has a directory of its own, and a packet holds a path of the system's longest.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if path.as_os_str().len() > PATH_BYTES_MAX {
        Err(io::ErrorKind::InvalidFilename.into())
    } else {
        Ok(path)
    }
}

/// The next report; `None` when the keeper's end of the socket is closed.
///
/// Cancel safe: a packet is taken only by the poll that returns it.
async fn hear(socket: &Watched) -> Option<Report> {
    let mut packet = [0; PACKET_BYTES_MAX];
    loop {
        let received = socket
            .async_io(Interest::READABLE, |socket| {
                Ok(recv(socket, &mut packet[..], RecvFlags::DONTWAIT)?)
            })
            .await;
        match received {
            Ok((_, len @ 1..)) => {
                if let Some(report) = packet.get(..len).and_then(Report::decode) {
                    return Some(report);
                }
            }
            Ok(_) | Err(_) => return None,
        }
    }
}
