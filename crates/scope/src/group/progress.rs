//! The shared state of one stop: the covered nodes, the number of groups with running work, and the single receipt. A
//! node is one scope. A group is a set of scopes that share one registry of work.
//!
//! The state is in this module because groups and stops have references to each other. A group stores the stops that
//! cover it, so that a second stop can join. A stop stores the nodes that it covers until the stop is answered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::receipt::StopInfo;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::countdown::Countdown;
use super::{Node, WeakNode};
use crate::sync::{AtomicBool, Mutex, Ordering, SetOnce, StopSignal};

/// Times of the steps of a stop. A stop and the accounts of its parts share these times.
#[derive(Clone)]
pub(crate) struct LadderTimes {
    pub(crate) accepted_at: Instant,
    pub(crate) grace: Duration,
    /// Set to end the grace early.
    pub(crate) grace_over: Arc<StopSignal>,
    /// Set to end the grace early, and to shorten the rounds of force.
    pub(crate) forced: Arc<StopSignal>,
}

/// Invariants:
/// 1. `nodes` is locked from before the stop becomes visible until the end of the walk that collects the nodes. So a
///    second stop that joins waits for the end of the walk.
/// 2. `done` is set before the receipt becomes readable. `nodes` are dropped after that.
pub(crate) struct StopInProgress {
    request: StopInfo,
    /// Targets of the stop: one scope, or several scopes that are stopped together. The references are weak, because
    /// the groups have strong references to their stops.
    targets: SmallVec<[WeakNode; 1]>,
    /// The wider stop, if this value is the account of a part of that stop. The wider stop asks and forces the work;
    /// the account only counts the work.
    wider: Option<Arc<StopInProgress>>,
    /// True if the targets had ended or could no longer be stopped. The stop then covers no scope, and waits only for
    /// engines.
    too_late: bool,
    times: LadderTimes,
    /// All covered nodes, until the stop is answered. Keeping the nodes longer would create a reference cycle, because
    /// groups have references to their stops.
    nodes: Mutex<Arc<Vec<Node>>>,
    /// The accounts of the parts. Each account is stored with its bystanders: the scopes outside the extent whose work
    /// the account lists.
    parts: Mutex<Vec<(Weak<StopInProgress>, Vec<Node>)>>,
    count: Countdown,
    /// True when all covered scopes have their cause.
    announced: AtomicBool,
    done: AtomicBool,
    receipt: SetOnce<Arc<Receipt>>,
}

impl StopInProgress {
    pub(crate) fn new(targets: &[&Node], request: StopInfo, times: LadderTimes) -> Arc<Self> {
        Arc::new(Self::with(targets, request, times))
    }

    /// A stop of targets that have ended, or can no longer be stopped.
    pub(crate) fn too_late(targets: &[&Node], request: StopInfo, times: LadderTimes) -> Arc<Self> {
        Arc::new(Self {
            too_late: true,
            ..Self::with(targets, request, times)
        })
    }

    /// The account of one part of a wider stop.
    pub(crate) fn for_part(part: &Node, request: StopInfo, wider: Arc<Self>) -> Arc<Self> {
        let times = wider.times.clone();
        Arc::new(Self {
            wider: Some(wider),
            ..Self::with(&[part], request, times)
        })
    }

    fn with(targets: &[&Node], request: StopInfo, times: LadderTimes) -> Self {
        Self {
            request,
            targets: targets.iter().map(|target| target.downgrade()).collect(),
            wider: None,
            too_late: false,
            times,
            nodes: Mutex::default(),
            parts: Mutex::default(),
            count: Countdown::of_walk(),
            announced: AtomicBool::new(false),
            done: AtomicBool::new(false),
            receipt: SetOnce::new(),
        }
    }

    pub(crate) fn request(&self) -> &StopInfo {
        &self.request
    }

    /// Targets of the stop that still exist.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Node> {
        self.targets.iter().filter_map(WeakNode::upgrade)
    }

    pub(crate) fn times(&self) -> &LadderTimes {
        &self.times
    }

    pub(crate) fn count(&self) -> &Countdown {
        &self.count
    }

    /// True if this scope is the only target of the stop.
    pub(crate) fn is_of(&self, node: &Node) -> bool {
        self.is_of_all(&[node])
    }

    /// True if exactly these scopes are the targets of the stop.
    pub(crate) fn is_of_all(&self, nodes: &[&Node]) -> bool {
        let has = |node: &&&Node| self.targets.iter().any(|target| *target == ***node);
        self.targets.len() == nodes.len() && nodes.iter().all(|node| has(&node))
    }

    pub(crate) fn is_part(&self) -> bool {
        self.wider.is_some()
    }

    /// The wider stop. `None` if this value is not the account of a part.
    pub(crate) fn wider(&self) -> Option<&Arc<Self>> {
        self.wider.as_ref()
    }

    /// Makes the stop visible to all covered scopes. The walk must be over, and all causes must be set.
    pub(crate) fn announce(&self) {
        self.announced.store(true, Ordering::Release);
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Acquire)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// True if the stop covers no scope, so no work must be forced.
    pub(crate) fn is_too_late(&self) -> bool {
        self.too_late
    }

    pub(crate) fn end_grace(&self) {
        self.times.grace_over.set_and_wake();
    }

    pub(crate) fn force(&self) {
        self.times.forced.set_and_wake();
    }

    /// Runs `walk`, which lists the scopes that the stop covers. Other threads see the covered scopes only after the
    /// walk.
    pub(crate) fn covering<T>(&self, walk: impl FnOnce(&mut Vec<Node>) -> T) -> T {
        let mut nodes = self.nodes.lock();
        let mut reached = Vec::new();
        let walked = walk(&mut reached);
        *nodes = Arc::new(reached);
        walked
    }

    /// All covered nodes. Waits for the end of the walk. Empty after the stop is answered.
    pub(crate) fn nodes(&self) -> Arc<Vec<Node>> {
        Arc::clone(&self.nodes.lock())
    }

    /// Waits for the end of the walk. After that, no work starts in the covered scopes.
    pub(crate) fn wait_for_walk(&self) {
        drop(self.nodes.lock());
    }

    pub(crate) async fn receipt(&self) -> Arc<Receipt> {
        Arc::clone(self.receipt.wait().await)
    }

    pub(crate) fn try_receipt(&self) -> Option<Arc<Receipt>> {
        self.receipt.get().cloned()
    }

    /// Sets the receipt and drops the nodes. Next, the caller must answer the accounts of the parts, which it gets from
    /// [`StopInProgress::take_parts`].
    pub(crate) fn finish(&self, receipt: Receipt) {
        // Set before the receipt is readable, so that a later stop gets `already_ended`.
        self.done.store(true, Ordering::Release);
        // If two callers create the receipt of a part at the same time, the first receipt is kept.
        drop(self.receipt.set(Arc::new(receipt)));
        // Dropped last: if another thread finds no nodes, the receipt already exists.
        let nodes = std::mem::take(&mut *self.nodes.lock());
        drop(nodes);
    }

    /// Stores the account of a part and its bystanders until this stop is answered.
    pub(crate) fn add_part(&self, part: &Arc<Self>, bystanders: Vec<Node>) {
        let part = (Arc::downgrade(part), bystanders);
        self.parts.lock().push(part);
    }

    pub(crate) fn take_parts(&self) -> Vec<(Weak<Self>, Vec<Node>)> {
        std::mem::take(&mut *self.parts.lock())
    }
}
