//! The owner's end of a keeper's socket. The owner (the process that launches a command) sends requests for one call,
//! and receives the keeper's reports.

use std::io::{IoSlice, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use tokio::io::Interest;

use super::keeper::call::START_FILES_MAX;
use super::keeper::protocol::{KeeperAction, KeeperCommand, KeeperReport, PACKET_BYTES_MAX};
use super::owner_deadline::OwnerDeadline;
use super::readiness::WatchedDescriptor;

/// Maximum time that a start command waits for free space in the keeper's socket. An idle keeper empties the socket at
/// once.
const ORDER_WAIT: Duration = Duration::from_millis(100);

/// One call, and the socket of the keeper that serves it.
#[derive(Debug, Clone)]
pub(super) struct KeptCall {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) number: u64,
    /// True after the commands `Ask` or `Force` were sent.
    stopped: Arc<AtomicBool>,
}

impl KeptCall {
    pub(super) fn new(socket: Arc<OwnedFd>, number: u64) -> Self {
        let stopped = Arc::default();
        Self {
            socket,
            number,
            stopped,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Sends a command for the call.
    pub(super) fn send_command(&self, action: KeeperAction) {
        if matches!(action, KeeperAction::Ask | KeeperAction::Force) {
            self.stopped.store(true, Ordering::Release);
        }
        let packet = KeeperCommand {
            call: self.number,
            action,
        };
        // If the socket is full, the socket already contains hundreds of these commands. If the socket is closed, the
        // driver notices that.
        let _unheard = send(
            &self.socket,
            &packet.encode(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
    }

    /// Sends the start command, the output pipe, and the deadline of the tree if there is one.
    pub(super) fn send_start(
        &self,
        command: &OwnedFd,
        output: &PipeWriter,
        deadline: Option<&OwnerDeadline>,
    ) -> rustix::io::Result<()> {
        let mut files = vec![output.as_fd(), command.as_fd()];
        files.extend(deadline.map(|deadline| deadline.file().as_fd()));
        let packet = KeeperCommand {
            call: self.number,
            action: KeeperAction::Start,
        };
        let packet = packet.encode();
        let send = || {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(START_FILES_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&files));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            sendmsg(&self.socket, &[IoSlice::new(&packet)], &mut control, flags).map(drop)
        };
        match send() {
            Err(Errno::AGAIN) => {
                // The socket is full of commands for the previous call. The keeper is reading them now.
                let limit = Timespec::try_from(ORDER_WAIT).ok();
                poll(
                    &mut [PollFd::new(&self.socket, PollFlags::OUT)],
                    limit.as_ref(),
                )?;
                send()
            }
            done => done,
        }
    }
}

/// Receives the next report. `None` if the keeper's end of the socket is closed.
///
/// Cancel safe: only the poll that returns a packet takes it from the socket.
pub(super) async fn receive_report(socket: Option<&WatchedDescriptor>) -> Option<KeeperReport> {
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
