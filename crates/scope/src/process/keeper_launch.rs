//! Starting a command through a keeper, and reaching its tree.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Containment;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Signal, pidfd_send_signal};

use super::driver::ProcessDriver;
use super::handle::{KnownMembers, Lever, Shared, detach_channel};
use super::keeper::order::Order;
use super::keeper::protocol::{Action, Command};
use super::keeper_client::{KeptCall, Owner, say};
use super::keepers::Keepers;
use super::look::look;
use super::readiness::watch;
use super::spec::{LaunchError, MARKER_VARIABLE, ProcessSpec};
use super::status::Member;
use super::status_channel::StatusSender;
use super::tree::{as_members, descendants};

/// How long an order waits for a place in the keeper's socket, which an idle keeper empties at once.
const ORDER_WAIT: Duration = Duration::from_millis(100);

struct KeeperLever {
    call: KeptCall,
    keeper: ProcessIdentity,
    pidfd: Arc<OwnedFd>,
    known: Arc<KnownMembers>,
}

impl KeeperLever {
    fn say(&self, action: Action) {
        // Should somebody have stopped it. Where it has ended, the driver knows better.
        let _running = pidfd_send_signal(&self.pidfd, Signal::CONT);
        say(&self.call, action);
    }
}

impl Lever for KeeperLever {
    fn ask(&self) {
        self.say(Action::Ask);
    }

    fn force(&self) {
        self.say(Action::Force);
    }

    fn members(&self) -> BoxFuture<'static, Vec<Member>> {
        let keeper = self.keeper.pid;
        look(move || as_members(&descendants(keeper)))
            .map(Option::unwrap_or_default)
            .boxed()
    }

    fn known(&self) -> Vec<ProcessIdentity> {
        self.known.get()
    }
}

pub(super) fn launch(
    spec: &ProcessSpec,
    keepers: &Arc<Keepers>,
    output: &io::PipeWriter,
    status: StatusSender,
) -> Result<(Arc<Shared>, ProcessDriver), LaunchError> {
    let order = order_of(spec)
        .to_file()
        .map_err(|source| match source.kind() {
            io::ErrorKind::InvalidInput => LaunchError::Program {
                program: spec.program.clone(),
                source,
            },
            _ => LaunchError::setup("order to the keeper")(source),
        })?;
    let mut keeper = keepers.take(spec)?;
    keeper.calls += 1;
    let call = KeptCall {
        socket: Arc::clone(&keeper.socket),
        number: keeper.calls,
    };
    let identity = keeper.identity.clone();
    let known = Arc::<KnownMembers>::default();
    let lever = KeeperLever {
        call: call.clone(),
        keeper: identity.clone(),
        pidfd: Arc::clone(&keeper.pidfd),
        known: Arc::clone(&known),
    };
    let (detach_tx, detach_rx) = detach_channel();
    let socket = watch(Arc::clone(&keeper.socket));
    // From here on the keeper is the owner's: dropping that ends whatever was begun.
    let mut owner = Owner {
        program: spec.program.clone(),
        cwd: spec.cwd.clone(),
        marker: Arc::clone(&spec.marker),
        keepers: Arc::clone(keepers),
        keeper: Some(keeper),
        call,
        socket: None,
        known,
        status,
        detach_rx,
        detaching: None,
        failed: None,
    };
    owner.socket = Some(socket.map_err(LaunchError::setup("socket to the keeper"))?);
    match send_order(&owner.call, &order, output) {
        // The driver sees that it has ended.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(errno) => return Err(LaunchError::setup("order to the keeper")(errno.into())),
    }
    let shared = Shared::new(
        Arc::clone(&spec.marker),
        Containment::Keeper,
        Some(identity),
        Box::new(lever),
        detach_tx,
    );
    Ok((shared, ProcessDriver::new(owner.drive())))
}

/// The command with its whole environment: this process's own, as it is now, with what the specification changes.
fn order_of(spec: &ProcessSpec) -> Order {
    let is_set_or_hidden = |name: &OsString| {
        spec.env_hidden.contains(name)
            || name == MARKER_VARIABLE
            || spec.env.iter().any(|(set, _)| set == name)
    };
    let inherited = std::env::vars_os().filter(|(name, _)| !is_set_or_hidden(name));
    let marker = (MARKER_VARIABLE.into(), (&*spec.marker).into());
    Order {
        cwd: spec.cwd.clone().into_os_string(),
        program: spec.program.clone(),
        args: spec.args.clone(),
        env: inherited
            .chain(spec.env.iter().cloned())
            .chain([marker])
            .collect(),
    }
}

fn send_order(call: &KeptCall, order: &OwnedFd, output: &io::PipeWriter) -> rustix::io::Result<()> {
    let files = [output.as_fd(), order.as_fd()];
    let packet = Command {
        call: call.number,
        action: Action::Start,
    };
    let packet = packet.encode();
    let send = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&call.socket, &[IoSlice::new(&packet)], &mut control, flags).map(drop)
    };
    match send() {
        Err(Errno::AGAIN) => {
            // Full of signals for the call before, which the keeper is just reading.
            let limit = Timespec::try_from(ORDER_WAIT).ok();
            poll(
                &mut [PollFd::new(&call.socket, PollFlags::OUT)],
                limit.as_ref(),
            )?;
            send()
        }
        done => done,
    }
}
