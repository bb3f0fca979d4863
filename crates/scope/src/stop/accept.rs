//! Accepting a stop: the barrier of the whole extent closes before the stop can be observed.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Cause;
use allstop_core::receipt::StopInfo;
use tokio::time::Instant;

use super::ladder::{self, Asks, Signals};
use super::{Stop, StopRequest};
use crate::cell::{Accepted, Node, Reached, Role, Rungs, StopInProgress};
use crate::scope::Scope;

impl Scope {
    /// Stops this scope and everything below it. When this returns the barrier is closed; the ladder is climbed by
    /// a task of the tree, and the receipt comes within grace and [`crate::FORCE_MAX`].
    ///
    /// A second stop of this scope or a scope inside it joins the first; a stop of a scope above covers it too. If the
    /// scope has ended or its turn has committed, the answer is `already_ended`, with what still runs there.
    pub fn stop(&self, request: StopRequest) -> Stop {
        let target = self.node();
        let env = target.env();
        let info = StopInfo {
            stop_id: (env.options.new_stop_id)(),
            target: target.label(),
            extent: request.extent,
            cause: request.cause.clone(),
            requested_at: (env.options.now)(),
        };
        let rungs = Rungs {
            accepted_at: Instant::now(),
            grace: request.grace.unwrap_or(env.options.grace),
            forced: Arc::default(),
        };
        let shared = StopInProgress::new(target, info.clone(), rungs.clone());
        let covered = shared.covering(|nodes| {
            let asks = cover(target, &shared, &request.cause, nodes)?;
            // All causes are set before the stop can be observed: each observer finds the cause.
            shared.announce();
            Ok(asks)
        });
        match covered {
            Ok(asks) => {
                let signals = Signals::of(shared.nodes());
                asks.send();
                let bystanders = request.bystanders.into_iter().map(Self::into_node);
                ladder::begin(env, &shared, bystanders.collect(), signals);
                Stop { shared }
            }
            Err(NotCovered::Join(running)) => {
                running.wait_for_walk();
                // A request for a part of it does not force all of it.
                if request.grace == Some(Duration::ZERO) && running.is_of(target) {
                    running.force();
                }
                Stop { shared: running }
            }
            Err(NotCovered::Ended) => already_ended(target, info, rungs),
        }
    }
}

/// Reason why the target needs no new stop.
enum NotCovered {
    /// A stop that covers the target runs.
    Join(Arc<StopInProgress>),
    /// The work of the target has ended, or can no longer be stopped.
    Ended,
}

fn cover(
    target: &Node,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
) -> Result<Asks, NotCovered> {
    let mut reached = Reached::default();
    let mut accepted = target.accept(shared, cause, Role::Target, &mut reached);
    if matches!(accepted, Accepted::Shut) {
        if target.has_ended() {
            return Err(NotCovered::Ended);
        }
        accepted = target.accept(shared, cause, Role::ShutTarget, &mut reached);
    }
    match accepted {
        Accepted::Join(running) => return Err(NotCovered::Join(running)),
        Accepted::Committed | Accepted::Shut => return Err(NotCovered::Ended),
        Accepted::Covered | Accepted::CoveredBefore => {}
    }
    walk(target, shared, cause, nodes, &mut reached);
    Ok(Asks::of(reached))
}

/// Closes the barrier of everything below `target`, which has accepted already, and lists all that it has covered.
pub(super) fn walk(
    target: &Node,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
    reached: &mut Reached,
) {
    nodes.push(target.clone());
    // The latest first, so that neighbours in the tree are listed, and then woken, together.
    while let Some(node) = reached.below.pop() {
        // A child keeps the cause of its own earlier stop; a wider stop only counts the child too.
        let accepted = node.accept(shared, cause, Role::Below, reached);
        if !matches!(accepted, Accepted::CoveredBefore) {
            nodes.push(node);
        }
    }
}

/// Answers a stop of a target that has ended, or can no longer be stopped. The stop waits for an engine that is writing
/// its commit, as long as the ask may take, and names the work that its turn has left running without ending it.
fn already_ended(target: &Node, mut info: StopInfo, rungs: Rungs) -> Stop {
    if let Some(first) = target.covering_stop() {
        info.stop_id = first.request().stop_id.clone();
    }
    let shared = StopInProgress::too_late(target, info, rungs);
    target.watch_engines(&shared);
    ladder::begin(target.env(), &shared, Vec::new(), Signals::default());
    Stop { shared }
}
