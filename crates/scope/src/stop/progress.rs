//! The shared state of one stop: what it covers, how much of that runs, and its one answer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::receipt::{StopFindings, StopInfo};
use tokio::time::Instant;

use super::countdown::Countdown;
use super::ladder;
use crate::cell::{Node, WeakNode};
use crate::collect;
use crate::scope::Scope;
use crate::sync::{AtomicBool, Mutex, Ordering, SetOnce, StopSignal};

/// When the ladder goes from one rung to the next; the same for a stop and for the accounts of its parts.
#[derive(Clone)]
pub(super) struct Rungs {
    pub(super) accepted_at: Instant,
    pub(super) grace: Duration,
    /// Somebody does not want to wait for the grace.
    pub(super) forced: Arc<StopSignal>,
}

/// Invariants:
/// 1. `nodes` is locked from before the stop can be seen until its walk is over: whoever joins waits for that.
/// 2. `done` is set before the receipt can be read, and `nodes` are let go after it can be.
pub(crate) struct StopInProgress {
    request: StopInfo,
    /// Target of the stop. Weak: the cell holds its stops.
    target: WeakNode,
    /// The stop that this one accounts for a part of. That one climbs the ladder; this one only counts.
    wider: Option<Arc<StopInProgress>>,
    /// True if the target had ended or could no longer be stopped: the stop covers nothing, and waits for engines only.
    too_late: bool,
    rungs: Rungs,
    /// All that it covers, until it is answered: cells hold their stops, so this must not stay.
    nodes: Mutex<Arc<Vec<Node>>>,
    /// The accounts of its parts, each with the bystanders that it names.
    parts: Mutex<Vec<(Weak<StopInProgress>, Vec<Scope>)>>,
    count: Countdown,
    /// All that it covers has its cause.
    announced: AtomicBool,
    done: AtomicBool,
    receipt: SetOnce<Arc<Receipt>>,
}

impl StopInProgress {
    pub(super) fn new(target: &Node, request: StopInfo, rungs: Rungs) -> Arc<Self> {
        Arc::new(Self::with(target, request, rungs))
    }

    /// A stop of what has ended, or can no longer be stopped.
    pub(super) fn too_late(target: &Node, request: StopInfo, rungs: Rungs) -> Arc<Self> {
        Arc::new(Self {
            too_late: true,
            ..Self::with(target, request, rungs)
        })
    }

    /// The account of one part of a wider stop.
    pub(super) fn of_part(part: &Node, request: StopInfo, wider: Arc<Self>) -> Arc<Self> {
        let rungs = wider.rungs.clone();
        Arc::new(Self {
            wider: Some(wider),
            ..Self::with(part, request, rungs)
        })
    }

    fn with(target: &Node, request: StopInfo, rungs: Rungs) -> Self {
        Self {
            request,
            target: target.downgrade(),
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

    pub(super) fn request(&self) -> &StopInfo {
        &self.request
    }

    pub(super) fn rungs(&self) -> &Rungs {
        &self.rungs
    }

    pub(crate) fn count(&self) -> &Countdown {
        &self.count
    }

    pub(crate) fn is_of(&self, node: &Node) -> bool {
        self.target == *node
    }

    pub(crate) fn is_part(&self) -> bool {
        self.wider.is_some()
    }

    /// The stop that this one is the account of a part of.
    pub(super) fn wider(&self) -> Option<&Arc<Self>> {
        self.wider.as_ref()
    }

    /// From here on whoever asks hears of it: the walk is over, and all causes are set.
    pub(super) fn announce(&self) {
        self.announced.store(true, Ordering::Release);
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Acquire)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// True if the stop covers nothing, so that there is nothing to force.
    pub(super) fn is_too_late(&self) -> bool {
        self.too_late
    }

    pub(super) fn force(&self) {
        self.rungs.forced.give();
    }

    /// Covers scopes by `walk`, which lists them. Until it is over nobody else gets to see what the stop covers.
    pub(super) fn covering<T>(&self, walk: impl FnOnce(&mut Vec<Node>) -> T) -> T {
        let mut nodes = self.nodes.lock();
        let mut reached = Vec::new();
        let walked = walk(&mut reached);
        *nodes = Arc::new(reached);
        walked
    }

    /// All that it covers, when the walk is over; nothing once it is answered.
    pub(super) fn nodes(&self) -> Arc<Vec<Node>> {
        Arc::clone(&self.nodes.lock())
    }

    /// Returns when the walk is over: then nothing starts any more in what the stop covers.
    pub(super) fn wait_for_walk(&self) {
        drop(self.nodes.lock());
    }

    pub(super) async fn receipt(&self) -> Arc<Receipt> {
        Arc::clone(self.receipt.wait().await)
    }

    pub(super) fn try_receipt(&self) -> Option<Arc<Receipt>> {
        self.receipt.get().cloned()
    }

    pub(super) fn account_now(&self) -> Arc<Receipt> {
        // First the nodes, then the look for a receipt: if they have been let go already, it is there.
        let nodes = self.nodes();
        self.try_receipt()
            .unwrap_or_else(|| Arc::new(self.findings(&nodes)))
    }

    /// Receipt of this moment over these nodes, which are all that the stop covers.
    pub(super) fn findings(&self, nodes: &[Node]) -> Receipt {
        if self.too_late {
            let target = self.target.upgrade();
            let left = target.map(|target| collect::items_left(&target));
            return Receipt::of_ended(self.request.clone(), left.unwrap_or_default());
        }
        let findings = StopFindings {
            items: collect::items_of_stop(nodes, self.rungs.accepted_at),
            elapsed: self.rungs.accepted_at.elapsed(),
        };
        Receipt::of_stop(self.request.clone(), findings)
    }

    pub(super) fn answer(&self, receipt: Receipt) {
        // Done before the answer is readable: whoever has the receipt and stops again gets `already_ended`.
        self.done.store(true, Ordering::Release);
        // Of two who account for a part at once the first one's answer stands.
        drop(self.receipt.set(Arc::new(receipt)));
        // Last: who finds no nodes finds the answer.
        let nodes = std::mem::take(&mut *self.nodes.lock());
        drop(nodes);
        self.answer_parts();
    }

    /// The account of this part is answered with this stop at the latest: whoever was to wait for it may be gone, and
    /// an account without an answer holds its nodes.
    pub(super) fn add_part(&self, part: &Arc<Self>, bystanders: Vec<Scope>) {
        let part = (Arc::downgrade(part), bystanders);
        self.parts.lock().push(part);
        // Done is set before the parts are taken: one of the two sees this one.
        if self.is_done() {
            self.answer_parts();
        }
    }

    fn answer_parts(&self) {
        let parts = std::mem::take(&mut *self.parts.lock());
        for (part, bystanders) in parts {
            if let Some(part) = part.upgrade()
                && !part.is_done()
            {
                ladder::account(&part, &bystanders);
            }
        }
    }
}
