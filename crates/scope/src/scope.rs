//! The handle of one scope in the tree of work, and the guard of the engine (the task that drives a scope). A receipt
//! is the result of a stop. It has one item for each piece of work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ReceiptItem;
use allstop_core::{Cause, Extent, Receipt};
use tokio::time::Instant;

use crate::barrier::NotStarted;
use crate::collect;
use crate::env::{CreateRootError, RootOptions, ScopeEnv};
use crate::group::Node;
use crate::registration::Registration;
use crate::stop::StopRequest;
use crate::sync::CancellationToken;
use crate::work::{Force, WorkSpec};

/// Interval of the checks whether a deadline that has passed still covers a scope.
const OVERDUE_RECHECK: Duration = Duration::from_millis(10);

/// A cheap handle of one scope. Clones refer to the same scope.
///
/// All work runs in a scope. Work is registered before it runs. The registration and the check for a stop are one step,
/// so that no work starts after a stop was accepted.
#[derive(Clone)]
pub struct Scope {
    node: Node,
}

impl Scope {
    /// Creates the root of a new tree.
    ///
    /// # Panics
    /// If the system provides no thread, as [`Scope::try_root`] reports.
    pub fn root(label: impl Into<Arc<str>>, options: RootOptions) -> Self {
        match Self::try_root(label, options) {
            Ok(root) => root,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates the root of a new tree, for a program that may have reached its limit of threads or file descriptors.
    ///
    /// # Errors
    /// If both runtimes of the options need a thread, and the system provides none. A tree works with one thread.
    pub fn try_root(
        label: impl Into<Arc<str>>,
        options: RootOptions,
    ) -> Result<Self, CreateRootError> {
        let env = Arc::new(ScopeEnv::new(options)?);
        Ok(Self::of(Node::root(env, label.into())))
    }

    /// Name of the scope in receipts.
    pub fn label(&self) -> Arc<str> {
        self.node.label()
    }

    /// Renames the scope. Receipts of stops that are accepted from now on contain the new name.
    pub fn relabel(&self, label: impl Into<Arc<str>>) {
        self.node.relabel(label.into());
    }

    /// Moves this scope below another scope of the same tree, in one step. All work in this scope and below it moves
    /// with the scope. From now on, stops and deadlines of the new parent cover this scope, and stops and deadlines of
    /// the former parent do not.
    ///
    /// # Errors
    /// If a stop covers either parent, or the new parent is closed. The scope then stays below its former parent. A
    /// stop of the new parent during the attempt may still cover the scope.
    ///
    /// # Panics
    /// In debug builds, if the scope was not created as movable, or belongs to another tree.
    pub fn move_below(&self, to: &Self) -> Result<(), NotStarted> {
        self.node.move_below(&to.node)
    }

    /// Path of the item that contains this scope in receipts, such as `call_1/call_2`. A unit is a scope whose whole
    /// work is one item. The path consists of the ids of the enclosing units and the id of the scope's unit. `None` if
    /// the scope is in no unit.
    pub fn item_path(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.node.unit()?.path))
    }

    /// The unit with this path in receipts, here or below. `None` if no such unit exists. A unit with running work is
    /// always found.
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

    /// Dry run of a stop of this scope. The items are the work that a stop would find now.
    pub fn preview(&self, extent: Extent, cause: Cause) -> Receipt {
        let request = self.stop_info(&StopRequest::new(extent, cause));
        Receipt::of_preview(request, self.running())
    }

    /// Items that run now, in this scope or below it.
    pub fn running(&self) -> Vec<ReceiptItem> {
        collect::items_running(&self.node)
    }

    /// True if no work runs in this scope or below it.
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

    /// Resolves when a stop covers this scope. Then acknowledges the stop at this checkpoint for all futures of the
    /// scope. Use this function in the body of a unit, such as a tool call, if the body has the scope but no
    /// [`WorkCx`](crate::WorkCx). After that, the body still has to return.
    ///
    /// # Cancel safety
    /// Cancel safe: a future that is dropped before it resolves acknowledges nothing.
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

    /// Cause of the first stop. A later stop does not change the cause. `None` if no stop covers the scope.
    pub fn cause(&self) -> Option<Cause> {
        self.node.cause()
    }

    /// Time until the earliest deadline of this scope and the scopes above it. `None` if there is no deadline.
    pub fn time_left(&self) -> Option<Duration> {
        let at = self.node.nearest_deadline()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// True if a deadline of this scope, or of a scope above it, has passed. Its stop may still be on the way, because
    /// a timer that shares its threads with other work can be late.
    pub fn is_overdue(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }

    /// If a deadline has passed, waits for the stop of this deadline, or until the deadline no longer covers this scope.
    /// Otherwise returns immediately.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stopped_if_overdue(&self) {
        // Work that moves to another scope leaves the deadline, and the deadline's stop then never comes.
        while self.is_overdue() && !self.is_stopped() {
            tokio::select! {
                () = self.stopped() => {}
                () = tokio::time::sleep(OVERDUE_RECHECK) => {}
            }
        }
    }

    /// Checks whether work could start here.
    ///
    /// # Errors
    /// Returns the reason. The result can be outdated immediately. To start work, register the work instead.
    pub fn check(&self) -> Result<(), NotStarted> {
        self.node.check()
    }

    /// A token for code that uses tokio-util and not this crate. The token is a child of the scope's token. If the code
    /// cancels the child token, this is not a stop: no barrier is closed and no receipt is created.
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

    /// Registers a call to another machine. `ask` is called once when a stop covers the call, and must not block. If
    /// the registration is not finished with the confirmation of the remote, the receipt reports `unreachable`.
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

    /// Registers a thread that runs outside of this crate, such as a thread of an interpreter. A stop cannot end the
    /// thread. If the registration is not finished before the last step of the stop, the receipt reports the thread as
    /// still running, with the name of `spec`. The thread finishes the registration when it ends.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed.
    pub fn register_thread(&self, spec: WorkSpec) -> Result<Registration, NotStarted> {
        self.node.register(spec, Force::Thread)
    }

    /// Registers the engine, the task that drives this scope. A stop waits until the engine has acknowledged, and the
    /// receipt's `cancel_observed` depends on the acknowledgement. Dropping the guard records the end of the engine.
    pub fn attach_engine(&self) -> EngineGuard {
        self.node.attach_engine();
        EngineGuard {
            scope: self.clone(),
        }
    }

    /// Closes the scope after its purpose has ended. No work starts in a closed scope. Running work continues, and
    /// stops still cover it.
    pub fn close(&self) {
        self.node.close();
    }

    /// Grace of this tree: the time between asking work to stop and ending it by force.
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
    /// Records that the engine observed the stop at a checkpoint. Does nothing if no stop covers the scope.
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
