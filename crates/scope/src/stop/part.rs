//! The account of one part of a wider stop: the receipt (result) of that stop, restricted to the work of one scope. The
//! engine (the task that drives the scope) can write the account into its log.

use std::sync::Arc;

use allstop_core::receipt::StopInfo;
use allstop_core::{Extent, Receipt};

use super::{Stop, accept, answer};
use crate::group::{Node, Role, StopInProgress, StopWorklist};
use crate::scope::Scope;

/// Account of one part of a wider stop: the receipt of that stop, restricted to the work of one scope. An account
/// itself neither asks nor forces work.
#[derive(Debug)]
#[must_use = "the receipt says what still runs"]
pub struct PartReceipt(PartReceiptKind);

#[derive(Debug)]
enum PartReceiptKind {
    /// The scope was itself the target of the stop.
    Own(Stop),
    Part {
        part: Stop,
        wider: Stop,
        bystanders: Vec<Node>,
    },
}

impl PartReceipt {
    /// Waits for the receipt. The receipt is ready when no work of the part runs any more, or when the last step of the
    /// stop is over.
    ///
    /// # Cancel safety
    /// Cancel safe: a second call continues to wait, and returns the same receipt.
    pub async fn receipt(&self) -> Arc<Receipt> {
        match &self.0 {
            PartReceiptKind::Own(stop) => stop.receipt().await,
            PartReceiptKind::Part {
                part,
                wider,
                bystanders,
            } => {
                tokio::select! {
                    biased;
                    _answered_before = part.receipt() => {}
                    () = part.shared.count().quiet() => answer::account(&part.shared, bystanders),
                    _ladder_climbed = wider.receipt() => answer::account(&part.shared, bystanders),
                }
                part.receipt().await
            }
        }
    }
}

impl Scope {
    /// The account of the stop that covers this scope, restricted to the work of this scope. Use this function in an
    /// engine that was stopped by a wider stop and writes a receipt into its own log. `None` if no stop covers the
    /// scope. If the stop was requested for this scope itself, the account is the receipt of that stop.
    pub fn account(&self, extent: Extent, bystanders: Vec<Scope>) -> Option<PartReceipt> {
        let part = self.node();
        let cause = part.cause()?;
        let covering = part.covering_stop()?;
        let bystanders: Vec<Node> = bystanders.into_iter().map(Self::into_node).collect();
        let account = |part, bystanders, wider| {
            PartReceipt(PartReceiptKind::Part {
                part: Stop { shared: part },
                wider: Stop { shared: wider },
                bystanders,
            })
        };
        // If the covering stop is itself an account, uses the wider stop of this account, because the wider stop asks
        // and forces the work.
        let stop = Arc::clone(covering.wider().unwrap_or(&covering));
        if covering.is_of(part) {
            return Some(if covering.is_part() {
                account(covering, bystanders, stop)
            } else {
                PartReceipt(PartReceiptKind::Own(Stop { shared: covering }))
            });
        }
        let request = StopInfo {
            target: part.label(),
            extent,
            cause: cause.clone(),
            ..stop.request().clone()
        };
        let shared = StopInProgress::for_part(part, request, Arc::clone(&stop));
        shared.covering(|nodes| {
            let mut worklist = StopWorklist::default();
            part.accept(&shared, &cause, Role::Below, &mut worklist);
            accept::walk(part, &shared, &cause, nodes, &mut worklist);
        });
        // The walk is over. From now on, the count contains only running work.
        shared.count().decrement();
        answer::add_part(&stop, &shared, bystanders.clone());
        Some(account(shared, bystanders, stop))
    }
}
