//! The scope: the node of the cancellation tree that a piece of work runs in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ReceiptItem, StopInfo};
use allstop_core::{Cause, Extent, Receipt};
use tokio::time::Instant;

use crate::cell::Node;
use crate::collect;
use crate::env::{RootOptions, ScopeEnv};
use crate::gate::NotStarted;
use crate::registration::Registration;
use crate::sync::CancellationToken;
use crate::work::{Force, WorkSpec};

/// A cheap handle of one scope. Clones are the same scope.
///
/// Everything runs in a scope: work is registered before it runs, and registering and checking for a stop are one
/// step, so that nothing starts behind a stop that was accepted.
#[derive(Clone)]
pub struct Scope {
    node: Node,
}

impl Scope {
    /// The root of a new tree.
    pub fn root(label: impl Into<Arc<str>>, options: RootOptions) -> Self {
        Self::of(Node::root(Arc::new(ScopeEnv::new(options)), label.into()))
    }

    /// Name of the scope in receipts.
    pub fn label(&self) -> Arc<str> {
        self.node.label()
    }

    /// Hangs this scope, with all that runs in it and below, below another one of the same tree, in one step: stops of
    /// that one cover it from now on, and those of the one that it was made below do not. So do deadlines.
    ///
    /// # Errors
    /// If a stop covers either, or the new one is closed: then it stays where it is. A stop of the new one that came in
    /// between may cover it all the same.
    ///
    /// # Panics
    /// In debug builds, if the scope was not made to move, or is of another tree.
    pub fn move_below(&self, to: &Self) -> Result<(), NotStarted> {
        self.node.move_below(&to.node)
    }

    /// Name in receipts of the item that this scope belongs to: the id of its unit, behind those of the units that it was
    /// made in: `call_1/call_2`. `None` where it lies in none.
    pub fn item_path(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.node.unit()?.path))
    }

    /// The unit that receipts call so, if it is here or below. While one runs it is found.
    pub fn find_unit(&self, path: &str) -> Option<Self> {
        self.node.find_unit(path).map(Self::of)
    }

    pub(crate) fn of(node: Node) -> Self {
        Self { node }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn into_node(self) -> Node {
        self.node
    }

    pub(crate) fn env(&self) -> &Arc<ScopeEnv> {
        self.node.env()
    }

    /// Dry run of a stop of this scope: the items that it would find now.
    pub fn preview(&self, extent: Extent, cause: Cause) -> Receipt {
        let options = &self.node.env().options;
        let request = StopInfo {
            stop_id: (options.new_stop_id)(),
            target: self.node.label(),
            extent,
            cause,
            requested_at: (options.now)(),
        };
        Receipt::of_preview(request, self.running())
    }

    /// Items that run here and below now.
    pub fn running(&self) -> Vec<ReceiptItem> {
        collect::items_running(&self.node)
    }

    /// True if nothing runs here or below.
    pub fn is_quiet(&self) -> bool {
        self.node.subtree_live() == 0
    }

    /// Resolves when a stop covers this scope. [`Scope::cause`] says why.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<'_> {
        self.node.stopped()
    }

    /// Resolves when a stop covers this scope, and acknowledges it at this checkpoint for the futures that run in it.
    /// For the body of a unit, such as a tool's call, that has the scope and not its own
    /// [`WorkCx`](crate::WorkCx). It still has to return.
    ///
    /// # Cancel safety
    /// Cancel safe: it acknowledges only when it resolves.
    pub async fn stopped_at(&self, checkpoint: &'static str) -> Cause {
        self.stopped().await;
        self.node
            .acknowledge_futures(checkpoint)
            .expect("a cause is set before the signal is given")
    }

    /// True if a stop covers this scope.
    pub fn is_stopped(&self) -> bool {
        self.node.is_stopped()
    }

    /// Cause of the first stop; a later stop does not change it.
    pub fn cause(&self) -> Option<Cause> {
        self.node.cause()
    }

    /// Time until the nearest deadline of this scope and those above; `None` without a deadline.
    pub fn time_left(&self) -> Option<Duration> {
        let at = self.node.nearest_deadline()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// True if work could start here.
    ///
    /// # Errors
    /// Gives the reason if not. The answer is old as soon as it is given: to start something, register it.
    pub fn check(&self) -> Result<(), NotStarted> {
        self.node.check()
    }

    /// The token, for code that knows tokio-util and not this crate. Cancelling it is no stop: it closes no barrier
    /// and makes no receipt; so this is a child of the scope's own.
    pub fn token(&self) -> CancellationToken {
        self.node.token().child_token()
    }

    /// Registers work that is polled inside other registered work, or that somebody else runs.
    ///
    /// # Errors
    /// If a stop covers this scope, or it is closed.
    pub fn register(&self, spec: WorkSpec) -> Result<Registration, NotStarted> {
        self.node.register(spec, Force::Inline)
    }

    /// Registers a call of another machine. `ask` is called once when a stop covers it, and must not block. Unless
    /// the registration is finished with the remote's confirmation, a receipt says `unreachable`.
    ///
    /// # Errors
    /// If a stop covers this scope, or it is closed.
    pub fn register_remote(
        &self,
        spec: WorkSpec,
        ask: impl Fn() + Send + Sync + 'static,
    ) -> Result<Registration, NotStarted> {
        self.node.register(spec, Force::Remote(Arc::new(ask)))
    }

    /// Says that an engine drives this scope: a stop waits for its acknowledgement, and `cancel_observed` depends on
    /// it. The guard's drop says that the engine has ended.
    pub fn attach_engine(&self) -> EngineGuard {
        self.node.attach_engine();
        EngineGuard {
            scope: self.clone(),
        }
    }

    /// Closes the scope: what it was for has ended, and nothing starts in it any more. What still runs goes on, and is
    /// still covered by stops.
    pub fn close(&self) {
        self.node.close();
    }

    /// Number of running blocking threads of this tree.
    pub fn threads(&self) -> usize {
        self.node.env().threads()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

/// The engine that drives a scope. Its drop says that the engine has ended.
#[derive(Debug)]
#[must_use = "dropping it says that the engine has ended"]
pub struct EngineGuard {
    scope: Scope,
}

impl EngineGuard {
    /// Says that the engine heard the stop at a checkpoint. Without a stop that covers the scope it changes nothing.
    pub fn acknowledge(&self) {
        if self.scope.node.cause().is_some() {
            self.scope.node.engine_done();
        }
    }
}

impl Drop for EngineGuard {
    fn drop(&mut self) {
        self.scope.node.engine_done();
    }
}
