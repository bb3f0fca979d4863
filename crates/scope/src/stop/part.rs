//! The account of one part of a wider stop: the same stop, seen from one scope alone.

use std::sync::Arc;

use allstop_core::receipt::StopInfo;
use allstop_core::{Extent, Receipt};

use super::{Stop, accept, answer};
use crate::cell::{Node, Reached, Role, StopInProgress};
use crate::scope::Scope;

impl Scope {
    /// The account of the stop that covers this scope, seen from here alone: what of *this* stopped and what did not.
    /// For an engine that was stopped by a wider stop and owes its own log a receipt. `None` where no stop covers it.
    pub fn account(&self, extent: Extent, bystanders: Vec<Scope>) -> Option<Account> {
        let bystanders = bystanders.into_iter().map(Self::into_node);
        account_of_part(self.node(), extent, bystanders.collect())
    }
}

/// Account of one part of a wider stop: the same stop, seen from one scope. It climbs no ladder.
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
        bystanders: Vec<Node>,
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
                    _answered_before = part.receipt() => {}
                    () = part.shared.count().quiet() => answer::account(&part.shared, bystanders),
                    _ladder_climbed = wider.receipt() => answer::account(&part.shared, bystanders),
                }
                part.receipt().await
            }
        }
    }
}

/// The account of one part of a wider stop that runs or has run. `None` where no stop covers it. A stop of `part`
/// itself is its own account.
fn account_of_part(part: &Node, extent: Extent, bystanders: Vec<Node>) -> Option<Account> {
    let cause = part.cause()?;
    let covering = part.covering_stop()?;
    let account = |part, bystanders, wider| {
        Account(AccountKind::Part {
            part: Stop { shared: part },
            wider: Stop { shared: wider },
            bystanders,
        })
    };
    // An account is answered by whoever waits for it, so what is waited for beside it is the stop behind it.
    let stop = Arc::clone(covering.wider().unwrap_or(&covering));
    if covering.is_of(part) {
        return Some(if covering.is_part() {
            account(covering, bystanders, stop)
        } else {
            Account(AccountKind::Own(Stop { shared: covering }))
        });
    }
    let request = StopInfo {
        target: part.label(),
        extent,
        cause: cause.clone(),
        ..stop.request().clone()
    };
    let shared = StopInProgress::of_part(part, request, Arc::clone(&stop));
    shared.covering(|nodes| {
        let mut reached = Reached::default();
        part.accept(&shared, &cause, Role::Below, &mut reached);
        accept::walk(part, &shared, &cause, nodes, &mut reached);
    });
    // The walk is over: what remains is what runs.
    shared.count().one_less();
    answer::add_part(&stop, &shared, bystanders.clone());
    Some(account(shared, bystanders, stop))
}
