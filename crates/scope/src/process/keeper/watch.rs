//! The keeper's loop: one thread, no runtime, asleep in `poll` unless something happens.
//!
//! Invariants:
//! 1. `empty` is said only after the kernel has said that there is no child; then the keeper ends.
//! 2. Reaping happens in one place, between two steps of a kill and never during one.
//! 3. When the socket closes before a detach, only an empty tree ends the loop, and every turn of it kills.
//!
//! An owner that is gone gets no grace for its tree: nobody waits for that stop, and whoever recovers the owner's work may
//! start at once, beside whatever were still running.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send};
use rustix::process::{chdir, getpid, set_child_subreaper};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

use super::children::{Reaped, ask, reap, start};
use super::drain::Drain;
use super::killing::Killing;
use super::protocol::{Command, PACKET_BYTES_MAX, Report};

/// How long a detached tree has after a SIGTERM to its keeper: the ladder's usual grace.
const DETACHED_GRACE: Duration = Duration::from_secs(2);

/// The name shown by `ps` and matched by `killall`: not the owner's, so that killing that one by name spares the keeper,
/// which then ends the tree.
const NAME: &std::ffi::CStr = c"call-keeper";

pub(super) fn run(command: Vec<OsString>) -> ExitCode {
    match Keeper::begin(command) {
        Ok(Some(mut keeper)) => {
            keeper.stay();
            ExitCode::SUCCESS
        }
        // It has been reported: to an owner, or there is none.
        Ok(None) | Err(_) => ExitCode::FAILURE,
    }
}

struct Keeper {
    owner: io::Stdin,
    owner_gone: bool,
    /// Gets a byte with every signal.
    wake: UnixStream,
    told_to_end: Arc<AtomicBool>,
    main: u32,
    killing: Option<Killing>,
    /// When a detached tree that was told to end is killed.
    kill_at: Option<Instant>,
    drain: Option<Drain>,
}

impl Keeper {
    /// Sets the process up and starts the command; `None` if that failed and was reported.
    fn begin(command: Vec<OsString>) -> io::Result<Option<Self>> {
        let owner = io::stdin();
        if socket_type(&owner)? != SocketType::SEQPACKET {
            return Err(io::ErrorKind::InvalidInput.into()); // started by hand: there is no owner
        }
        rustix::thread::set_name(NAME)?;
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let told_to_end = Arc::new(AtomicBool::new(false));
        // Handled, not ignored: a handler does not pass to the command, an ignored signal would.
        flag::register(SIGTERM, Arc::clone(&told_to_end))?;
        for signal in [SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            pipe::register(signal, waker.try_clone()?)?;
        }
        set_child_subreaper(Some(getpid()))?;
        let main = match start(command) {
            Ok(main) => main,
            Err(error) => {
                say(
                    owner.as_fd(),
                    &Report::Failed {
                        errno: error.raw_os_error().unwrap_or_default(),
                    },
                );
                return Ok(None);
            }
        };
        // Not to hold the directory once the command has left it.
        let _stays = chdir("/");
        say(
            owner.as_fd(),
            &Report::Started {
                pid: main.pid,
                start_ticks: main.start_ticks,
            },
        );
        Ok(Some(Self {
            owner,
            owner_gone: false,
            wake,
            told_to_end,
            main: main.pid,
            killing: None,
            kill_at: None,
            drain: None,
        }))
    }

    /// Until the tree is empty.
    fn stay(&mut self) {
        loop {
            let (owner, main, killing) = (self.owner.as_fd(), self.main, &mut self.killing);
            let reaped = reap(|child, exit| {
                if let Some(killing) = killing {
                    killing.reaped(child);
                }
                if child == main {
                    say(owner, &Report::Exited(exit));
                }
            });
            if let Reaped::NoChild = reaped {
                if let Some(drain) = &mut self.drain {
                    drain.finish();
                }
                say(self.owner.as_fd(), &Report::Empty);
                return;
            }
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.kill_at = None;
                self.begin_killing();
            }
            let pause = match &mut self.killing {
                Some(killing) => Some(killing.step()),
                None => self
                    .kill_at
                    .map(|at| at.saturating_duration_since(Instant::now())),
            };
            self.sleep_until_something(pause);
        }
    }

    fn begin_killing(&mut self) {
        self.killing.get_or_insert_with(Killing::begin);
    }

    fn sleep_until_something(&mut self, pause: Option<Duration>) {
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let mut sources = vec![PollFd::new(&self.wake, PollFlags::IN)];
        if !self.owner_gone {
            sources.push(PollFd::new(&self.owner, PollFlags::IN));
        }
        if let Some(drain) = &self.drain {
            sources.push(PollFd::from_borrowed_fd(drain.descriptor(), PollFlags::IN));
        }
        // An error is an interruption by a signal, whose byte the next turn finds.
        let _count = poll(&mut sources, pause.as_ref());
        drop(sources);
        self.hear_signals();
        self.hear_owner();
        if let Some(drain) = &mut self.drain {
            drain.step();
        }
    }

    fn hear_signals(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
        // With an owner, ending the tree is the owner's to decide, and signals are ignored.
        if self.told_to_end.swap(false, Ordering::AcqRel) && self.drain.is_some() {
            ask();
            self.kill_at.get_or_insert(Instant::now() + DETACHED_GRACE);
        }
    }

    fn hear_owner(&mut self) {
        let mut packet = [0; PACKET_BYTES_MAX];
        while !self.owner_gone {
            match recv(&self.owner, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((_, len @ 1..)) => match packet.get(..len).and_then(Command::decode) {
                    Some(Command::Ask) => ask(),
                    Some(Command::Force) => self.begin_killing(),
                    Some(Command::Detach(path)) => self.detach(&path),
                    None => {}
                },
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => {
                    self.owner_gone = true;
                    if self.drain.is_none() {
                        self.begin_killing();
                    }
                }
            }
        }
    }

    fn detach(&mut self, path: &std::path::Path) {
        let report = match Drain::open(path) {
            Ok(drain) => {
                self.drain = Some(drain);
                Report::Detached
            }
            Err(error) => Report::NotDetached {
                errno: error.raw_os_error().unwrap_or_default(),
            },
        };
        say(self.owner.as_fd(), &report);
    }
}

/// Tells the owner. An owner that is gone, or hears nothing, must not hold the keeper up.
fn say(owner: BorrowedFd<'_>, report: &Report) {
    let _unheard = send(
        owner,
        report.encode().as_bytes(),
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
}
