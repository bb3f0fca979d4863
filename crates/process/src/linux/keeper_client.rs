//! The driver of a tree with a keeper: reads its reports, and ends the tree without the keeper if that is killed.
//!
//! Invariants:
//! 1. `ProcessTreeEmpty` is published only after the keeper has said `empty`; or, where it was killed and its tree fell to
//!    this process, after looks at all processes have found nothing that was adopted.
//! 2. A keeper that ends without saying so takes its proof with it. If this process is no subreaper, the tree is killed by
//!    sweeps, and only `ProcessGroupEmpty` is claimed.
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
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::containment::DetachTreeError;
use crate::identity::identity;
use crate::launch_error::LaunchError;
use crate::status::ExitInfo;
use crate::status_channel::StatusSender;

use super::keeper::protocol::{
    KeeperAction, KeeperCommand, KeeperReport, PACKET_BYTES_MAX, PATH_BYTES_MAX,
};
use super::keepers::{KeeperProcess, Keepers};
use super::look::look;
use super::orphans::end_orphans;
use super::readiness::{WatchedDescriptor, watch};
use super::sweep::{EMPTY_SWEEPS, EmptinessProof, TreeSweep};
use super::tree::{KnownMembers, signal_each};

/// Pause between two looks for the tree of a dead keeper.
const LOOK_REPEAT: Duration = Duration::from_millis(5);

/// A call, on the socket of its keeper.
#[derive(Debug, Clone)]
pub(super) struct KeptCall {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) number: u64,
}

/// A request to detach, which the driver carries out.
#[derive(Debug)]
pub(super) struct DetachRequest {
    pub(super) output_file: PathBuf,
    pub(super) reply: oneshot::Sender<Result<(), DetachTreeError>>,
}

/// The owner's side of one call: drives it until its tree is empty or detached.
pub(super) struct KeeperClient {
    pub(super) program: OsString,
    pub(super) cwd: PathBuf,
    pub(super) marker: Arc<str>,
    pub(super) keepers: Arc<Keepers>,
    /// `None` once it was given back.
    pub(super) keeper: Option<KeeperProcess>,
    pub(super) call: KeptCall,
    pub(super) socket: Option<WatchedDescriptor>,
    pub(super) known: Arc<KnownMembers>,
    pub(super) status: StatusSender,
    pub(super) main: Option<ProcessIdentity>,
    pub(super) detach_rx: mpsc::Receiver<DetachRequest>,
    pub(super) detaching: Option<DetachRequest>,
    /// Published together with emptiness, so that a wait for emptiness is never cut short.
    pub(super) failed: Option<LaunchError>,
}

enum KeeperEvent {
    Reported(KeeperReport),
    KeeperEnded,
    Detach(DetachRequest),
}

enum NextStep {
    Watch,
    Empty,
    Orphaned,
    Detached,
}

impl KeeperClient {
    pub(super) async fn drive(mut self) {
        loop {
            let event = tokio::select! {
                report = hear(self.socket.as_ref()) => report.map_or(KeeperEvent::KeeperEnded, KeeperEvent::Reported),
                Some(request) = self.detach_rx.recv(), if self.detaching.is_none() => KeeperEvent::Detach(request),
            };
            match self.handle(event) {
                NextStep::Watch => {}
                NextStep::Empty => {
                    // First, so that no handle sends anything to a keeper that serves another call.
                    self.publish_empty(Verified::ProcessTreeEmpty);
                    self.give_back();
                    return;
                }
                NextStep::Orphaned => return self.end_orphans().await,
                NextStep::Detached => return,
            }
        }
    }

    fn handle(&mut self, event: KeeperEvent) -> NextStep {
        match event {
            KeeperEvent::Reported(report) => return self.handle_report(report),
            KeeperEvent::KeeperEnded => return NextStep::Orphaned,
            KeeperEvent::Detach(request) => match absolute(&request.output_file) {
                Ok(path) => {
                    say(&self.call, KeeperAction::Detach(path));
                    self.detaching = Some(request);
                }
                Err(source) => refuse_detach(request, source),
            },
        }
        NextStep::Watch
    }

