//! Scopes below a scope, and deadlines at which a scope stops automatically.

use std::borrow::Cow;
use std::sync::Arc;

use allstop_core::{Cause, CauseKind, Extent};
use tokio::time::Instant;

use crate::barrier::NotStarted;
use crate::group::{NodeSpec, Placement};
use crate::scope::Scope;
use crate::stop::StopRequest;
use crate::sync::{self, CommitDecision};
use crate::work::WorkSpec;

/// Options of a new scope.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ScopeOptions {
    /// Time at which the scope stops automatically, with the cause `deadline`.
    pub deadline: Option<Deadline>,
    /// Set if the scope and all its work are one item of a receipt, such as a tool call with its work.
    pub unit: Option<WorkSpec>,
    /// The turn's decision between commit and stop. If the turn has committed, a later stop finds nothing to do.
    pub decision: Option<Arc<CommitDecision>>,
    /// Placement relative to the parent scope.
    pub placement: Placement,
}

impl ScopeOptions {
    /// Sets the time at which the scope stops automatically, with the cause `deadline`.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Option<Deadline>>) -> Self {
        self.deadline = deadline.into();
        self
    }

    /// Makes the scope and all its work one item of a receipt.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<Option<WorkSpec>>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Sets the turn's decision between commit and stop.
    #[must_use]
    pub fn decision(mut self, decision: impl Into<Option<Arc<CommitDecision>>>) -> Self {
        self.decision = decision.into();
        self
    }

    /// Sets the placement relative to the parent scope.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }
}

/// Time at which a scope stops automatically, and the description of that stop in receipts.
#[derive(Debug, Clone)]
pub struct Deadline {
    /// Time on tokio's clock.
    pub at: Instant,
    /// Scope that stops at the deadline, if it is not the scope of the deadline itself. `None` stops the scope itself.
    pub stops: Option<Scope>,
    /// Detail of the cause, such as `turn deadline of 2s`.
    pub detail: Cow<'static, str>,
    /// Extent of the stop in the receipt.
    pub extent: Extent,
    /// Scopes outside the extent whose work the receipt lists.
    pub bystanders: Vec<Scope>,
}

impl Scope {
    /// Creates a scope below this one. A stop of this scope also stops the new scope.
    ///
    /// # Errors
    /// If a stop covers this scope, or the scope is closed.
    pub fn child(
        &self,
        label: impl Into<Arc<str>>,
        options: ScopeOptions,
    ) -> Result<Self, NotStarted> {
        let spec = NodeSpec {
            unit: options.unit,
            decision: options.decision,
            deadline: options.deadline.as_ref().map(|deadline| deadline.at),
            placement: options.placement,
        };
        let child = Self::of(self.node().child(label.into(), spec)?);
        if let Some(deadline) = options.deadline {
            child.arm(deadline);
        }
        Ok(child)
    }

    /// Sets the deadline of the scope. Use this function if the time limit of the work begins later than the scope. A
    /// scope has at most one deadline: a second deadline replaces the first.
    pub fn arm(&self, deadline: Deadline) {
        let request = StopRequest {
            extent: deadline.extent,
            target: None,
            cause: Cause::new(CauseKind::Deadline).detail(deadline.detail),
            grace: None,
            bystanders: deadline.bystanders,
        };
        let target = deadline.stops.unwrap_or_else(|| self.clone());
        if deadline.at <= Instant::now() {
            // If the deadline has already passed, the scope stops before any work starts. No timer is needed.
            let _receipt = target.stop(request);
            return;
        }
        let target = target.node().downgrade();
        let timer = async move {
            sync::sleep_until(deadline.at).await;
            if let Some(target) = target.upgrade().map(Self::of) {
                let _receipt = target.stop(request);
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that spawns; ends with the scope"
        )]
        let timer = self.env().control().spawn(timer);
        self.node().set_deadline_timer(timer.abort_handle());
    }
}
