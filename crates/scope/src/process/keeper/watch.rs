//! The keeper's loop: one thread, no runtime, asleep in `poll` unless something happens.
//!
//! Invariants:
//! 1. `empty` is said only after the kernel has said that there is no child; then, and only then, another call may begin.
//! 2. Reaping happens in one place, between two steps of a kill and never during one.
//! 3. When the socket closes before a detach, only an empty tree ends the loop, and every turn of it kills.
//! 4. A command for one call never touches another: it names its call.
//!
//! An owner that is gone gets no grace for its tree: nobody waits for that stop, and whoever recovers the owner's work may
//! start at once, beside whatever were still running.

use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_type;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketType, recvmsg, send,
};
use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

use super::children::{Reaped, ask, reap, start};
use super::drain::Drain;
use super::killing::Killing;
use super::order::Order;
use super::protocol::{Action, Command, PACKET_BYTES_MAX, Report};
use crate::process::procfs::{Stat, stat};
use crate::process::tree::descendants;

/// How long a detached tree has after a SIGTERM to its keeper: the ladder's usual grace.
const DETACHED_GRACE: Duration = Duration::from_secs(2);

/// The name shown by `ps` and matched by `killall`: not the owner's, so that killing that one by name spares the keeper,
/// which then ends the tree.
const NAME: &std::ffi::CStr = c"call-keeper";

/// What comes with an order: the pipe of the output, and the order itself.
const FILES_OF_ORDER: usize = 2;

