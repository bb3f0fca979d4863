//! The receipt of a stop. The receipt is created from the registries of the covered nodes, and is set once. An account
//! is the receipt for one part of a wider stop. The accounts are answered at the same time as the stop.

use std::sync::Arc;

use allstop_core::Receipt;
use allstop_core::receipt::StopFindings;

use crate::collect;
use crate::group::{Node, StopInProgress};

/// Answers a stop with a receipt of the present state. Then answers the accounts of this stop that have no answer yet.
pub(super) fn account(stop: &StopInProgress, bystanders: &[Node]) {
    let outside = bystanders.iter().flat_map(collect::items_running);
    let receipt = findings(stop, &stop.nodes()).with_outside_items(outside);
    stop.finish(receipt);
    account_parts(stop);
}

fn account_parts(stop: &StopInProgress) {
    for (part, bystanders) in stop.take_parts() {
        if let Some(part) = part.upgrade()
            && !part.is_done()
        {
            account(&part, &bystanders);
        }
    }
}

/// Ensures that the account of this part is answered at the latest when the stop is answered. The caller may no longer
/// wait for the account, and an account without an answer keeps its nodes in memory.
pub(super) fn add_part(stop: &StopInProgress, part: &Arc<StopInProgress>, bystanders: Vec<Node>) {
    stop.add_part(part, bystanders);
    // `done` is set before the parts are taken. Therefore either this function sees `done`, or the stop sees the part.
    if stop.is_done() {
        account_parts(stop);
    }
}

/// The receipt if the stop is answered, otherwise a receipt of the present state.
pub(super) fn account_now(stop: &StopInProgress) -> Arc<Receipt> {
    // Reads the nodes before the receipt. If the nodes have already been dropped, the receipt exists.
    let nodes = stop.nodes();
    stop.try_receipt()
        .unwrap_or_else(|| Arc::new(findings(stop, &nodes)))
}

/// Receipt of the present state of these nodes. `nodes` must contain all nodes that the stop covers.
fn findings(stop: &StopInProgress, nodes: &[Node]) -> Receipt {
    let request = stop.request().clone();
    if stop.is_too_late() {
        let left = stop
            .targets()
            .flat_map(|target| collect::items_left(&target));
        return Receipt::already_ended(request, left.collect());
    }
    let accepted_at = stop.times().accepted_at;
    let findings = StopFindings {
        items: collect::items_of_stop(nodes, accepted_at),
        elapsed: accepted_at.elapsed(),
    };
    Receipt::of_stop(request, findings)
}
