//! A stop under way: the ladder ask → grace → force → account, and the handle that everyone who asked shares.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use allstop_core::receipt::{StopFindings, StopOutcome, StopRequest};
use allstop_core::{Cause, Extent, Receipt};
use tokio::sync::{Notify, SetOnce};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::collect;
use crate::env::{FORCE_ROUND, FORCE_ROUND_AT_ONCE, ScopeEnv};
use crate::node::{Accepted, Node};
use crate::scope::Scope;
use crate::work::Force;
use parking_lot::Mutex;

/// What a stop is asked for.
#[derive(Debug, Clone)]
pub struct StopOrder {
    /// What it covers, as the receipt calls it.
    pub extent: Extent,
    /// Why.
    pub cause: Cause,
    /// How long the ask may take; `None`: the tree's grace. Zero forces at once.
    pub grace: Option<Duration>,
    /// Scopes outside the extent whose work the receipt names.
    pub bystanders: Vec<Scope>,
}

impl StopOrder {
    /// A stop of this extent with this cause, and the tree's grace.
    pub fn new(extent: Extent, cause: Cause) -> Self {
        Self {
            extent,
            cause,
            grace: None,
            bystanders: Vec::new(),
        }
    }

    /// The same, with work outside the extent named.
    #[must_use]
    pub fn bystander(mut self, scope: &Scope) -> Self {
        self.bystanders.push(scope.clone());
        self
    }

    /// The same, with a grace of its own.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }
}

/// The shared state of one stop.
///
/// Invariant: `remaining` counts the live work of the nodes that the walk has reached, plus one while the walk goes
/// on, so that it is zero only when everything that the stop covers has ended.
pub(crate) struct StopInProgress {
    request: StopRequest,
    /// Where it was asked. Weak: the node holds its stops.
    target: Weak<Node>,
    rungs: Rungs,
    /// All that it covers, until it is answered: nodes hold their stops, so this must not stay.
    nodes: Mutex<Vec<Arc<Node>>>,
    remaining: AtomicUsize,
    quiet: Notify,
    done: AtomicBool,
    receipt: SetOnce<Arc<Receipt>>,
}

/// When the ladder goes from one rung to the next; the same for a stop and for the accounts of its parts.
#[derive(Clone)]
struct Rungs {
    accepted_at: Instant,
    grace: Duration,
    /// Somebody does not want to wait for the grace.
    forced: CancellationToken,
}

impl StopInProgress {
    fn new(target: &Arc<Node>, request: StopRequest, rungs: Rungs) -> Arc<Self> {
        Arc::new(Self {
            request,
            target: Arc::downgrade(target),
            rungs,
            nodes: Mutex::default(),
            remaining: AtomicUsize::new(1),
            quiet: Notify::new(),
            done: AtomicBool::new(false),
            receipt: SetOnce::new(),
        })
    }

    pub(crate) fn is_of(&self, node: &Node) -> bool {
        std::ptr::eq(self.target.as_ptr(), node)
    }

    pub(crate) fn more(&self, work: usize) {
        self.remaining.fetch_add(work, Ordering::Relaxed);
    }

    pub(crate) fn one_less(&self) {
        // Release: what the work did happens before the driver's receipt, which acquires.
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.quiet.notify_one();
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn is_quiet(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }

    async fn quiet(&self) {
        while !self.is_quiet() {
            self.quiet.notified().await;
        }
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.lock().clone()
    }

    /// What is known at this moment.
    fn findings(&self) -> Receipt {
        let nodes = self.nodes();
        let findings = StopFindings {
            items: collect::items_of_stop(&nodes, self.rungs.accepted_at),
            engine_acknowledged: nodes.iter().all(|node| node.engine_acknowledged()),
            elapsed: self.rungs.accepted_at.elapsed(),
        };
        Receipt::of_stop(self.request.clone(), findings)
    }

    fn answer(&self, receipt: Receipt) {
        self.nodes.lock().clear();
        // Done before the answer is readable: whoever has the receipt and stops again gets `already_ended`.
        self.done.store(true, Ordering::Release);
        // Of two who account for a part at once the first one's answer stands.
        drop(self.receipt.set(Arc::new(receipt)));
    }
}

/// A stop that was accepted. Await it for the receipt; dropping it changes nothing.
#[derive(Clone)]
#[must_use = "the receipt says what still runs"]
pub struct Stop {
    shared: Arc<StopInProgress>,
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stop")
            .field("request", &self.shared.request)
            .finish_non_exhaustive()
    }
}

impl Stop {
    /// Forces now what was being asked.
    pub fn force(&self) {
        self.shared.rungs.forced.cancel();
    }

    /// Who asked for what.
    pub fn request(&self) -> &StopRequest {
        &self.shared.request
    }

