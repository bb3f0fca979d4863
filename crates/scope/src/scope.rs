//! The scope: handle of one node of the tree of work, and the guard of its engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ReceiptItem;
use allstop_core::{Cause, Extent, Receipt};
use tokio::time::Instant;

use crate::barrier::NotStarted;
use crate::collect;
use crate::env::{RootOptions, ScopeEnv};
use crate::group::Node;
use crate::registration::Registration;
use crate::stop::StopRequest;
use crate::sync::CancellationToken;
use crate::work::{Force, WorkSpec};

/// A cheap handle of one scope. Clones refer to the same scope.
///
/// All work runs in a scope. Work is registered before it runs. Registering and checking for a stop are one step, so
/// that nothing starts after a stop was accepted.
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

    /// Renames the scope, for receipts of stops that are accepted from now on.
    pub fn relabel(&self, label: impl Into<Arc<str>>) {
        self.node.relabel(label.into());
    }

    /// Moves this scope, with all work in it and below it, below another scope of the same tree, in one step. From now
    /// on, stops and deadlines of the new parent cover this scope, and those of the former parent do not.
    ///
    /// # Errors
    /// If a stop covers either parent, or the new parent is closed. The scope then stays below its former parent. A
    /// stop of the new parent during the attempt may still cover it.
    ///
    /// # Panics
    /// In debug builds, if the scope was not created as movable, or belongs to another tree.
    pub fn move_below(&self, to: &Self) -> Result<(), NotStarted> {
        self.node.move_below(&to.node)
    }

    /// Path in receipts of the item that contains this scope: the id of its unit, after the ids of the enclosing units,
    /// such as `call_1/call_2`. `None` outside of units.
    pub fn item_path(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.node.unit()?.path))
    }

    /// The unit with this path in receipts. `None` if the unit is neither here nor below. A running unit is always
    /// found.
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

    /// Dry run of a stop of this scope: the items that a stop would find now.
    pub fn preview(&self, extent: Extent, cause: Cause) -> Receipt {
        let request = self.stop_info(&StopRequest::new(extent, cause));
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

    /// Resolves when a stop covers this scope. [`Scope::cause`] returns the cause.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<'_> {
        self.node.stopped()
    }

    /// Resolves when a stop covers this scope, and acknowledges the stop at this checkpoint for the futures of the
    /// scope. For the body of a unit, such as a tool call, that has the scope but no [`WorkCx`](crate::WorkCx). The
    /// body still has to return.
    ///
    /// # Cancel safety
    /// Cancel safe: acknowledges only when it resolves.
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

    /// Cause of the first stop. A later stop does not change it. `None` without a stop.
    pub fn cause(&self) -> Option<Cause> {
        self.node.cause()
    }

    /// Time until the nearest deadline of this scope and the scopes above it. `None` without a deadline.
    pub fn time_left(&self) -> Option<Duration> {
        let at = self.node.nearest_deadline()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Checks whether work could start here.
    ///
    /// # Errors
    /// Returns the reason. The result can be outdated at once. To start work, register it.
    pub fn check(&self) -> Result<(), NotStarted> {
        self.node.check()
    }

    /// A token for code that uses tokio-util and not this crate. Cancelling this token closes no barrier and creates no
    /// receipt, so it is not a stop. Therefore it is a child of the scope's token.
    pub fn token(&self) -> CancellationToken {
        self.node.token().child_token()
    }

    /// Registers work that is polled inside other registered work, or that runs outside of this crate.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed.
    pub fn register(&self, spec: WorkSpec) -> Result<Registration, NotStarted> {
        self.node.register(spec, Force::Inline)
    }

    /// Registers a call to another machine. `ask` is called once when a stop covers the call, and must not block.
    /// Unless the registration is finished with the remote's confirmation, the receipt reports `unreachable`.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed.
    pub fn register_remote(
        &self,
        spec: WorkSpec,
        ask: impl Fn() + Send + Sync + 'static,
    ) -> Result<Registration, NotStarted> {
        self.node.register(spec, Force::Remote(Arc::new(ask)))
    }

    /// Registers the engine that drives this scope. A stop waits for the engine's acknowledgement, and
    /// `cancel_observed` depends on it. Dropping the guard records the end of the engine.
    pub fn attach_engine(&self) -> EngineGuard {
        self.node.attach_engine();
        EngineGuard {
            scope: self.clone(),
        }
    }

    /// Closes the scope after its purpose has ended. Nothing starts in a closed scope. Running work is not interrupted,
    /// and stops still cover it.
    pub fn close(&self) {
        self.node.close();
    }

    /// Time limit of an ask in this tree.
    pub fn grace(&self) -> Duration {
        self.node.env().options.grace
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

/// The engine that drives a scope. Dropping the guard records the end of the engine.
#[derive(Debug)]
#[must_use = "dropping it says that the engine has ended"]
pub struct EngineGuard {
    scope: Scope,
}

impl EngineGuard {
    /// Records that the engine observed the stop at a checkpoint. Does nothing unless a stop covers the scope.
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
