//! Scopes below a scope, and the deadlines at which scopes stop by themselves.

use std::borrow::Cow;
use std::sync::Arc;

use allstop_core::{Cause, CauseKind, Extent};
use tokio::time::Instant;

use crate::cell::{NodeSpec, Placement};
use crate::gate::NotStarted;
use crate::scope::Scope;
use crate::stop::StopRequest;
use crate::sync::{self, CommitDecision};
use crate::work::WorkSpec;

/// Options of a new scope.
#[derive(Debug, Default)]
pub struct ScopeOptions {
    /// When it stops by itself, with cause `deadline`.
    pub deadline: Option<Deadline>,
    /// Set where the scope and all in it are one item of a receipt: a tool call with what it started.
    pub unit: Option<WorkSpec>,
    /// The turn's decision between commit and stop: a stop that comes after the commit finds nothing to do.
    pub decision: Option<Arc<CommitDecision>>,
    /// Its place below the scope that it is made in.
    pub placement: Placement,
}

/// Time at which a scope stops by itself, and its name in receipts.
#[derive(Debug, Clone)]
pub struct Deadline {
    /// On tokio's clock.
    pub at: Instant,
    /// The scope that it stops, if the end of this part is the end of a scope above; `None`: its own.
    pub stops: Option<Scope>,
    /// `turn deadline of 2s`.
    pub detail: Cow<'static, str>,
    /// Extent of the stop in the receipt.
    pub extent: Extent,
    /// Scopes outside the extent whose work the receipt names.
    pub bystanders: Vec<Scope>,
}

impl Scope {
    /// A scope below this one. It is stopped with this one.
    ///
    /// # Errors
    /// If a stop covers this scope, or it is closed: nothing starts behind the barrier.
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

    /// Gives the scope a deadline from now on, for work whose time begins later than its scope. At most one per scope:
    /// a second deadline replaces the first.
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
            // A deadline that has passed stops before anything starts, without a timer.
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
        let timer = self.env().options.control.spawn(timer);
        self.node().set_deadline_timer(timer.abort_handle());
    }
}