    /// The receipt, when the ladder has been climbed: after at most grace and [`FORCE_MAX`](crate::FORCE_MAX).
    ///
    /// # Cancel safety
    /// Cancel safe: the ladder is climbed by a task of the scope, whoever waits.
    pub async fn receipt(&self) -> Arc<Receipt> {
        Arc::clone(self.shared.receipt.wait().await)
    }

    /// What is known at this moment, for whoever cannot wait: an item that has not ended is still running, and says so.
    pub fn account_now(&self) -> Arc<Receipt> {
        self.try_receipt()
            .unwrap_or_else(|| Arc::new(self.shared.findings()))
    }

    /// The receipt, if it is there.
    pub fn try_receipt(&self) -> Option<Arc<Receipt>> {
        self.shared.receipt.get().cloned()
    }
}

impl IntoFuture for Stop {
    type Output = Arc<Receipt>;
    type IntoFuture = Pin<Box<dyn Future<Output = Arc<Receipt>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.receipt().await })
    }
}

/// Accepts a stop of `target`, synchronously: when this returns, nothing in the extent starts any more.
pub(crate) fn accept(target: &Arc<Node>, order: StopOrder) -> Stop {
    let env = Arc::clone(&target.env);
    let request = StopRequest {
        stop_id: (env.options.new_stop_id)(),
        target: Arc::clone(&target.label),
        extent: order.extent,
        cause: order.cause,
        requested_at: (env.options.now)(),
    };
    let rungs = Rungs {
        accepted_at: Instant::now(),
        grace: order.grace.unwrap_or(env.options.grace),
        forced: CancellationToken::new(),
    };
    let shared = StopInProgress::new(target, request, rungs);
    if target.has_ended() {
        return already_ended(target, shared);
    }
    let cause = shared.request.cause.clone();
    match target.accept(&shared, &cause, true) {
        Accepted::Join(running) => {
            let running = Stop { shared: running };
            if order.grace == Some(Duration::ZERO) {
                running.force();
            }
            return running;
        }
        Accepted::AlreadyEnded => return already_ended(target, shared),
        Accepted::Covered => {}
    }
    let nodes = walk(target, &shared, &cause);
    // Causes are set on every node before any token fires, so that whoever hears it can ask why.
    target.token.cancel();
    ask(&nodes);
    begin_climb(&env, shared, nodes, order.bystanders)
}

/// What became of one part of a wider stop: the same stop, seen from one scope alone. It climbs no ladder of its own.
#[derive(Debug)]
#[must_use = "the receipt says what still runs"]
pub struct Account(AccountKind);

#[derive(Debug)]
enum AccountKind {
    /// The scope was itself what the stop was asked of.
    Own(Stop),
    Part {
        part: Stop,
        wider: Stop,
        bystanders: Vec<Scope>,
    },
}

impl Account {
    /// The receipt: when nothing of the part runs any more, or the ladder of the stop has been climbed.
    ///
    /// # Cancel safety
    /// Cancel safe: asked again, it goes on waiting, and gives the same receipt once there is one.
    pub async fn receipt(&self) -> Arc<Receipt> {
        match &self.0 {
            AccountKind::Own(stop) => stop.receipt().await,
            AccountKind::Part {
                part,
                wider,
                bystanders,
            } => {
                tokio::select! {
                    biased;
                    _answered_before = part.shared.receipt.wait() => {}
                    () = part.shared.quiet() => account(&part.shared, bystanders),
                    _ladder_climbed = wider.shared.receipt.wait() => account(&part.shared, bystanders),
                }
                part.receipt().await
            }
        }
    }
}

/// The account of one part of a wider stop that runs or has run. `None` where no stop covers it. A stop of `part`
/// itself is its own account.
pub(crate) fn account_of_part(
    part: &Arc<Node>,
    extent: Extent,
    bystanders: Vec<Scope>,
) -> Option<Account> {
    let cause = part.cause()?;
    let wider = match part.covering_stop()? {
        own if own.is_of(part) => return Some(Account(AccountKind::Own(Stop { shared: own }))),
        wider => wider,
    };
    let request = StopRequest {
        target: Arc::clone(&part.label),
        extent,
        cause: cause.clone(),
        ..wider.request.clone()
    };
    let shared = StopInProgress::new(part, request, wider.rungs.clone());
    part.accept(&shared, &cause, false);
    *shared.nodes.lock() = walk(part, &shared, &cause);
    // The walk is over: what remains is what runs.
    shared.one_less();
    Some(Account(AccountKind::Part {
        part: Stop { shared },
        wider: Stop { shared: wider },
        bystanders,
    }))
}

