//! The steps of one stop, called its ladder: ask (the work is asked to stop) → grace (the stop waits) → force → account
//! (the receipt is created).

use std::future::Future;
use std::sync::Arc;

use super::answer::account;
use crate::env::{FORCE_ROUND, FORCE_ROUND_AT_ONCE, ScopeEnv, instant_after};
use crate::group::{FuturesOf, Node, StopInProgress, StopWorklist};
use crate::sync::{
    AbortHandle, CancellationToken, ProcessHandle, WOKEN_AT_ONCE_GROUPS_MAX, sleep, sleep_until,
};

/// Tokens of foreign code, processes and remotes. A stop must ask them, because they do not observe the signals of the
/// groups.
pub(super) struct AskRequests(StopWorklist);

impl AskRequests {
    pub(super) fn of(worklist: StopWorklist) -> Self {
        Self(worklist)
    }

    /// Sends the asks. Call this function outside of every lock, because it does I/O.
    pub(super) fn send(&self) {
        self.0.tokens.iter().for_each(CancellationToken::cancel);
        self.0.processes.iter().for_each(ProcessHandle::ask);
        for ask in &self.0.remotes {
            ask();
        }
    }
}

/// The signals of all nodes that a stop covers. Dropping this value wakes the waiters that are still waiting.
#[derive(Default)]
pub(super) struct Signals {
    unwoken: Arc<Vec<Node>>,
}

impl Signals {
    /// The signals of a stop that has been announced.
    pub(super) fn of(nodes: Arc<Vec<Node>>) -> Self {
        let mut signals = Self { unwoken: nodes };
        if signals.unwoken.len() <= WOKEN_AT_ONCE_GROUPS_MAX {
            signals.wake();
        }
        signals
    }

    fn wake(&mut self) {
        std::mem::take(&mut self.unwoken)
            .iter()
            .for_each(Node::wake);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.wake();
    }
}

/// Begins the steps of a stop after its walk is over.
pub(super) fn begin(
    env: &ScopeEnv,
    shared: &Arc<StopInProgress>,
    bystanders: Vec<Node>,
    signals: Signals,
) {
    // The walk is over. From now on, the count contains only running work.
    shared.count().decrement();
    if shared.count().is_quiet() {
        // No work was running, so the answer needs no task.
        drop(signals);
        account(shared, &bystanders);
    } else {
        let shared = Arc::clone(shared);
        let stop = LadderGuard {
            signals,
            shared,
            bystanders,
        };
        spawn_driver(env, climb(stop));
    }
}

/// A stop whose steps are running. If the runtime shuts down before the last step, the drop of this value answers the
/// stop with the facts that are known at that time. So waiters on other runtimes get an answer, and the stop and the
/// groups, which have references to each other, are freed.
struct LadderGuard {
    signals: Signals,
    shared: Arc<StopInProgress>,
    bystanders: Vec<Node>,
}

impl Drop for LadderGuard {
    fn drop(&mut self) {
        if !self.shared.is_done() {
            account(&self.shared, &self.bystanders);
        }
    }
}

/// Runs the steps of one stop. The steps take at most the grace and [`FORCE_MAX`](crate::FORCE_MAX) together.
async fn climb(mut stop: LadderGuard) {
    stop.signals.wake();
    let shared = &stop.shared;
    let times = shared.times();
    let asked_in_time = tokio::select! {
        biased;
        () = shared.count().quiet() => true,
        () = times.forced.wait() => false,
        () = times.grace_over.wait() => false,
        () = sleep_until(instant_after(times.accepted_at, times.grace)) => false,
    };
    // The first round forces the processes, and the futures that wait for no process. After the process tree of a shell
    // is gone, the shell's future returns by itself, with its result. The second round forces the remaining futures.
    if !asked_in_time
        && !shared.is_too_late()
        && !force_and_wait(shared, FuturesOf::ScopesWithoutProcess).await
    {
        force_and_wait(shared, FuturesOf::AllScopes).await;
    }
    account(shared, &stop.bystanders);
}

/// Runs one round of force. Returns true if all work has ended.
async fn force_and_wait(shared: &StopInProgress, futures_of: FuturesOf) -> bool {
    force(&shared.nodes(), futures_of);
    let at_once = async {
        shared.times().forced.wait().await;
        sleep(FORCE_ROUND_AT_ONCE).await;
    };
    tokio::select! {
        biased;
        () = shared.count().quiet() => true,
        () = sleep(FORCE_ROUND) => false,
        () = at_once => false,
    }
}

fn force(nodes: &[Node], futures_of: FuturesOf) {
    for node in nodes {
        let targets = node.force_targets(futures_of);
        // This happens outside the group's lock. An abort can run the destructor of the future here, and the destructor
        // ends the future's registration, which takes the lock.
        targets.futures.iter().for_each(AbortHandle::abort);
        targets.processes.iter().for_each(ProcessHandle::force);
    }
}

fn spawn_driver(env: &ScopeEnv, driver: impl Future<Output = ()> + Send + 'static) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that spawns; bounded by the ladder"
    )]
    drop(env.control().spawn(driver));
}