pub(super) fn run() -> ExitCode {
    match Keeper::begin() {
        Ok(mut keeper) => {
            while keeper.turn() {}
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

struct Keeper {
    owner: io::Stdin,
    owner_gone: bool,
    /// Gets a byte with every signal.
    wake: UnixStream,
    told_to_end: Arc<AtomicBool>,
    /// The call whose tree is kept; `None` while the keeper is idle.
    call: Option<Call>,
}

/// One call, until its tree is empty.
struct Call {
    number: u64,
    main: u32,
    output: OwnedFd,
    /// The command has started, and its owner cannot be told which process it is: it is killed, and counts as failed when
    /// its tree is empty.
    is_unidentified: bool,
    killing: Option<Killing>,
    /// When a detached tree that was told to end is killed.
    kill_at: Option<Instant>,
    drain: Option<Drain>,
}

impl Keeper {
    fn begin() -> io::Result<Self> {
        let owner = io::stdin();
        if socket_type(&owner)? != SocketType::SEQPACKET {
            return Err(io::ErrorKind::InvalidInput.into()); // started by hand: there is no owner
        }
        rustix::thread::set_name(NAME)?;
        // It serves calls of all kinds, and has inherited what the first one may know: the commands of a later one are of
        // the same user, and could read it in `/proc/PID/environ`.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let told_to_end = Arc::new(AtomicBool::new(false));
        // Handled, not ignored: a handler does not pass to the command, an ignored signal would.
        flag::register(SIGTERM, Arc::clone(&told_to_end))?;
        for signal in [SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            pipe::register(signal, waker.try_clone()?)?;
        }
        set_child_subreaper(Some(getpid()))?;
        Ok(Self {
            owner,
            owner_gone: false,
            wake,
            told_to_end,
            call: None,
        })
    }

    /// One turn of the loop. `false`: there is nothing left to keep.
    fn turn(&mut self) -> bool {
        let owner = self.owner.as_fd();
        let pause = match &mut self.call {
            None if self.owner_gone => return false,
            None => None,
            Some(call) => match call.step(owner) {
                Step::Wait(pause) => pause,
                Step::Empty => {
                    let was_detached = call.drain.is_some();
                    let report = call.last_report();
                    // With the pipe of its output.
                    self.call = None;
                    say(owner, &report);
                    return !was_detached;
                }
            },
        };
        self.sleep_until_something(pause);
        true
    }

    fn sleep_until_something(&mut self, pause: Option<Duration>) {
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let mut sources = vec![PollFd::new(&self.wake, PollFlags::IN)];
        if !self.owner_gone {
            sources.push(PollFd::new(&self.owner, PollFlags::IN));
        }
        let drain = self.call.as_ref().and_then(|call| call.drain.as_ref());
        if let Some(drain) = drain {
            sources.push(PollFd::from_borrowed_fd(drain.descriptor(), PollFlags::IN));
        }
        // An error is an interruption by a signal, whose byte the next turn finds.
        let _count = poll(&mut sources, pause.as_ref());
        drop(sources);
        self.hear_signals();
        self.hear_owner();
        if let Some(drain) = self.call.as_mut().and_then(|call| call.drain.as_mut()) {
            drain.step();
        }
    }

    fn hear_signals(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
        let told = self.told_to_end.swap(false, Ordering::AcqRel);
        // With an owner, ending the tree is the owner's to decide, and signals are ignored.
        if let Some(call) = &mut self.call
            && told
            && call.drain.is_some()
        {
            ask();
            call.kill_at.get_or_insert(Instant::now() + DETACHED_GRACE);
        }
    }

    fn hear_owner(&mut self) {
        let mut packet = [0; PACKET_BYTES_MAX];
        while !self.owner_gone {
            match receive(self.owner.as_fd(), &mut packet) {
                Ok((len @ 1.., files)) => {
                    if let Some(command) = packet.get(..len).and_then(Command::decode) {
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

    fn obey(&mut self, command: Command, files: Vec<OwnedFd>) {
        let owner = self.owner.as_fd();
        match (command.action, &mut self.call) {
            (Action::Start, None) => {
                self.call = Call::begin(command.call, files, owner, start_ticks);
            }
            (action, Some(call)) if call.number == command.call => match action {
                Action::Start => {}
                Action::Ask => tell_members(owner, &ask()),
                Action::Force => call.begin_killing(),
                Action::Detach(path) => call.detach(&path, owner),
            },
            // Of a call that has ended.
            _ => {}
        }
    }
}

enum Step {
    /// The tree is empty.
    Empty,
    /// Until something happens, at most so long.
    Wait(Option<Duration>),
}

impl Call {
    /// Starts the command; `None` if that failed, which is reported.
    fn begin(
        number: u64,
        files: Vec<OwnedFd>,
        owner: BorrowedFd<'_>,
        start_ticks: impl FnOnce(u32) -> Option<u64>,
    ) -> Option<Self> {
        let started = <[OwnedFd; FILES_OF_ORDER]>::try_from(files)
            .map_err(|_files| (io::ErrorKind::InvalidData.into(), false))
            .and_then(|[output, order]| {
                let order = Order::from_file(order).map_err(|error| (error, false))?;
                let cwd = order.cwd.clone();
                // The system gives the same error for a directory and for a program that is not there.
                let main =
                    start(order, &output).map_err(|error| (error, !Path::new(&cwd).is_dir()))?;
                Ok((main, output))
            });
        match started {
            Ok((main, output)) => {
                let ticks = start_ticks(main);
                let mut call = Self {
                    number,
                    main,
                    output,
                    is_unidentified: ticks.is_none(),
                    killing: None,
                    kill_at: None,
                    drain: None,
                };
                match ticks {
                    Some(start_ticks) => say(
                        owner,
                        &Report::Started {
                            pid: main,
                            start_ticks,
                        },
                    ),
                    None => call.begin_killing(),
                }
                Some(call)
            }
            Err::<_, (io::Error, bool)>((error, in_directory)) => {
                let errno = error.raw_os_error().unwrap_or_default();
                say(
                    owner,
                    &Report::Failed {
                        errno,
                        in_directory,
                    },
                );
                None
            }
        }
    }

    /// Reaps, and kills where that has begun.
    fn step(&mut self, owner: BorrowedFd<'_>) -> Step {
        let (main, killing) = (self.main, &mut self.killing);
        let is_unidentified = self.is_unidentified;
        let mut main_exited = false;
        let reaped = reap(|child, exit| {
            if let Some(killing) = killing {
                killing.reaped(child);
            }
            if child == main {
                main_exited = true;
                if !is_unidentified {
                    say(owner, &Report::Exited(exit));
                }
            }
        });
        if let Reaped::NoChild = reaped {
            if let Some(drain) = &mut self.drain {
                drain.finish();
            }
            return Step::Empty;
        }
        if main_exited {
            tell_members(owner, &descendants(std::process::id()));
        }
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.begin_killing();
        }
        Step::Wait(match &mut self.killing {
            Some(killing) => Some(killing.step(|left| tell_members(owner, left))),
            None => self
                .kill_at
                .map(|at| at.saturating_duration_since(Instant::now())),
        })
    }

    /// What its owner is told when its tree is empty.
    fn last_report(&self) -> Report {
        if self.is_unidentified {
            Report::Failed {
                errno: rustix::io::Errno::SRCH.raw_os_error(),
                in_directory: false,
            }
        } else {
            Report::Empty
        }
    }

    fn begin_killing(&mut self) {
        self.killing.get_or_insert_with(Killing::begin);
    }

    fn detach(&mut self, path: &Path, owner: BorrowedFd<'_>) {
        let report = match Drain::open(&self.output, path) {
            Ok(drain) => {
                self.drain = Some(drain);
                Report::Detached
            }
            Err(error) => Report::NotDetached {
                errno: error.raw_os_error().unwrap_or_default(),
            },
        };
        say(owner, &report);
    }
}

/// The next packet, with the files that came with it.
fn receive(owner: BorrowedFd<'_>, packet: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_OF_ORDER))];
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

/// When a child that was not reaped yet has started. `None` where `/proc` does not tell, as without a free descriptor.
fn start_ticks(child: u32) -> Option<u64> {
    Some(stat(child)?.start_ticks)
}

/// Tells the owner who is there.
fn tell_members(owner: BorrowedFd<'_>, members: &[Stat]) {
    let living = members.iter().filter(|member| !member.is_dead());
    let living = living.map(|member| (member.pid, member.start_ticks));
    say(owner, &Report::Members(living.collect()));
}

/// Tells the owner. An owner that is gone, or hears nothing, must not hold the keeper up.
fn say(owner: BorrowedFd<'_>, report: &Report) {
    let _unheard = send(
        owner,
        report.encode().as_bytes(),
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, recv, socketpair};

    use super::*;

    /// The command has started and `/proc` does not say when: what it has started is gone before that is a failure.
    #[test]
    fn a_start_that_cannot_be_told_is_killed_before_it_has_failed() {
        set_child_subreaper(Some(getpid())).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, owner) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let order = Order {
            cwd: "/".into(),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), "sleep 1000 & sleep 1000".into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        };
        let (_read, output) = std::io::pipe().unwrap();
        let files = vec![output.into(), order.to_file().unwrap()];
        let call = Call::begin(1, files, owner.as_fd(), |_child| None);
        let mut call = call.expect("it has started, so it is kept");
        let main = call.main;
        let began = Instant::now();
        while let Step::Wait(_) = call.step(owner.as_fd()) {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "it is not killed"
            );
            std::thread::yield_now();
        }
        assert_eq!(stat(main), None);
        assert_eq!(descendants(std::process::id()), []);
        assert!(matches!(call.last_report(), Report::Failed { .. }));
        let mut packet = [0; PACKET_BYTES_MAX];
        while let Ok((len, _)) = recv(&ours, &mut packet[..], rustix::net::RecvFlags::DONTWAIT) {
            let report = Report::decode(&packet[..len]);
            let report = report.unwrap();
            assert!(matches!(report, Report::Members(_)), "{report:?}");
        }
    }
}
