//! The driver of a tree with a keeper: hears the keeper, and finds the tree without it should it be killed.
//!
//! Invariants:
//! 1. `ProcessTreeEmpty` is published only after the keeper has said `empty` and has itself ended.
//! 2. A keeper that ends without saying so takes the proof with it: its tree is killed by sweep, and only
//!    `ProcessGroupEmpty` is claimed.
//! 3. The socket closes with the driver, and so the keeper kills.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Verified;
use parking_lot::Mutex;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::handle::{DetachError, DetachRequest};
use super::identity::identity;
use super::keeper::protocol::{Command, PACKET_BYTES_MAX, PATH_BYTES_MAX, Report};
use super::readiness::Watched;
use super::spec::LaunchError;
use super::status::ExitInfo;
use super::status_channel::StatusSender;
use super::sweep::{Emptiness, Sweep};
use super::tree::signal_each;

/// How often the tree of a dead keeper is looked for again.
const SWEEP_REPEAT: Duration = Duration::from_millis(5);

/// In place of a keeper that was killed.
pub(super) type Orphans = Arc<Mutex<Option<Arc<Sweep>>>>;

pub(super) struct Owner {
    pub(super) program: OsString,
    pub(super) marker: Arc<str>,
    pub(super) child: Child,
    pub(super) keeper: u32,
    pub(super) socket: Watched,
    pub(super) orphans: Orphans,
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
                    program: self.program.clone(),
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
            Arc::clone(&self.marker),
            main,
            self.keeper,
        ));
        *self.orphans.lock() = Some(Arc::clone(&sweep));
        let mut emptiness = Emptiness::default();
        loop {
            let found = sweep.find();
            if emptiness.is_proved_by(&found) {
                break;
            }
            signal_each(&found.members, Signal::KILL);
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
            now.set_empty(verified);
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

pub(super) fn say(socket: &OwnedFd, command: &Command) {
    // A full socket holds hundreds of the same commands already; a closed one is seen by the driver.
    let _unheard = send(
        socket,
        &command.encode(),
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
