//! The shared state of one stop: the nodes that it covers, the count of those where something runs, and its one
//! receipt.
//!
//! It stands beside the cells because each holds the other: a cell keeps the stops that cover it, so that a second stop
//! can join, and a stop keeps the nodes that it covers until it is answered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::receipt::StopInfo;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::countdown::Countdown;
use super::{Node, WeakNode};
use crate::sync::{AtomicBool, Mutex, Ordering, SetOnce, StopSignal};

/// Times at which the ladder goes from one rung to the next; the same for a stop and for the accounts of its parts.
#[derive(Clone)]
pub(crate) struct Rungs {
    pub(crate) accepted_at: Instant,
    pub(crate) grace: Duration,
    /// Given to end the grace early.
    pub(crate) forced: Arc<StopSignal>,
}

/// Invariants:
/// 1. `nodes` is locked from before the stop can be seen until its walk is over: a stop that joins waits for that.
/// 2. `done` is set before the receipt can be read, and `nodes` are dropped after it can be.
pub(crate) struct StopInProgress {
    request: StopInfo,
    /// Targets of the stop: one, or several that it stops together. Weak: the cells hold their stops.
    targets: SmallVec<[WeakNode; 1]>,
    /// The stop that this one accounts for a part of. That one climbs the ladder; this one only counts.
    wider: Option<Arc<StopInProgress>>,
    /// True if the targets had ended or could no longer be stopped: the stop covers nothing, and waits for engines only.
    too_late: bool,
    rungs: Rungs,
    /// All that it covers, until it is answered: cells hold their stops, so a longer life would be a cycle.
    nodes: Mutex<Arc<Vec<Node>>>,
    /// The accounts of its parts, each with the bystanders that it names.
    parts: Mutex<Vec<(Weak<StopInProgress>, Vec<Node>)>>,
    count: Countdown,
    /// True once all that it covers has its cause.
    announced: AtomicBool,
    done: AtomicBool,
    receipt: SetOnce<Arc<Receipt>>,
}

impl StopInProgress {
    pub(crate) fn new(targets: &[&Node], request: StopInfo, rungs: Rungs) -> Arc<Self> {
        Arc::new(Self::with(targets, request, rungs))
    }

    /// A stop of what has ended, or can no longer be stopped.
    pub(crate) fn too_late(targets: &[&Node], request: StopInfo, rungs: Rungs) -> Arc<Self> {
        Arc::new(Self {
            too_late: true,
            ..Self::with(targets, request, rungs)
        })
    }

    /// The account of one part of a wider stop.
    pub(crate) fn of_part(part: &Node, request: StopInfo, wider: Arc<Self>) -> Arc<Self> {
        let rungs = wider.rungs.clone();
        Arc::new(Self {
            wider: Some(wider),
            ..Self::with(&[part], request, rungs)
        })
    }

    fn with(targets: &[&Node], request: StopInfo, rungs: Rungs) -> Self {
        Self {
            request,
            targets: targets.iter().map(|target| target.downgrade()).collect(),
            wider: None,
            too_late: false,
            rungs,
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

    /// Targets of the stop that are still there.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Node> {
        self.targets.iter().filter_map(WeakNode::upgrade)
    }

    pub(crate) fn rungs(&self) -> &Rungs {
        &self.rungs
    }

    pub(crate) fn count(&self) -> &Countdown {
        &self.count
    }

    /// True if the stop is of this scope alone.
    pub(crate) fn is_of(&self, node: &Node) -> bool {
        self.is_of_all(&[node])
    }

    /// True if the stop is of exactly these scopes.
    pub(crate) fn is_of_all(&self, nodes: &[&Node]) -> bool {
        let has = |node: &&&Node| self.targets.iter().any(|target| *target == ***node);
        self.targets.len() == nodes.len() && nodes.iter().all(|node| has(&node))
    }

    pub(crate) fn is_part(&self) -> bool {
        self.wider.is_some()
    }

    /// The stop that this one is the account of a part of.
    pub(crate) fn wider(&self) -> Option<&Arc<Self>> {
        self.wider.as_ref()
    }

    /// Makes the stop visible to all that it covers: the walk is over, and all causes are set.
    pub(crate) fn announce(&self) {
        self.announced.store(true, Ordering::Release);
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Acquire)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// True if the stop covers nothing, so that there is nothing to force.
    pub(crate) fn is_too_late(&self) -> bool {
        self.too_late
    }

    pub(crate) fn force(&self) {
        self.rungs.forced.give();
    }

    /// Covers scopes by `walk`, which lists them. Until the walk is over nobody else sees what the stop covers.
    pub(crate) fn covering<T>(&self, walk: impl FnOnce(&mut Vec<Node>) -> T) -> T {
        let mut nodes = self.nodes.lock();
        let mut reached = Vec::new();
        let walked = walk(&mut reached);
        *nodes = Arc::new(reached);
        walked
    }

    /// All that it covers, when the walk is over; nothing once it is answered.
    pub(crate) fn nodes(&self) -> Arc<Vec<Node>> {
        Arc::clone(&self.nodes.lock())
    }

    /// Returns when the walk is over: then nothing starts any more in what the stop covers.
    pub(crate) fn wait_for_walk(&self) {
        drop(self.nodes.lock());
    }

    pub(crate) async fn receipt(&self) -> Arc<Receipt> {
        Arc::clone(self.receipt.wait().await)
    }

    pub(crate) fn try_receipt(&self) -> Option<Arc<Receipt>> {
        self.receipt.get().cloned()
    }

    /// Sets the receipt and drops the nodes. The accounts of parts have to be answered next:
    /// [`StopInProgress::take_parts`].
    pub(crate) fn finish(&self, receipt: Receipt) {
        // Done before the receipt is readable: a stop after that gets `already_ended`.
        self.done.store(true, Ordering::Release);
        // If two callers account for a part at once, the first receipt stays.
        drop(self.receipt.set(Arc::new(receipt)));
        // Last: a caller that finds no nodes finds the receipt.
        let nodes = std::mem::take(&mut *self.nodes.lock());
        drop(nodes);
    }

    /// Keeps the account of a part, with the bystanders that it names, until this stop is answered.
    pub(crate) fn add_part(&self, part: &Arc<Self>, bystanders: Vec<Node>) {
        let part = (Arc::downgrade(part), bystanders);
        self.parts.lock().push(part);
    }

    pub(crate) fn take_parts(&self) -> Vec<(Weak<Self>, Vec<Node>)> {
        std::mem::take(&mut *self.parts.lock())
    }
}
