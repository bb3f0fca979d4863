//! Accepting a stop: the barrier of the whole extent closes before the stop can be observed.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Cause;
use allstop_core::receipt::StopInfo;
use tokio::time::Instant;

use super::ladder::{self, AskRequests, Signals};
use super::{Stop, StopRequest};
use crate::env::ScopeEnv;
use crate::group::{Accepted, LadderTimes, Node, Role, StopInProgress, StopWorklist};
use crate::scope::Scope;

impl Scope {
    /// Stops this scope and everything below it. The barrier is closed when this function returns. A task of the tree
    /// climbs the ladder, and the receipt is ready within grace and [`crate::FORCE_MAX`].
    ///
    /// A second stop of this scope or a scope inside it joins the first. A stop of a scope above covers this scope too.
    /// If the scope has ended or its turn has committed, the answer is `already_ended`, with the work that still runs
    /// there.
    pub fn stop(&self, request: StopRequest) -> Stop {
        self.accept_stop_of(std::slice::from_ref(self), request)
            .begin()
    }

    /// Accepts one stop of several scopes of this tree: one id, one cause, one ladder and one receipt. When this
    /// function returns, their barriers are closed; [`AcceptedStop::begin`] then asks the work. This function only
    /// takes the locks of groups, so the caller may hold a lock.
    ///
    /// The stop skips ended scopes and scopes of committed turns. If one scope remains, this is a stop of that scope
    /// alone. If a running stop covers all remaining scopes, this stop joins it. Otherwise this stop covers them all,
    /// even if a narrower stop of some of them is running. If none remains, the answer is `already_ended`. This scope
    /// provides the clock, the ids, and the default name of the target.
    pub fn accept_stop_of(&self, targets: &[Self], request: StopRequest) -> AcceptedStop {
        let mut open: Vec<&Node> = targets.iter().map(Self::node).collect();
        if targets.len() > 1 {
            open.retain(|node| !node.has_ended());
        }
        let info = self.stop_info(&request);
        let times = LadderTimes {
            accepted_at: Instant::now(),
            grace: request.grace.unwrap_or(self.env().options.grace),
            forced: Arc::default(),
        };
        let shared = StopInProgress::new(&open, info.clone(), times.clone());
        let covered = shared.covering(|nodes| {
            let asks = match *open.as_slice() {
                [] => return Err(NotCovered::Ended),
                [target] => cover(target, &shared, &request.cause, nodes),
                _ => cover_all(&open, &shared, &request.cause, nodes),
            }?;
            // All causes are set before the stop can be observed, so each observer finds the cause.
            shared.announce();
            Ok(asks)
        });
        let bystanders = request.bystanders.into_iter().map(Self::into_node);
        AcceptedStop::new(match covered {
            Ok(asks) => Acceptance::Covered {
                shared,
                asks,
                bystanders: bystanders.collect(),
                env: Arc::clone(self.env()),
            },
            Err(NotCovered::Join(running)) => Acceptance::Joined {
                // A request for a part of the running stop does not force all of it.
                is_forced: request.grace == Some(Duration::ZERO) && running.is_of_all(&open),
                running,
            },
            Err(NotCovered::Ended) => {
                let targets: Vec<&Node> = targets.iter().map(Self::node).collect();
                Acceptance::Ended {
                    shared: too_late(&targets, info, times),
                    env: Arc::clone(self.env()),
                }
            }
        })
    }

    /// The accepted request of a new stop, with its id and its time.
    pub fn stop_info(&self, request: &StopRequest) -> StopInfo {
        let options = &self.env().options;
        let target = request.target.clone();
        StopInfo {
            stop_id: (options.new_stop_id)(),
            target: target.unwrap_or_else(|| self.node().label()),
            extent: request.extent,
            cause: request.cause.clone(),
            requested_at: (options.now)(),
        }
    }
}

/// A stop whose barriers are closed. Dropping this value begins the stop.
#[must_use = "`begin` asks the work, and gives the stop"]
pub struct AcceptedStop(Option<Acceptance>);

enum Acceptance {
    Covered {
        shared: Arc<StopInProgress>,
        asks: AskRequests,
        bystanders: Vec<Node>,
        env: Arc<ScopeEnv>,
    },
    Joined {
        running: Arc<StopInProgress>,
        is_forced: bool,
    },
    Ended {
        shared: Arc<StopInProgress>,
        env: Arc<ScopeEnv>,
    },
}

impl std::fmt::Debug for AcceptedStop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceptedStop").finish_non_exhaustive()
    }
}

impl AcceptedStop {
    fn new(acceptance: Acceptance) -> Self {
        Self(Some(acceptance))
    }

