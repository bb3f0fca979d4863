//! The loop of a keeper, the helper process that contains the process tree of a command. The keeper has one thread and
//! no runtime, and sleeps in `poll` until an event.
//!
//! Invariants:
//! 1. The report `Empty` is sent only after the kernel has reported that the keeper has no child. Another call may
//!    begin only after that report.
//! 2. Children are reaped in one place, which is between two steps of a kill and never during a step.
//! 3. If the socket closes before a detach, the loop ends only when the tree is empty, and every iteration kills
//!    processes of the tree.
//! 4. A command for one call never affects another call, because each command contains the number of its call.
//!
//! If the owner (the process that requested the call) is dead, the tree gets no grace period between SIGTERM and
//! SIGKILL. No caller waits for an orderly end. Also, another process may take over the owner's work at once, and must
//! not do so while the tree still runs.

use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, recvmsg};
use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

use super::call::{CallStep, KeeperCall, START_FILES_MAX, send_members, send_report, start_ticks};
use super::children::ask;
use super::protocol::{KeeperAction, KeeperCommand, PACKET_BYTES_MAX};

/// Time from a SIGTERM that the keeper of a detached tree receives to the kill. Equal to the default grace of a stop.
const DETACHED_GRACE: Duration = Duration::from_secs(2);

/// Name that `ps` shows and `killall` matches. This name differs from the name of the owner. If a user kills the owner
/// by its name, the keeper survives, and ends the tree.
const NAME: &std::ffi::CStr = c"call-keeper";

/// Serves calls until the owner has closed the socket.
pub(super) fn run() -> ExitCode {
    match KeeperLoop::begin() {
        Ok(mut keeper) => {
            while keeper.run_once() {}
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

struct KeeperLoop {
    owner: io::Stdin,
    owner_gone: bool,
    /// Receives a byte with every signal.
    wake: UnixStream,
    sigterm_received: Arc<AtomicBool>,
    /// The current call. `None` while the keeper is idle.
    call: Option<KeeperCall>,
}

impl KeeperLoop {
    fn begin() -> io::Result<Self> {
        let owner = io::stdin();
        if socket_type(&owner)? != SocketType::SEQPACKET {
            return Err(io::ErrorKind::InvalidInput.into()); // started by hand, without an owner
        }
        rustix::thread::set_name(NAME)?;
        // A keeper serves several calls, and inherits the secrets of its first call. The commands of later calls run as
        // the same user, and could read these secrets in `/proc/PID/environ`.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let sigterm_received = Arc::new(AtomicBool::new(false));
        // The signal is handled, not ignored. A command does not inherit a handler, but it would inherit an ignored
        // signal.
        flag::register(SIGTERM, Arc::clone(&sigterm_received))?;
        for signal in [SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            pipe::register(signal, waker.try_clone()?)?;
        }
        set_child_subreaper(Some(getpid()))?;
        Ok(Self {
            owner,
            owner_gone: false,
            wake,
            sigterm_received,
            call: None,
        })
    }

    /// Runs one iteration of the loop. Returns false if the keeper must exit, because it is idle and its owner is gone,
    /// or because its detached tree is empty.
    fn run_once(&mut self) -> bool {
        let owner = self.owner.as_fd();
        let pause = match &mut self.call {
            None if self.owner_gone => return false,
            None => None,
            Some(call) => match call.step(owner) {
                CallStep::Wait(pause) => pause,
                CallStep::Empty => {
                    let was_detached = call.drain.is_some();
                    let report = call.last_report();
                    // This also drops the call's output pipe.
                    self.call = None;
                    send_report(owner, &report);
                    return !was_detached;
                }
            },
        };
        self.wait_for_event(pause);
        true
    }

    fn wait_for_event(&mut self, pause: Option<Duration>) {
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let mut sources = vec![PollFd::new(&self.wake, PollFlags::IN)];
        if !self.owner_gone {
            sources.push(PollFd::new(&self.owner, PollFlags::IN));
        }
        let drain = self.call.as_ref().and_then(|call| call.drain.as_ref());
        if let Some(drain) = drain {
            sources.push(PollFd::from_borrowed_fd(drain.descriptor(), PollFlags::IN));
        }
        // `poll` fails only if a signal interrupts it. The next iteration reads the byte of that signal.
        let _count = poll(&mut sources, pause.as_ref());
        drop(sources);
        // Signals are read before the socket. If the owner sent a detach before a SIGTERM, the detach is already in the
        // socket at this time, so the keeper handles the detach first.
        let was_asked_to_end = self.take_signals();
        self.read_owner();
        if was_asked_to_end {
            self.end_detached();
        }
        if let Some(drain) = self.call.as_mut().and_then(|call| call.drain.as_mut()) {
            drain.step();
        }
    }

    /// Empties the queue of signals. Returns true if a SIGTERM was among them.
    fn take_signals(&mut self) -> bool {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
        self.sigterm_received.swap(false, Ordering::AcqRel)
    }

    /// Sends SIGTERM to a detached tree, and sets the time of its kill. An attached tree is ended by its owner.
    fn end_detached(&mut self) {
        if let Some(call) = &mut self.call
            && call.drain.is_some()
        {
            ask(|_| {});
            call.kill_at.get_or_insert(Instant::now() + DETACHED_GRACE);
        }
    }

    fn read_owner(&mut self) {
        let mut packet = [0; PACKET_BYTES_MAX];
        while !self.owner_gone {
            match receive(self.owner.as_fd(), &mut packet) {
                Ok((len @ 1.., files)) => {
                    if let Some(command) = packet.get(..len).and_then(KeeperCommand::decode) {
                        self.obey(command, files);
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => {
                    self.owner_gone = true;
                    if let Some(call) = &mut self.call
                        && call.drain.is_none()
                    {
                        call.begin_killing();
                    }
                }
            }
        }
    }

    fn obey(&mut self, command: KeeperCommand, files: Vec<OwnedFd>) {
        let owner = self.owner.as_fd();
        match (command.action, &mut self.call) {
            (KeeperAction::Start, None) => {
                self.call = KeeperCall::begin(command.call, files, owner, start_ticks);
            }
            (action, Some(call)) if call.number == command.call => match action {
                KeeperAction::Start => {}
                KeeperAction::Ask => ask(|members| send_members(owner, members)),
                KeeperAction::Force => call.begin_killing(),
                KeeperAction::Detach(path) => call.detach(&path, owner),
            },
            // The command belongs to a call that has already ended.
            _ => {}
        }
    }
}

/// The next packet, with the files that were sent with it.
fn receive(owner: BorrowedFd<'_>, packet: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(START_FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut packet = [IoSliceMut::new(packet)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(owner, &mut packet, &mut control, flags)?;
    let files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    Ok((received.bytes, files.collect()))
}
