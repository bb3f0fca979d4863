//! Accepting a stop: the barrier of the whole extent closes before anybody hears of it.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::StopRequest;
use allstop_core::{Cause, Receipt};
use tokio::time::Instant;

use super::ladder::{self, Asks};
use super::progress::Rungs;
use super::{Stop, StopInProgress, StopOrder};
use crate::collect;
use crate::node::{Accepted, Node, Role};
use crate::sync::CancellationToken;

/// Accepts a stop of `target`, synchronously: when this returns, nothing in the extent starts any more.
pub(crate) fn accept(target: &Arc<Node>, order: StopOrder) -> Stop {
    let env = &target.env;
    let request = StopRequest {
        stop_id: (env.options.new_stop_id)(),
        target: Arc::clone(&target.label),
        extent: order.extent,
        cause: order.cause.clone(),
        requested_at: (env.options.now)(),
    };
    let rungs = Rungs {
        accepted_at: Instant::now(),
        grace: order.grace.unwrap_or(env.options.grace),
        forced: CancellationToken::new(),
    };
    let shared = StopInProgress::new(target, request, rungs);
    let covered = shared.covering(|nodes| cover(target, &shared, &order.cause, nodes));
    match covered {
        Ok(asks) => {
            // Causes are set on every node before any token fires, so that whoever hears it can ask why.
            target.token.cancel();
            asks.send();
            ladder::begin(env, &shared, order.bystanders);
            Stop { shared }
        }
        Err(NotCovered::Join(running)) => {
            running.wait_for_walk();
            // Who asks for a part of it does not force all of it.
            if order.grace == Some(Duration::ZERO) && running.is_of(target) {
                running.force();
            }
            Stop { shared: running }
        }
        Err(NotCovered::Ended) => already_ended(target, shared),
    }
}

/// Why a stop of its own is not needed.
enum NotCovered {
    /// One that covers the target runs.
    Join(Arc<StopInProgress>),
    /// What the target was for has ended, or can no longer be stopped.
    Ended,
}

fn cover(
    target: &Arc<Node>,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Arc<Node>>,
) -> Result<Asks, NotCovered> {
    let mut accepted = target.accept(shared, cause, Role::Target);
    if matches!(accepted, Accepted::Shut) {
        if target.has_ended() {
            return Err(NotCovered::Ended);
        }
        accepted = target.accept(shared, cause, Role::ShutTarget);
    }
    match accepted {
        Accepted::Join(running) => return Err(NotCovered::Join(running)),
        Accepted::Committed | Accepted::Shut => return Err(NotCovered::Ended),
        Accepted::Covered | Accepted::CoveredBefore => {}
    }
    walk(target, shared, cause, nodes);
    Ok(Asks::of(nodes))
}

/// Closes the barrier of everything below `target`, which has accepted already, and lists all nodes.
pub(super) fn walk(
    target: &Arc<Node>,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Arc<Node>>,
) {
    nodes.push(Arc::clone(target));
    let mut next = 0;
    while let Some(node) = nodes.get(next) {
        let children = node.children();
        for child in children {
            // A child keeps the cause of its own earlier stop; a wider one only counts it too.
            let accepted = child.accept(shared, cause, Role::Below);
            if !matches!(accepted, Accepted::CoveredBefore) {
                nodes.push(child);
            }
        }
        next += 1;
    }
}

fn already_ended(target: &Arc<Node>, shared: Arc<StopInProgress>) -> Stop {
    let mut request = shared.request().clone();
    if let Some(first) = target.covering_stop() {
        request.stop_id = first.request().stop_id.clone();
    }
    // What a committed turn has left running can no longer be ended by its stop, and is named; so is its engine, while it
    // writes the commit.
    let left = collect::items_left(target);
    shared.answer(Receipt::of_ended(request, left));
    Stop { shared }
}
