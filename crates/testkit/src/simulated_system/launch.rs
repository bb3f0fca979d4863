//! Containment of simulated trees: under the ordinary handle, driver and reader, without a process.
//!
//! Only time and memory are used, so a runtime without I/O is enough. It doubles for `group_and_marker`, and makes the
//! same claims: they rest on the simulation telling the truth, as those of the real one rest on `/proc`.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, EndProof};
use allstop_process::{
    ContainedTree, DetachTreeError, ExitInfo, OutputSource, ProcessDriver, ProcessSignal,
    StatusSender, TreeContainment, TreeMember,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// One tree, as a simulated system shows it to its containment.
pub trait SimulatedTree: Send + Sync {
    /// The main process.
    fn main(&self) -> ProcessIdentity;

    /// Delivers a signal to every living member. Must not block.
    fn signal(&self, signal: ProcessSignal);

    /// Living members now.
    fn members(&self) -> Vec<TreeMember>;

    /// Lives, and shows its visible events: the future ends when, and only when, no member is left. Dropped before that it
    /// must deliver [`ProcessSignal::Kill`], for nothing runs unwatched.
    fn live(self: Arc<Self>, seen: SimulatedLife) -> BoxFuture<'static, ()>;

    /// Its keeper. Without one it cannot be detached.
    fn keeper(&self) -> Option<ProcessIdentity> {
        None
    }

    /// Leaves it to its keeper: from now on dropping [`live`](Self::live) ends no member.
    fn detach(&self) {}
}

/// Receiver of the visible events of a [`SimulatedTree`].
#[derive(Debug)]
pub struct SimulatedLife {
    status: Arc<StatusSender>,
    output: MemoryPipe,
}

impl SimulatedLife {
    /// A member prints. The pipe takes everything: no member ever waits for its reader.
    pub fn print(&self, bytes: &[u8]) {
        self.output.push(bytes);
    }

    /// The main process has ended.
    pub fn exit(&self, exit: ExitInfo) {
        self.status.exited(exit);
    }
}

/// Starts the life of a tree under a driver.
pub fn contain(tree: &Arc<dyn SimulatedTree>, status: StatusSender) -> ContainedTree {
    status.started(tree.main());
    let (detach_tx, mut detach_rx) = mpsc::channel(1);
    let containment = SimulatedContainment {
        tree: Arc::clone(tree),
        keeper: tree.keeper(),
        detach_tx,
    };
    let (status, output) = (Arc::new(status), MemoryPipe::default());
    let mut life = Arc::clone(tree).live(SimulatedLife {
        status: Arc::clone(&status),
        output: output.clone(),
    });
    let tree = Arc::clone(tree);
    let driver = ProcessDriver::new(async move {
        tokio::select! {
            biased;
            () = &mut life => status.emptied(EndProof::ProcessGroupEmpty),
            Some(reply) = detach_rx.recv() => {
                tree.detach();
                status.detached();
                let reply: oneshot::Sender<()> = reply;
                // The asker may have stopped waiting.
                let _unheard = reply.send(());
            }
        }
    });
    ContainedTree {
        containment: Arc::new(containment),
        driver,
        output: Box::new(output),
    }
}

struct SimulatedContainment {
    tree: Arc<dyn SimulatedTree>,
    keeper: Option<ProcessIdentity>,
    detach_tx: mpsc::Sender<oneshot::Sender<()>>,
}

impl TreeContainment for SimulatedContainment {
    fn level(&self) -> Containment {
        Containment::GroupAndMarker
    }

    fn keeper(&self) -> Option<&ProcessIdentity> {
        self.keeper.as_ref()
    }

    fn ask(&self) {
        self.tree.signal(ProcessSignal::Term);
    }

    fn force(&self) {
        self.tree.signal(ProcessSignal::Kill);
    }

    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>> {
        let tree = Arc::clone(&self.tree);
        async move { tree.members() }.boxed()
    }

    fn known_members(&self) -> Vec<ProcessIdentity> {
        let members = self.tree.members().into_iter();
        members.map(|member| member.identity).collect()
    }

    fn detach(&self, _output_file: &Path) -> BoxFuture<'static, Result<(), DetachTreeError>> {
        if self.keeper.is_none() {
            return std::future::ready(Err(DetachTreeError::NeedsKeeper)).boxed();
        }
        let (reply, answer) = oneshot::channel();
        let requests = self.detach_tx.clone();
        let detach = async move {
            let sent = requests.send(reply).await;
            sent.map_err(|_| DetachTreeError::NotRunning)?;
            answer.await.map_err(|_| DetachTreeError::NotRunning)
        };
        detach.boxed()
    }
}

/// A pipe without a kernel. It has one reader.
#[derive(Debug, Clone, Default)]
struct MemoryPipe(Arc<Mutex<PipeState>>);

#[derive(Debug, Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    reader: Option<Waker>,
}

impl MemoryPipe {
    fn push(&self, bytes: &[u8]) {
        let mut state = self.0.lock();
        state.bytes.extend(bytes);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl OutputSource for MemoryPipe {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.bytes.is_empty() {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_now(buffer)
    }

    fn available(&self) -> io::Result<u64> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let len = state.bytes.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(state.bytes.drain(..len)) {
            *place = byte;
        }
        Ok(len)
    }
}