/// Closes the barrier of everything below `target`, which has accepted already, and lists all nodes.
fn walk(target: &Arc<Node>, shared: &Arc<StopInProgress>, cause: &Cause) -> Vec<Arc<Node>> {
    let mut nodes = vec![Arc::clone(target)];
    let mut next = 0;
    while let Some(node) = nodes.get(next) {
        let children = node.children();
        for child in children {
            // A child keeps the cause of its own earlier stop; a wider one only counts it too.
            child.accept(shared, cause, false);
            nodes.push(child);
        }
        next += 1;
    }
    nodes
}

fn begin_climb(
    env: &ScopeEnv,
    shared: Arc<StopInProgress>,
    nodes: Vec<Arc<Node>>,
    bystanders: Vec<Scope>,
) -> Stop {
    *shared.nodes.lock() = nodes;
    let stop = Stop {
        shared: Arc::clone(&shared),
    };
    // The walk is over: what remains is what runs.
    shared.one_less();
    if shared.is_quiet() {
        // Nothing ran: the answer needs no task.
        account(&shared, &bystanders);
    } else {
        spawn_driver(env, climb(shared, bystanders));
    }
    stop
}

fn already_ended(target: &Arc<Node>, shared: Arc<StopInProgress>) -> Stop {
    let mut request = shared.request.clone();
    if let Some(first) = target.last_stop() {
        request.stop_id = first.request.stop_id.clone();
    }
    shared.answer(Receipt::of_nothing(request, StopOutcome::AlreadyEnded));
    Stop { shared }
}

/// Climbs the ladder of one stop. Bounded by grace and [`FORCE_MAX`](crate::FORCE_MAX).
async fn climb(shared: Arc<StopInProgress>, bystanders: Vec<Scope>) {
    let rungs = &shared.rungs;
    let asked_in_time = tokio::select! {
        biased;
        () = shared.quiet() => true,
        () = rungs.forced.cancelled() => false,
        () = tokio::time::sleep_until(rungs.accepted_at + rungs.grace) => false,
    };
    // First the processes, and only the futures that wait for none: a shell's future returns by itself, with what it
    // knows, as soon as its tree is gone. Then whatever is left.
    if !asked_in_time && !force_and_wait(&shared, |node_has_process| !node_has_process).await {
        force_and_wait(&shared, |_| true).await;
    }
    account(&shared, &bystanders);
}

/// One round of force. Returns whether all is quiet.
async fn force_and_wait(shared: &StopInProgress, abort_futures_of: impl Fn(bool) -> bool) -> bool {
    force(&shared.nodes(), abort_futures_of);
    let at_once = async {
        shared.rungs.forced.cancelled().await;
        tokio::time::sleep(FORCE_ROUND_AT_ONCE).await;
    };
    tokio::select! {
        biased;
        () = shared.quiet() => true,
        () = tokio::time::sleep(FORCE_ROUND) => false,
        () = at_once => false,
    }
}

fn account(shared: &StopInProgress, bystanders: &[Scope]) {
    let receipt = shared.findings().with_bystanders(
        bystanders
            .iter()
            .flat_map(|scope| collect::items_running(scope.node())),
    );
    shared.answer(receipt);
}

/// The ask beyond the token: processes and remotes are told.
fn ask(nodes: &[Arc<Node>]) {
    for node in nodes {
        let mut remotes = Vec::new();
        let mut processes = Vec::new();
        node.for_each_running(|entry| match &entry.force {
            Force::Process(process) => processes.push(process.clone()),
            Force::Remote(ask) => remotes.push(Arc::clone(ask)),
            _ => {}
        });
        // Outside the node's lock: these do I/O.
        processes
            .iter()
            .for_each(crate::process::ProcessHandle::ask);
        for ask in remotes {
            ask();
        }
    }
}

fn force(nodes: &[Arc<Node>], abort_futures_of: impl Fn(bool) -> bool) {
    for node in nodes {
        let mut processes = Vec::new();
        node.for_each_running(|entry| {
            if let Force::Process(process) = &entry.force {
                processes.push(process.clone());
            }
        });
        if abort_futures_of(!processes.is_empty()) {
            let mut aborts = Vec::new();
            node.for_each_running(|entry| match &entry.force {
                Force::Abort(handle) => aborts.push(handle.clone()),
                Force::AbortSoon => entry.forced = true,
                _ => {}
            });
            // Outside the node's lock: an abort can run the future's destructor here, which ends its registration.
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
        processes
            .iter()
            .for_each(crate::process::ProcessHandle::force);
    }
}

fn spawn_driver(env: &ScopeEnv, driver: impl Future<Output = ()> + Send + 'static) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that spawns; bounded by the ladder"
    )]
    drop(env.options.control.spawn(driver));
}
