//! Limits of a turn, and refusals because of a limit.

use std::sync::Arc;

use crate::cause::{Cause, CauseKind};
use crate::counted::counted;
use crate::stop_reason::StopReason;
use crate::turn::budget::{Budget, BudgetExceeded};

/// Limits of a turn. `None` means no limit.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TurnLimits {
    /// Maximum steps of one turn.
    pub steps_max: Option<u32>,
    /// Maximum turns of the conversation. The limit counts turns instead of messages, because a compaction removes
    /// messages.
    pub turns_max: Option<u32>,
    /// Budget, shared with all turns and sub-agents that spend from it.
    pub budget: Option<Arc<Budget>>,
}

impl TurnLimits {
    /// Sets the maximum steps of one turn.
    #[must_use]
    pub fn steps_max(mut self, steps_max: impl Into<Option<u32>>) -> Self {
        self.steps_max = steps_max.into();
        self
    }

    /// Sets the maximum turns of the conversation.
    #[must_use]
    pub fn turns_max(mut self, turns_max: impl Into<Option<u32>>) -> Self {
        self.turns_max = turns_max.into();
        self
    }

    /// Sets the budget.
    #[must_use]
    pub fn budget(mut self, budget: impl Into<Option<Arc<Budget>>>) -> Self {
        self.budget = budget.into();
        self
    }
}

/// Reason why a turn, a step or a call did not start. A refusal changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartRefusal {
    /// The turn was stopped before the start.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// The conversation has reached its turn limit.
    #[error("the session's limit of {} is reached", counted((*limit).into(), "turn", "turns"))]
    TurnsMax {
        /// The limit.
        limit: u32,
    },
    /// The turn has reached its step limit.
    #[error("the turn's limit of {} is reached", counted((*limit).into(), "step", "steps"))]
    StepsMax {
        /// The limit.
        limit: u32,
    },
    /// The remaining budget is smaller than the possible cost.
    #[error(transparent)]
    Budget(#[from] BudgetExceeded),
}

impl StartRefusal {
    /// Stop reason of a turn that ends with this refusal.
    pub fn reason(&self) -> StopReason {
        match self {
            Self::Stopped(cause) => cause.stop_reason(),
            Self::TurnsMax { .. } => StopReason::MaxTurnsReached,
            Self::StepsMax { .. } => StopReason::MaxStepsReached,
            Self::Budget(_) => StopReason::MaxBudgetReached,
        }
    }

    /// Cause of a turn that ends with this refusal. The cause of each limit has the kind `budget`, but each limit has
    /// its own stop reason.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Stopped(cause) => cause.clone(),
            limit => Cause::new(CauseKind::Budget).detail(limit.to_string()),
        }
    }
}
