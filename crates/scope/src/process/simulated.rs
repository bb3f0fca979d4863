//! Trees of processes that exist only in memory, so that what runs commands can be tested on paused time.
//!
//! [`ContainmentChoice::Simulated`](super::ContainmentChoice::Simulated) starts no process: it asks a
//! [`SimulatedProcesses`] for a tree and gives the ordinary handle, driver and reader. Only time and memory are used, so
//! a runtime without I/O is enough. It doubles for `group_and_marker`, and makes the same claims: what they rest on is
//! that the simulation tells the truth, as `/proc` does elsewhere.
//!
//! Always compiled: what tests run is what ships, and no configuration names it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, Verified};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::driver::ProcessDriver;
use super::handle::{Lever, Shared, detach_channel};
use super::spec::{LaunchError, ProcessSpec};
use super::status::{ExitInfo, Member, Signal};
use super::status_channel::StatusSender;

/// Stands in for the system: begins trees of processes that are none.
pub trait SimulatedProcesses: fmt::Debug + Send + Sync {
    /// Begins a tree, whose main process runs from now on. Must not block.
    fn begin(&self, spec: &ProcessSpec) -> Result<Arc<dyn SimulatedTree>, LaunchError>;
}

/// One tree, as the system shows it to whoever contains it.
pub trait SimulatedTree: Send + Sync {
    /// The main process.
    fn main(&self) -> ProcessIdentity;

    /// Delivers a signal to every living member. Must not block.
    fn signal(&self, signal: Signal);

    /// The living members, now.
    fn members(&self) -> Vec<Member>;

    /// Lives, and says what can be seen of it: the future ends when, and only when, no member is left. Dropped before
    /// that it must deliver [`Signal::Kill`], for nothing runs unwatched.
    fn live(self: Arc<Self>, seen: SimulatedLife) -> BoxFuture<'static, ()>;

    /// Its keeper. Without one it cannot be let go.
    fn keeper(&self) -> Option<ProcessIdentity> {
        None
    }

    /// It is left to its keeper: from now on dropping [`live`](Self::live) ends nothing of it.
    fn let_go(&self) {}
}

/// Where a [`SimulatedTree`] shows what happens in it.
#[derive(Debug)]
pub struct SimulatedLife {
    status: Arc<StatusSender>,
    output: Arc<MemoryPipe>,
}

impl SimulatedLife {
    /// A member prints. The pipe takes everything: no member ever waits for its reader.
    pub fn print(&self, bytes: &[u8]) {
        self.output.push(bytes);
    }

    /// The main process has ended.
    pub fn exit(&self, exit: ExitInfo) {
        self.status.send_modify(|now| now.exited = Some(exit));
    }
}

struct SimulatedLever(Arc<dyn SimulatedTree>);

impl Lever for SimulatedLever {
    fn ask(&self) {
        self.0.signal(Signal::Term);
    }

    fn force(&self) {
        self.0.signal(Signal::Kill);
    }

    fn members(&self) -> BoxFuture<'static, Vec<Member>> {
        let tree = Arc::clone(&self.0);
        async move { tree.members() }.boxed()
    }

    fn known(&self) -> Vec<ProcessIdentity> {
        let members = self.0.members().into_iter();
        members.map(|member| member.identity).collect()
    }
}

pub(super) fn launch(
    spec: &ProcessSpec,
    system: &dyn SimulatedProcesses,
    output: Arc<MemoryPipe>,
    status: StatusSender,
) -> Result<(Arc<Shared>, ProcessDriver), LaunchError> {
    let tree = system.begin(spec)?;
    status.send_modify(|now| now.main = Some(tree.main()));
    let (detach_tx, mut detach_rx) = detach_channel();
    let shared = Shared::new(
        Arc::clone(&spec.marker),
        Containment::GroupAndMarker,
        tree.keeper(),
        Box::new(SimulatedLever(Arc::clone(&tree))),
        detach_tx,
    );
    let status = Arc::new(status);
    let life = Arc::clone(&tree).live(SimulatedLife {
        status: Arc::clone(&status),
        output,
    });
    let drive = async move {
        let mut life = life;
        tokio::select! {
            biased;
            () = &mut life => status.send_modify(|now| now.set_empty(Verified::ProcessGroupEmpty)),
            // The handle asks only where there is a keeper.
            Some(request) = detach_rx.recv() => {
                tree.let_go();
                status.send_modify(|now| now.detached = true);
                // Whoever asked may have stopped waiting.
                let _unheard = request.reply.send(Ok(()));
            }
        }
    };
    Ok((shared, ProcessDriver::new(drive)))
}

/// A pipe without a kernel. It has one reader.
#[derive(Debug, Default)]
pub(super) struct MemoryPipe {
    bytes: Mutex<VecDeque<u8>>,
    printed: Notify,
}

impl MemoryPipe {
    fn push(&self, bytes: &[u8]) {
        self.bytes.lock().extend(bytes);
        self.printed.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.lock().len()
    }

    pub(super) async fn readable(&self) {
        while self.len() == 0 {
            self.printed.notified().await;
        }
    }

    /// Without waiting; `0` where there is nothing.
    pub(super) fn take(&self, buffer: &mut [u8]) -> usize {
        let mut bytes = self.bytes.lock();
        let len = bytes.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(bytes.drain(..len)) {
            *place = byte;
        }
        len
    }
}
