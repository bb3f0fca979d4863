//! The driver of a tree with a keeper: hears the keeper, and ends the tree without it should it be killed.
//!
//! Invariants:
//! 1. `ProcessTreeEmpty` is published only after the keeper has said `empty`; or, where it was killed and its tree fell to
//!    this process, after looks at all processes have found nothing that was adopted.
//! 2. A keeper that ends without saying so takes its proof with it. Where nothing falls to this process, its tree is killed
//!    by sweep, and only `ProcessGroupEmpty` is claimed.
//! 3. A keeper goes back to the idle ones only after it has said that it has no child. In every other case the socket
//!    closes with the driver, and so the keeper kills.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Verified;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::handle::{DetachError, DetachRequest, KnownMembers};
use super::identity::identity;
use super::keeper::protocol::{Action, Command, PACKET_BYTES_MAX, PATH_BYTES_MAX, Report};
use super::keepers::{KeeperProcess, Keepers};
use super::look::look;
use super::orphans::end_orphans;
use super::readiness::{Watched, watch};
use super::spec::LaunchError;
use super::status::ExitInfo;
use super::status_channel::StatusSender;
use super::sweep::{EMPTY_SWEEPS, Emptiness, Sweep};
use super::tree::signal_each;

/// How often the tree of a dead keeper is looked for again.
const LOOK_REPEAT: Duration = Duration::from_millis(5);

/// A call, on the socket of its keeper.
#[derive(Debug, Clone)]
pub(super) struct KeptCall {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) number: u64,
}

pub(super) struct Owner {
    pub(super) program: OsString,
    pub(super) cwd: PathBuf,
    pub(super) marker: Arc<str>,
    pub(super) keepers: Arc<Keepers>,
    /// `None` once it was given back.
    pub(super) keeper: Option<KeeperProcess>,
    pub(super) call: KeptCall,
    pub(super) socket: Option<Watched>,
    pub(super) known: Arc<KnownMembers>,
    pub(super) status: StatusSender,
    pub(super) detach_rx: mpsc::Receiver<DetachRequest>,
    pub(super) detaching: Option<DetachRequest>,
    /// Published together with emptiness, so that a wait for that is never cut short.
    pub(super) failed: Option<LaunchError>,
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
    pub(super) async fn drive(mut self) {
        loop {
            let event = tokio::select! {
                report = hear(self.socket.as_ref()) => report.map_or(Event::KeeperEnded, Event::Reported),
                Some(request) = self.detach_rx.recv(), if self.detaching.is_none() => Event::Detach(request),
            };
            match self.handle(event) {
                Next::Watch => {}
                Next::Empty => {
                    // First, so that no handle sends anything to a keeper that serves another call.
                    self.publish_empty(Verified::ProcessTreeEmpty);
                    self.give_back();
                    return;
                }
                Next::Orphaned => return self.end_orphans().await,
                Next::LetGo => return,
            }
        }
    }

    fn handle(&mut self, event: Event) -> Next {
        match event {
            Event::Reported(report) => return self.handle_report(report),
            Event::KeeperEnded => return Next::Orphaned,
            Event::Detach(request) => match absolute(&request.output_file) {
                Ok(path) => {
                    say(&self.call, Action::Detach(path));
                    self.detaching = Some(request);
                }
                Err(source) => refuse_detach(request, source),
            },
        }
        Next::Watch
    }

    fn handle_report(&mut self, report: Report) -> Next {
        match report {
            Report::Started { pid, start_ticks } => {
                let main = identity(pid, start_ticks);
                self.known.set(vec![main.clone()]);
                self.status.send_modify(|now| now.main = Some(main));
            }
            Report::Failed {
                errno,
                in_directory,
            } => {
                let source = io::Error::from_raw_os_error(errno);
                self.failed = Some(self.launch_error(source, in_directory));
                return Next::Empty;
            }
            Report::Exited(exit) => self.status.send_modify(|now| now.exited = Some(exit)),
            Report::Members(members) => {
                let members = members.into_iter();
                self.known
                    .set(members.map(|(pid, ticks)| identity(pid, ticks)).collect());
            }
            Report::Empty => return Next::Empty,
            Report::Detached => {
                self.status.send_modify(|now| now.detached = true);
                if let Some(request) = self.detaching.take() {
                    answer_detach(request, Ok(()));
                }
                return Next::LetGo;
            }
            Report::NotDetached { errno } => {
                if let Some(request) = self.detaching.take() {
                    refuse_detach(request, io::Error::from_raw_os_error(errno));
                }
            }
        }
        Next::Watch
    }

