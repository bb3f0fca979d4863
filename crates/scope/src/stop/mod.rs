//! A stop: its request, and the handle that all its callers share.
//!
//! The submodules are listed in the order in which they are used. [`accept`] closes the barriers of all covered scopes.
//! [`ladder`] asks, waits and forces. [`answer`] creates the receipt. [`part`] creates the receipt for a part of a
//! wider stop. The shared state of a stop is a [`StopInProgress`], which is defined in the module of the groups that
//! the stop covers.

mod accept;
mod answer;
mod ladder;
mod part;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::StopInfo;
use allstop_core::{Cause, Extent, Receipt};

use crate::group::StopInProgress;
use crate::scope::Scope;

pub use accept::AcceptedStop;
pub use part::PartReceipt;

/// Request of a stop.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StopRequest {
    /// Extent of the stop in the receipt.
    pub extent: Extent,
    /// Name of the target in the receipt. `None` means the label of the scope.
    pub target: Option<Arc<str>>,
    /// Cause of the stop.
    pub cause: Cause,
    /// Grace of this stop. `None` means the grace of the tree. Zero forces the work at once.
    pub grace: Option<Duration>,
    /// Scopes outside the extent whose work the receipt lists.
    pub bystanders: Vec<Scope>,
}

impl StopRequest {
    /// A stop of this extent with this cause. The grace is the grace of the tree.
    pub fn new(extent: Extent, cause: Cause) -> Self {
        Self {
            extent,
            target: None,
            cause,
            grace: None,
            bystanders: Vec::new(),
        }
    }

    /// Sets the name of the target in the receipt.
    #[must_use]
    pub fn target(mut self, target: impl Into<Arc<str>>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Adds a scope outside the extent whose work the receipt lists.
    #[must_use]
    pub fn bystander(mut self, scope: &Scope) -> Self {
        self.bystanders.push(scope.clone());
        self
    }

    /// Sets the grace.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }
}

/// An accepted stop. Await [`Stop::receipt`] or the stop itself to get the receipt. Dropping the stop changes nothing.
#[derive(Clone)]
#[must_use = "the receipt says what still runs"]
pub struct Stop {
    shared: Arc<StopInProgress>,
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stop")
            .field("request", self.request())
            .finish_non_exhaustive()
    }
}

impl Stop {
    /// Ends the grace. The work then has the usual time for its forced end, so the receipt contains the end of work that
    /// a busy machine ends slowly.
    pub fn end_grace(&self) {
        self.shared.end_grace();
    }

    /// Ends the grace, and forces the work now. The receipt follows at once, for a user who waits: work whose end is not
    /// proved in a tenth of a second is listed as still running.
    pub fn force(&self) {
        self.shared.force();
    }

    /// The accepted request.
    pub fn request(&self) -> &StopInfo {
        self.shared.request()
    }

    /// The receipt, after the last step of the stop. The wait takes at most the grace and
    /// [`FORCE_MAX`](crate::FORCE_MAX) together.
    ///
    /// # Cancel safety
    /// Cancel safe, because a task of the tree runs the steps of the stop.
    pub async fn receipt(&self) -> Arc<Receipt> {
        self.shared.receipt().await
    }

    /// Receipt of the present state, for callers that cannot wait. Reports each item that has not ended as still
    /// running.
    pub fn account_now(&self) -> Arc<Receipt> {
        answer::account_now(&self.shared)
    }

    /// True if the targets had ended, or could no longer be stopped.
    pub fn found_nothing(&self) -> bool {
        self.shared.is_too_late()
    }

    /// The receipt. `None` if the stop is not answered yet.
    pub fn try_receipt(&self) -> Option<Arc<Receipt>> {
        self.shared.try_receipt()
    }
}

impl IntoFuture for Stop {
    type Output = Arc<Receipt>;
    type IntoFuture = Pin<Box<dyn Future<Output = Arc<Receipt>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.receipt().await })
    }
}
