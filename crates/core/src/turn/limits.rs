//! Limits of a turn, and the refusal when one is reached.

use std::sync::Arc;

use crate::cause::{Cause, CauseKind};
use crate::stop_reason::StopReason;
use crate::turn::budget::{Budget, BudgetExceeded};
use crate::turn::stop::reason_of;

/// The limits of a turn. `None` is no limit.
#[derive(Debug, Clone, Default)]
pub struct TurnLimits {
    /// Steps of one turn.
    pub steps_max: Option<u32>,
    /// Turns that the conversation may hold. Counted in turns, so that shortening the history never hides one.
    pub turns_max: Option<u32>,
    /// Shared with every turn and sub-agent that spends from it.
    pub budget: Option<Arc<Budget>>,
}

/// Reason that something did not start. Nothing was changed by asking.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A stop was first.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// The conversation holds as many turns as it may.
    #[error("the session's limit of {limit} turns is reached")]
    TurnsMax {
        /// The limit.
        limit: u32,
    },
    /// The turn has taken as many steps as it may.
    #[error("the turn's limit of {limit} steps is reached")]
    StepsMax {
        /// The limit.
        limit: u32,
    },
    /// It might cost more than is left.
    #[error(transparent)]
    Budget(#[from] BudgetExceeded),
}

impl Refusal {
    /// The stop reason of a turn that ends for it.
    pub fn reason(&self) -> StopReason {
        match self {
            Self::Stopped(cause) => reason_of(cause),
            Self::TurnsMax { .. } => StopReason::MaxTurnsReached,
            Self::StepsMax { .. } => StopReason::MaxStepsReached,
            Self::Budget(_) => StopReason::MaxBudgetReached,
        }
    }

    /// The cause of a turn that ends for it. All limits are of the kind `budget`; the stop reason tells them apart.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Stopped(cause) => cause.clone(),
            limit => Cause::new(CauseKind::Budget).detail(limit.to_string()),
        }
    }
}