    /// The stop, or the running stop that it has joined.
    pub fn stop(&self) -> Stop {
        let acceptance = self.0.as_ref().expect("only `begin` and the drop take it");
        let shared = match acceptance {
            Acceptance::Covered { shared, .. } | Acceptance::Ended { shared, .. } => shared,
            Acceptance::Joined { running, .. } => running,
        };
        Stop {
            shared: Arc::clone(shared),
        }
    }

    /// Wakes and asks the work, and begins to climb the ladder. Call this function outside of every lock.
    pub fn begin(mut self) -> Stop {
        let acceptance = self.0.take().expect("only this and the drop take it");
        acceptance.begin()
    }
}

impl Drop for AcceptedStop {
    fn drop(&mut self) {
        if let Some(acceptance) = self.0.take() {
            let _nobody_waits = acceptance.begin();
        }
    }
}

impl Acceptance {
    fn begin(self) -> Stop {
        match self {
            Self::Covered {
                shared,
                asks,
                bystanders,
                env,
            } => {
                let signals = Signals::of(shared.nodes());
                asks.send();
                ladder::begin(&env, &shared, bystanders, signals);
                Stop { shared }
            }
            Self::Joined { running, is_forced } => {
                running.wait_for_walk();
                if is_forced {
                    running.force();
                }
                Stop { shared: running }
            }
            Self::Ended { shared, env } => {
                ladder::begin(&env, &shared, Vec::new(), Signals::default());
                Stop { shared }
            }
        }
    }
}

/// Reason why the target needs no new stop.
enum NotCovered {
    /// A running stop covers the target.
    Join(Arc<StopInProgress>),
    /// The work of the target has ended, or can no longer be stopped.
    Ended,
}

fn cover(
    target: &Node,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
) -> Result<AskRequests, NotCovered> {
    let mut worklist = StopWorklist::default();
    let mut accepted = target.accept(shared, cause, Role::Target, &mut worklist);
    if matches!(accepted, Accepted::Closed) {
        if target.has_ended() {
            return Err(NotCovered::Ended);
        }
        accepted = target.accept(shared, cause, Role::ClosedTarget, &mut worklist);
    }
    match accepted {
        Accepted::Join(running) => return Err(NotCovered::Join(running)),
        Accepted::Committed | Accepted::Closed => return Err(NotCovered::Ended),
        Accepted::Covered | Accepted::CoveredBefore => {}
    }
    walk(target, shared, cause, nodes, &mut worklist);
    Ok(AskRequests::of(worklist))
}

/// Covers several scopes as a wider stop would, unless one running stop covers them all.
fn cover_all(
    targets: &[&Node],
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
) -> Result<AskRequests, NotCovered> {
    let mut common = targets.iter().map(|target| target.running_stops());
    let mut running = common.next().unwrap_or_default();
    for others in common {
        running.retain(|stop| others.iter().any(|other| Arc::ptr_eq(stop, other)));
    }
    if let Some(running) = running.into_iter().next() {
        return Err(NotCovered::Join(running));
    }
    let mut worklist = StopWorklist::default();
    let mut is_covered = false;
    for target in targets {
        match target.accept(shared, cause, Role::JointTarget, &mut worklist) {
            // The engine is writing its commit. The stop does not disturb the write, and waits for its end.
            Accepted::Committed => target.watch_engines(shared),
            Accepted::CoveredBefore => {}
            Accepted::Covered | Accepted::Join(_) | Accepted::Closed => {
                is_covered = true;
                walk(target, shared, cause, nodes, &mut worklist);
            }
        }
    }
    if is_covered {
        Ok(AskRequests::of(worklist))
    } else {
        Err(NotCovered::Ended)
    }
}

/// Closes the barriers of all scopes below `target`, which has accepted already, and lists all covered nodes.
pub(super) fn walk(
    target: &Node,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
    worklist: &mut StopWorklist,
) {
    nodes.push(target.clone());
    // The latest first, so that neighbours in the tree are listed together, and then woken together.
    while let Some(node) = worklist.below.pop() {
        // A child keeps the cause of an earlier stop. A wider stop only counts the child too.
        let accepted = node.accept(shared, cause, Role::Below, worklist);
        if !matches!(accepted, Accepted::CoveredBefore) {
            nodes.push(node);
        }
    }
}

/// A stop of targets that have ended, or can no longer be stopped. The stop waits for an engine that is writing its
/// commit, at most as long as the ask. It lists the work that the turn has left running, and does not end that work.
fn too_late(targets: &[&Node], mut info: StopInfo, times: LadderTimes) -> Arc<StopInProgress> {
    if let Some(first) = targets.iter().find_map(|target| target.covering_stop()) {
        info.stop_id = first.request().stop_id.clone();
    }
    let shared = StopInProgress::too_late(targets, info, times);
    for target in targets {
        target.watch_engines(&shared);
    }
    shared
}