    fn launch_error(&self, source: io::Error, in_directory: bool) -> LaunchError {
        if in_directory {
            let cwd = self.cwd.clone();
            LaunchError::Directory { cwd, source }
        } else {
            let program = self.program.clone();
            LaunchError::Program { program, source }
        }
    }

    fn give_back(&mut self) {
        // The next call watches the socket on a runtime of its own.
        self.socket = None;
        if let Some(keeper) = self.keeper.take() {
            self.keepers.give_back(keeper);
        }
    }

    /// The keeper was killed: finds its tree without it and ends that.
    async fn end_orphans(mut self) {
        self.status.send_modify(|now| now.keeper_lost = true);
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        let pid = keeper.identity.pid;
        keeper.kill();
        // Its children fall to others when it has ended, which is a moment after its socket has closed.
        if let Ok(ended) = watch(Arc::clone(&keeper.pidfd)) {
            drop(ended.readable().await);
        }
        self.keepers.reap_later(keeper);
        let main = self.status.borrow().main.clone();
        if main.is_none() {
            self.failed = Some(LaunchError::KeeperLost);
        }
        if self.keepers.adopts_orphans() {
            self.end_adopted(pid).await;
        } else {
            // Killed before it said that it had started anything. If it had, the command died with it (the death signal)
            // unless it forked at once; the marker finds what is left.
            let main = main.unwrap_or_else(|| identity(pid, 0));
            self.sweep_away(main, pid).await;
        }
    }

    /// What fell to this process is killed until nothing does any more.
    async fn end_adopted(&mut self, keeper: u32) {
        let mut empty_looks = 0;
        while empty_looks < EMPTY_SWEEPS {
            let Some(orphans) = look(move || end_orphans(keeper)).await.flatten() else {
                sleep(LOOK_REPEAT).await;
                continue;
            };
            self.known.set_stats(&orphans.living);
            if orphans.is_empty() {
                empty_looks += 1;
            } else {
                empty_looks = 0;
                sleep(LOOK_REPEAT).await;
            }
        }
        self.publish_empty(Verified::ProcessTreeEmpty);
    }

    async fn sweep_away(&mut self, main: ProcessIdentity, keeper: u32) {
        let sweep = Arc::new(Sweep::of_orphans(Arc::clone(&self.marker), main, keeper));
        let mut emptiness = Emptiness::default();
        loop {
            let sweeping = Arc::clone(&sweep);
            let found = look(move || {
                let found = sweeping.find();
                signal_each(&found.members, Signal::KILL);
                found
            });
            if let Some(found) = found.await {
                self.known.set_stats(&found.members);
                if emptiness.is_proved_by(&found) {
                    break;
                }
            }
            sleep(LOOK_REPEAT).await;
        }
        self.publish_empty(Verified::ProcessGroupEmpty);
    }

    fn publish_empty(&mut self, verified: Verified) {
        let failed = self.failed.take().map(Arc::new);
        self.known.set(Vec::new());
        self.status.send_modify(|now| {
            if failed.is_none() {
                now.exited.get_or_insert(ExitInfo::Unknown);
            }
            now.failed = failed;
            now.set_empty(verified);
        });
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            // Handles keep the socket open; what ends the tree of a dropped driver is this. After a detach it changes
            // nothing.
            let _closed = shutdown(&keeper.socket, Shutdown::Both);
            self.keepers.reap_later(keeper);
        }
    }
}

fn answer_detach(request: DetachRequest, answer: Result<(), DetachError>) {
    // Whoever asked may have stopped waiting.
    let _unheard = request.reply.send(answer);
}

fn refuse_detach(request: DetachRequest, source: io::Error) {
    let output_file = request.output_file.clone();
    let error = DetachError::OutputFile {
        output_file,
        source,
    };
    answer_detach(request, Err(error));
}

pub(super) fn say(call: &KeptCall, action: Action) {
    let packet = Command {
        call: call.number,
        action,
    };
    // A full socket holds hundreds of the same commands already; a closed one is seen by the driver.
    let _unheard = send(
        &call.socket,
        &packet.encode(),
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
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
async fn hear(socket: Option<&Watched>) -> Option<Report> {
    let mut packet = [0; PACKET_BYTES_MAX];
    loop {
        let received = socket?
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
