//! Starts a command through a keeper, the helper process that contains the command's process tree. Provides access to
//! that tree.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Containment;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::sync::{mpsc, oneshot};

use crate::command_slots::CommandSlot;
use crate::containment::{ContainedTree, DetachTreeError, TreeContainment, TreeLauncher};
use crate::driver::ProcessDriver;
use crate::launch_error::LaunchError;
use crate::output::output_pipe;
use crate::spec::{MARKER_VARIABLE, ProcessSpec};
use crate::status::TreeMember;
use crate::status_channel::StatusSender;

use super::keeper::protocol::KeeperAction;
use super::keeper::start_command::StartCommand;
use super::keeper_client::{DetachRequest, KeeperClient};
use super::keeper_socket::KeptCall;
use super::keepers::Keepers;
use super::procfs_reader::read_on_thread;
use super::readiness::watch;
use super::tree::{KnownMembers, as_members, descendants};

struct KeeperContainment {
    call: KeptCall,
    keeper: ProcessIdentity,
    pidfd: Arc<OwnedFd>,
    known: Arc<KnownMembers>,
    detach_tx: mpsc::Sender<DetachRequest>,
}

impl KeeperContainment {
    fn send_command(&self, action: KeeperAction) {
        // The keeper may be suspended (SIGSTOP), so SIGCONT is sent first. If the keeper has ended, the driver notices
        // that.
        let _running = pidfd_send_signal(&self.pidfd, Signal::CONT);
        self.call.send_command(action);
    }
}

impl TreeContainment for KeeperContainment {
    fn level(&self) -> Containment {
        Containment::Keeper
    }

    fn keeper(&self) -> Option<&ProcessIdentity> {
        Some(&self.keeper)
    }

    fn ask(&self) {
        self.send_command(KeeperAction::Ask);
    }

    fn force(&self) {
        self.send_command(KeeperAction::Force);
    }

    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>> {
        let (keeper, known) = (self.keeper.pid, Arc::clone(&self.known));
        let read = move || {
            let found = descendants(keeper);
            known.set_stats(&found);
            as_members(&found)
        };
        read_on_thread(read).map(Option::unwrap_or_default).boxed()
    }

    fn known_members(&self) -> Vec<ProcessIdentity> {
        self.known.get()
    }

    fn detach(&self, output_file: &Path) -> BoxFuture<'static, Result<(), DetachTreeError>> {
        let (reply, answer) = oneshot::channel();
        let request = DetachRequest {
            output_file: output_file.to_owned(),
            reply,
        };
        let requests = self.detach_tx.clone();
        let detach = async move {
            let sent = requests.send(request).await;
            sent.map_err(|_| DetachTreeError::NotRunning)?;
            answer.await.unwrap_or(Err(DetachTreeError::NotRunning))
        };
        detach.boxed()
    }
}

impl TreeLauncher for Keepers {
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        self.launch_in(None, spec, status)
    }
}

/// Keepers with the slot of one command, which starts at once.
#[derive(Debug)]
pub(crate) struct ReservedKeeper {
    keepers: Arc<Keepers>,
    slot: Mutex<Option<CommandSlot>>,
}

impl ReservedKeeper {
    /// Waits for a slot; `None` if the commands have no limit.
    ///
    /// # Errors
    /// If no slot is free within this time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn take(
        keepers: &Arc<Keepers>,
        wait_max: Duration,
    ) -> Result<Option<Self>, LaunchError> {
        let slot = keepers.take_slot(wait_max).await?;
        Ok(slot.map(|slot| Self {
            keepers: Arc::clone(keepers),
            slot: Mutex::new(Some(slot)),
        }))
    }
}

impl TreeLauncher for ReservedKeeper {
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        let slot = self.slot.lock().take();
        Arc::clone(&self.keepers).launch_in(slot, spec, status)
    }
}

impl Keepers {
    fn launch_in(
        self: Arc<Self>,
        slot: Option<CommandSlot>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        let (output, writer) = output_pipe()?;
        let order = start_command_of(spec)
            .to_file()
            .map_err(|source| match source.kind() {
                io::ErrorKind::InvalidInput => LaunchError::Program {
                    program: spec.program.clone(),
                    source,
                },
                _ => LaunchError::setup("order to the keeper")(source),
            })?;
        let mut keeper = self.take(&spec.env_hidden, slot)?;
        keeper.calls += 1;
        let call = KeptCall::new(Arc::clone(&keeper.socket), keeper.calls);
        let known = Arc::<KnownMembers>::default();
        // One place in the channel is enough, because a caller that detaches waits for the answer.
        let (detach_tx, detach_rx) = mpsc::channel(1);
        let containment = KeeperContainment {
            call: call.clone(),
            keeper: keeper.identity.clone(),
            pidfd: Arc::clone(&keeper.pidfd),
            known: Arc::clone(&known),
            detach_tx,
        };
        let socket = watch(Arc::clone(&keeper.socket));
        // From here on, the client owns the keeper. If the command has started, dropping the client ends the tree.
        let mut client = KeeperClient {
            program: spec.program.clone(),
            cwd: spec.cwd.clone(),
            marker: Arc::clone(&spec.marker),
            keepers: self,
            keeper: Some(keeper),
            call,
            socket: None,
            known,
            status,
            main: None,
            detach_rx,
            detaching: None,
            failed: None,
        };
        client.socket = Some(socket.map_err(LaunchError::setup("socket to the keeper"))?);
        let deadline = client.keepers.deadline();
        match client.call.send_start(&order, &writer, deadline) {
            // If the keeper has ended, the driver notices that.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(LaunchError::setup("order to the keeper")(errno.into())),
        }
        Ok(ContainedTree {
            containment: Arc::new(containment),
            driver: ProcessDriver::new(client.drive()),
            output,
        })
    }
}

/// The command with its whole environment. This is the current environment of this process, with the changes from the
/// specification.
fn start_command_of(spec: &ProcessSpec) -> StartCommand {
    let is_set_or_hidden = |name: &OsString| {
        spec.env_hidden.contains(name)
            || name == MARKER_VARIABLE
            || spec.env.iter().any(|(set, _)| set == name)
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "passed on to the command, not read"
    )]
    let inherited = std::env::vars_os().filter(|(name, _)| !is_set_or_hidden(name));
    let marker = (MARKER_VARIABLE.into(), (&*spec.marker).into());
    StartCommand {
        cwd: spec.cwd.clone().into_os_string(),
        program: spec.program.clone(),
        args: spec.args.clone(),
        env: inherited
            .chain(spec.env.iter().cloned())
            .chain([marker])
            .collect(),
    }
}
