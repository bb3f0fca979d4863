//! The driver of a tree with a keeper, the helper process that contains the tree. The driver reads the keeper's
//! reports. If the keeper is killed, the driver itself ends the tree.
//!
//! Invariants:
//! 1. The proof `ProcessTreeEmpty` is published in two cases only. Either the keeper has sent the report `Empty`, and
//!    no search has found processes of the tree outside the tree. Or the keeper was killed, this process has adopted
//!    its tree, and searches of all processes have found no adopted process.
//! 2. If a keeper ends without the report `Empty`, there is no report that can serve as proof. If this process is no
//!    subreaper, sweeps (searches of all processes) then find and kill the tree, and the proof is only
//!    `ProcessGroupEmpty`.
//! 3. A keeper becomes idle only after it has reported that it has no child. In every other case, the end of the driver
//!    closes the socket, and the keeper then kills the tree.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::EndProof;
use rustix::net::{Shutdown, shutdown};
use tokio::sync::{mpsc, oneshot};

use crate::containment::DetachTreeError;
use crate::identity::identity;
use crate::launch_error::LaunchError;
use crate::status::{ExitInfo, SearchReason};
use crate::status_channel::StatusSender;

use super::keeper::protocol::{KeeperAction, KeeperReport, PATH_BYTES_MAX};
use super::keeper_socket::{KeptCall, receive_report};
use super::keepers::{KeeperProcess, Keepers};
use super::readiness::WatchedDescriptor;
use super::tree::KnownMembers;

/// A request to detach, which the driver carries out.
#[derive(Debug)]
pub(super) struct DetachRequest {
    pub(super) output_file: PathBuf,
    pub(super) reply: oneshot::Sender<Result<(), DetachTreeError>>,
}

/// The owner's side of one call, which is the run of one command. The client runs until the tree of the call is empty
/// or detached.
pub(super) struct KeeperClient {
    pub(super) program: OsString,
    pub(super) cwd: PathBuf,
    pub(super) marker: Arc<str>,
    pub(super) keepers: Arc<Keepers>,
    /// `None` after the keeper was returned to the idle keepers.
    pub(super) keeper: Option<KeeperProcess>,
    pub(super) call: KeptCall,
    pub(super) socket: Option<WatchedDescriptor>,
    pub(super) known: Arc<KnownMembers>,
    pub(super) status: StatusSender,
    pub(super) main: Option<ProcessIdentity>,
    pub(super) detach_rx: mpsc::Receiver<DetachRequest>,
    pub(super) detaching: Option<DetachRequest>,
    /// Published together with the emptiness of the tree, so that a wait for an empty tree never ends early.
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
    KeeperLost,
    Detached,
}

impl KeeperClient {
    pub(super) async fn drive(mut self) {
        loop {
            let event = tokio::select! {
                report = receive_report(self.socket.as_ref()) => report.map_or(KeeperEvent::KeeperEnded, KeeperEvent::Reported),
                Some(request) = self.detach_rx.recv(), if self.detaching.is_none() => KeeperEvent::Detach(request),
            };
            match self.handle(event) {
                NextStep::Watch => {}
                NextStep::Empty => {
                    let proof = self.proof_of_end().await;
                    // The proof is published before the keeper becomes idle. Otherwise a handle could send a command to
                    // a keeper that already serves another call.
                    self.publish_empty(proof);
                    self.give_back();
                    return;
                }
                NextStep::KeeperLost => return self.end_lost_tree().await,
                NextStep::Detached => return,
            }
        }
    }

    fn handle(&mut self, event: KeeperEvent) -> NextStep {
        match event {
            KeeperEvent::Reported(report) => return self.handle_report(report),
            KeeperEvent::KeeperEnded => return NextStep::KeeperLost,
            KeeperEvent::Detach(request) => match absolute(&request.output_file) {
                Ok(path) => {
                    self.call.send_command(KeeperAction::Detach(path));
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
            KeeperReport::Expired => self.status.publish(|now| now.expired = true),
            KeeperReport::Entered => self.status.searched_for(SearchReason::Entered),
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
        // The registration of the socket is dropped here, because the next call may register the socket with another
        // runtime.
        self.socket = None;
        if let Some(keeper) = self.keeper.take() {
            self.keepers.give_back(keeper);
        }
    }

    pub(super) fn publish_empty(&mut self, verified: EndProof) {
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
            // Handles keep the socket open, so only this shutdown ends the tree when the driver is dropped. After a
            // detach, the shutdown has no effect.
            let _closed = shutdown(&keeper.socket, Shutdown::Both);
            self.keepers.reap_later(keeper);
        }
    }
}

fn answer_detach(request: DetachRequest, answer: Result<(), DetachTreeError>) {
    // The caller may no longer wait for the answer.
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

/// Makes a path absolute, because the keeper has another working directory. Fails if the path does not fit into a
/// packet.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if path.as_os_str().len() > PATH_BYTES_MAX {
        Err(io::ErrorKind::InvalidFilename.into())
    } else {
        Ok(path)
    }
}
