//! Accepts a stop: the barriers of all covered scopes are closed before any work can observe the stop.

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
    /// Stops this scope and everything below it. When this function returns, the barrier is closed. A task of the tree
    /// then runs the steps of the stop. The receipt is ready at the latest after the grace and [`crate::FORCE_MAX`].
    ///
    /// A second stop of this scope, or of a scope inside it, joins the first stop. A stop of a scope above also covers
    /// this scope. If the scope has ended or its turn has committed, the answer is `already_ended`, or `ending` with the
    /// work of the scope that still runs.
    pub fn stop(&self, request: StopRequest) -> Stop {
        self.accept_stop_of(std::slice::from_ref(self), request)
            .begin()
    }

    /// Accepts one stop of several scopes of this tree. The stop has one id, one cause, one grace and one receipt. When
    /// this function returns, the barriers of the scopes are closed; [`AcceptedStop::begin`] then asks the work. This
    /// function takes only the locks of groups, so the caller may hold another lock.
    ///
    /// The stop skips scopes that have ended and scopes of committed turns. If one scope remains, the stop is a stop of
    /// that scope alone. If a running stop covers all remaining scopes, the new stop joins the running stop. Otherwise
    /// the new stop covers all remaining scopes, even if a narrower stop of some of them is running. If no scope
    /// remains, the answer is `already_ended` or `ending`. The scope `self` provides the clock, the ids, and the default name of
    /// the target.
    pub fn accept_stop_of(&self, targets: &[Self], request: StopRequest) -> AcceptedStop {
        let mut open: Vec<&Node> = targets.iter().map(Self::node).collect();
        if targets.len() > 1 {
            open.retain(|node| !node.has_ended());
        }
        let info = self.stop_info(&request);
        let times = LadderTimes {
            accepted_at: Instant::now(),
            grace: request.grace.unwrap_or(self.env().options.grace),
            grace_over: Arc::default(),
            forced: Arc::default(),
        };
        let shared = StopInProgress::new(&open, info.clone(), times.clone());
        let covered = shared.covering(|nodes| {
            let asks = match *open.as_slice() {
                [] => return Err(NotCovered::Ended),
                [target] => cover(target, &shared, &request.cause, nodes),
                _ => cover_all(&open, &shared, &request.cause, nodes),
            }?;
            // All causes are set before any work can observe the stop, so that each observer finds the cause.
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
                // If the request is only for a part of the running stop, the running stop is not forced.
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

    /// The accepted request of a new stop, with a new id and the current time.
    pub fn stop_info(&self, request: &StopRequest) -> StopInfo {
        let env = self.env();
        let target = request.target.clone();
        StopInfo {
            stop_id: env.new_stop_id(),
            target: target.unwrap_or_else(|| self.node().label()),
            extent: request.extent,
            cause: request.cause.clone(),
            requested_at: env.now(),
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

    /// True if this request stops its targets: they had not ended, and no running stop covers them.
    pub fn is_new(&self) -> bool {
        matches!(self.0, Some(Acceptance::Covered { .. }))
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

    /// Wakes and asks the work, and starts the task that runs the next steps of the stop. Call this function outside of
    /// every lock.
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
    /// The target has ended, or can no longer be stopped.
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

/// Covers several scopes, as a stop of a common parent would. If one running stop already covers all of them, covers
/// nothing.
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
            // The engine is writing its commit. The stop does not interrupt the write, but waits until the write has
            // ended.
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

/// Closes the barriers of all scopes below `target`, and lists all covered nodes. `target` itself has already accepted
/// the stop.
pub(super) fn walk(
    target: &Node,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
    worklist: &mut StopWorklist,
) {
    nodes.push(target.clone());
    // Takes the latest scope first, so that scopes that are close in the tree are close in the list, and are woken
    // together.
    while let Some(node) = worklist.below.pop() {
        // If an earlier stop covers the child, the child keeps its cause. The wider stop then also counts the child.
        let accepted = node.accept(shared, cause, Role::Below, worklist);
        if !matches!(accepted, Accepted::CoveredBefore) {
            nodes.push(node);
        }
    }
}

/// A stop of targets that have ended, or can no longer be stopped. If an engine is writing its commit, the stop waits
/// for this engine, but at most for the grace. The stop lists the work of the turn that still runs, and does not end
/// this work.
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