    fn handle_report(&mut self, report: KeeperReport) -> NextStep {
        match report {
            KeeperReport::Started { pid, start_ticks } => {
                let main = identity(pid, start_ticks);
                self.known.set(vec![main.clone()]);
                self.status.started(main.clone());
                self.main = Some(main);
            }
            KeeperReport::Failed {
                errno,
                in_directory,
            } => {
                let source = io::Error::from_raw_os_error(errno);
                self.failed = Some(self.launch_error(source, in_directory));
                return NextStep::Empty;
            }
            KeeperReport::Exited(exit) => self.status.exited(exit),
            KeeperReport::Members(members) => {
                let members = members.into_iter();
                self.known
                    .set(members.map(|(pid, ticks)| identity(pid, ticks)).collect());
            }
            KeeperReport::Empty => return NextStep::Empty,
            KeeperReport::Detached => {
                self.status.detached();
                if let Some(request) = self.detaching.take() {
                    answer_detach(request, Ok(()));
                }
                return NextStep::Detached;
            }
            KeeperReport::NotDetached { errno } => {
                if let Some(request) = self.detaching.take() {
                    refuse_detach(request, io::Error::from_raw_os_error(errno));
                }
            }
        }
        NextStep::Watch
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
        // The next call may watch the socket on another runtime.
        self.socket = None;
        if let Some(keeper) = self.keeper.take() {
            self.keepers.give_back(keeper);
        }
    }

    /// Finds and ends the tree of a keeper that was killed.
    async fn end_orphans(mut self) {
        self.status.publish(|now| now.keeper_lost = true);
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        let pid = keeper.identity.pid;
        keeper.kill();
        // Its children are adopted when it has ended, which is a moment after its socket has closed.
        if let Ok(ended) = watch(Arc::clone(&keeper.pidfd)) {
            drop(ended.readable().await);
        }
        self.keepers.reap_later(keeper);
        let main = self.main.clone();
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

    /// Kills adopted processes until no look finds any more.
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
        let sweep = Arc::new(TreeSweep::of_orphans(
            Arc::clone(&self.marker),
            main,
            keeper,
        ));
        let mut emptiness = EmptinessProof::default();
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
        self.status.publish(|now| {
            if failed.is_none() {
                now.exited.get_or_insert(ExitInfo::Unknown);
            }
            now.failed = failed;
            now.set_empty(verified);
        });
    }
}

impl Drop for KeeperClient {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            // Handles keep the socket open, so this ends the tree of a dropped driver. After a detach it has no effect.
            let _closed = shutdown(&keeper.socket, Shutdown::Both);
            self.keepers.reap_later(keeper);
        }
    }
}

fn answer_detach(request: DetachRequest, answer: Result<(), DetachTreeError>) {
    // The asker may have stopped waiting.
    let _unheard = request.reply.send(answer);
}

fn refuse_detach(request: DetachRequest, source: io::Error) {
    let output_file = request.output_file.clone();
    let error = DetachTreeError::OutputFile {
        output_file,
        source,
    };
    answer_detach(request, Err(error));
}

/// Sends a command for a call.
pub(super) fn say(call: &KeptCall, action: KeeperAction) {
    let packet = KeeperCommand {
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

/// Makes a path absolute, since the keeper has another working directory, and checks that it fits into a packet.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if path.as_os_str().len() > PATH_BYTES_MAX {
        Err(io::ErrorKind::InvalidFilename.into())
    } else {
        Ok(path)
    }
}

/// Receives the next report; `None` when the keeper's end of the socket is closed.
///
/// Cancel safe: a packet is taken only by the poll that returns it.
async fn hear(socket: Option<&WatchedDescriptor>) -> Option<KeeperReport> {
    let mut packet = [0; PACKET_BYTES_MAX];
    loop {
        let received = socket?
            .async_io(Interest::READABLE, |socket| {
                Ok(recv(socket, &mut packet[..], RecvFlags::DONTWAIT)?)
            })
            .await;
        match received {
            Ok((_, len @ 1..)) => {
                if let Some(report) = packet.get(..len).and_then(KeeperReport::decode) {
                    return Some(report);
                }
            }
            Ok(_) | Err(_) => return None,
        }
    }
}
