//! Budget of tokens and calls. Any number of threads may reserve tokens and calls before they spend them.
//!
//! Invariants:
//! 1. The sum of reserved and spent tokens never exceeds the limit, unless a call uses more than its own reservation.
//!    The usage of a call is always metered.
//! 2. Metered usage is never refunded.
//! 3. When a child starts, the tokens of its budget are reserved in its parent. Each token that the child spends is at
//!    once subtracted from that reservation and counted as spent in the parent. Therefore the parent's totals always
//!    include all tokens that its children have spent and may still spend. A call of a child also counts as a call of
//!    its parent.
//! 4. When no call can spend from a child any more, the unspent tokens of the child always return to the parent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::counted::{counted, grouped};
use crate::usage::Usage;

/// Limits of a budget. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetLimits {
    /// Maximum of input and output tokens together.
    pub tokens_max: Option<u64>,
    /// Maximum of model calls and tool calls together.
    pub calls_max: Option<u64>,
}

impl BudgetLimits {
    /// Sets the maximum of input and output tokens together.
    #[must_use]
    pub fn tokens_max(mut self, tokens_max: impl Into<Option<u64>>) -> Self {
        self.tokens_max = tokens_max.into();
        self
    }

    /// Sets the maximum of model calls and tool calls together.
    #[must_use]
    pub fn calls_max(mut self, calls_max: impl Into<Option<u64>>) -> Self {
        self.calls_max = calls_max.into();
        self
    }
}

/// A child gets at most the remaining tokens divided by this number. The other tokens remain for other children, and
/// for the parent, which must process the child's answer.
const PARTS_OF_THE_REST: u64 = 2;

/// A budget that parallel work shares.
#[derive(Debug, Default)]
pub struct Budget {
    limits: BudgetLimits,
    // This lock is held only briefly, and never during a wait. Both totals are checked and changed together. The locks
    // of a child and its parent are never held at the same time.
    ledger: Mutex<Ledger>,
    /// The budget in which this budget's tokens are reserved.
    parent: Option<Arc<Budget>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ledger {
    spent_tokens: u64,
    reserved_tokens: u64,
    /// Running and ended calls.
    calls: u64,
    /// Tokens that are still reserved for this budget in its parent. 0 without a parent.
    reserved_in_parent: u64,
}

/// Unit of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetUnit {
    /// Tokens.
    Tokens,
    /// Calls.
    Calls,
}

/// Error of a reservation that exceeds the limit. The budget is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct BudgetExceeded {
    /// The unit that ran out.
    pub unit: BudgetUnit,
    /// The limit.
    pub limit: u64,
    /// Amount spent before this request.
    pub spent: u64,
    /// Amount reserved by other calls and by children.
    pub reserved: u64,
    /// Requested amount.
    pub requested: u64,
}

impl BudgetExceeded {
    fn message(&self) -> String {
        let limit = match self.unit {
            BudgetUnit::Tokens => counted(self.limit, "token", "tokens"),
            BudgetUnit::Calls => counted(self.limit, "call", "calls"),
        };
        let reserved = match self.reserved {
            0 => String::new(),
            reserved => format!(", {} reserved", grouped(reserved)),
        };
        let requested = match self.requested {
            0 | 1 => String::new(),
            requested => format!("; the next call may need {}", grouped(requested)),
        };
        let used = grouped(self.spent);
        format!("the budget of {limit} is reached: {used} used{reserved}{requested}")
    }
}

impl Budget {
    /// A budget from which nothing has been spent.
    pub fn new(limits: BudgetLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            ledger: Mutex::default(),
            parent: None,
        })
    }

    /// A budget with a token limit only.
    pub fn of_tokens(tokens_max: u64) -> Arc<Self> {
        Self::new(BudgetLimits {
            tokens_max: Some(tokens_max),
            calls_max: None,
        })
    }

    /// The limits.
    pub fn limits(&self) -> BudgetLimits {
        self.limits
    }

    /// Creates a budget for a part of the work. Reserves half of the remaining tokens, but at most `tokens_max`. The
    /// reservation lasts until no call can spend from the child any more. If this budget has no token limit, the
    /// child's limit is `tokens_max`.
    ///
    /// # Errors
    /// If no token or no call is left. The budget is then unchanged.
    pub fn child(self: &Arc<Self>, tokens_max: Option<u64>) -> Result<Arc<Self>, BudgetExceeded> {
        let mut ledger = self.ledger();
        self.check(&ledger, 1)?;
        let (tokens_max, reserved_in_parent) = match self.limits.tokens_max {
            None => (tokens_max, 0),
            Some(limit) => {
                let used = ledger.spent_tokens.saturating_add(ledger.reserved_tokens);
                let part = limit.saturating_sub(used).div_ceil(PARTS_OF_THE_REST);
                let held = tokens_max.map_or(part, |max| max.min(part));
                (Some(held), held)
            }
        };
        ledger.reserved_tokens = ledger.reserved_tokens.saturating_add(reserved_in_parent);
        drop(ledger);
        Ok(Arc::new(Self {
            limits: BudgetLimits {
                tokens_max,
                calls_max: None,
            },
            ledger: Mutex::new(Ledger {
                reserved_in_parent,
                ..Ledger::default()
            }),
            parent: Some(Arc::clone(self)),
        }))
    }

    /// Reserves one call with at most this number of tokens.
    ///
    /// # Errors
    /// If the budget has no call left, or too few tokens. The budget is then unchanged.
    pub fn reserve(self: &Arc<Self>, tokens: u64) -> Result<Reservation, BudgetExceeded> {
        self.begin_call(tokens)?;
        Ok(Reservation {
            budget: Arc::clone(self),
            tokens,
            metered: 0,
            settled: false,
        })
    }

    /// Checks whether this budget and all budgets above it have a call and a token left. Reserves nothing.
    ///
    /// # Errors
    /// If one of these budgets has no call or no token left.
    pub fn check_remaining(&self) -> Result<(), BudgetExceeded> {
        self.check_here_and_above(1)
    }

    /// Metered tokens.
    pub fn spent_tokens(&self) -> u64 {
        self.ledger().spent_tokens
    }

    /// Tokens reserved for running calls and for children.
    pub fn reserved_tokens(&self) -> u64 {
        self.ledger().reserved_tokens
    }

    /// Number of running and ended calls.
    pub fn calls(&self) -> u64 {
        self.ledger().calls
    }

    fn check_here_and_above(&self, tokens: u64) -> Result<(), BudgetExceeded> {
        self.check(&self.ledger(), tokens)?;
        match &self.parent {
            Some(parent) => parent.check_here_and_above(0),
            None => Ok(()),
        }
    }

    /// Counts one more call, here and in all ancestors. Reserves its tokens only here, because each ancestor already
    /// holds a reservation for its child.
    fn begin_call(&self, tokens: u64) -> Result<(), BudgetExceeded> {
        let mut ledger = self.ledger();
        self.check(&ledger, tokens)?;
        ledger.calls += 1;
        ledger.reserved_tokens = ledger.reserved_tokens.saturating_add(tokens);
        drop(ledger);
        let above = self.parent.as_ref().map(|parent| parent.begin_call(0));
        above.unwrap_or(Ok(())).inspect_err(|_| {
            let mut ledger = self.ledger();
            ledger.calls = ledger.calls.saturating_sub(1);
            ledger.reserved_tokens = ledger.reserved_tokens.saturating_sub(tokens);
        })
    }

    /// Releases `set_aside` reserved tokens and records `spent` tokens, here and in all ancestors. If `counts` is
    /// false, the call did not take place, and the number of calls decreases by one.
    fn settle(&self, set_aside: u64, spent: u64, counts: bool) {
        let mut ledger = self.ledger();
        ledger.reserved_tokens = ledger.reserved_tokens.saturating_sub(set_aside);
        ledger.spent_tokens = ledger.spent_tokens.saturating_add(spent);
        ledger.calls = ledger.calls.saturating_sub(u64::from(!counts));
        let reserved_in_parent = spent.min(ledger.reserved_in_parent);
        ledger.reserved_in_parent -= reserved_in_parent;
        drop(ledger);
        if let Some(parent) = &self.parent {
            parent.settle(reserved_in_parent, spent, counts);
        }
    }

    fn check(&self, ledger: &Ledger, tokens: u64) -> Result<(), BudgetExceeded> {
        if let Some(limit) = self.limits.calls_max
            && ledger.calls >= limit
        {
            let (unit, spent) = (BudgetUnit::Calls, ledger.calls);
            return Err(BudgetExceeded {
                unit,
                limit,
                spent,
                reserved: 0,
                requested: 1,
            });
        }
        let (spent, reserved) = (ledger.spent_tokens, ledger.reserved_tokens);
        match self.limits.tokens_max {
            Some(limit) if spent.saturating_add(reserved).saturating_add(tokens) > limit => {
                let unit = BudgetUnit::Tokens;
                Err(BudgetExceeded {
                    unit,
                    limit,
                    spent,
                    reserved,
                    requested: tokens,
                })
            }
            _ => Ok(()),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // If a thread panics while it holds the lock, every change is already complete. So the content of a poisoned
        // lock is consistent.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let reserved_in_parent = self.ledger().reserved_in_parent;
        if let Some(parent) = &self.parent {
            parent.settle(reserved_in_parent, 0, true);
        }
    }
}

/// Tokens reserved for one call. Dropping the reservation returns the tokens that were not metered.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation {
    budget: Arc<Budget>,
    tokens: u64,
    metered: u64,
    settled: bool,
}

impl Reservation {
    /// Reserved amount.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Records the number of tokens that the call has used so far. These tokens count even if the call is dropped
    /// before its end. The recorded number never decreases.
    pub fn meter(&mut self, tokens_so_far: u64) {
        self.metered = self.metered.max(tokens_so_far);
    }

    /// Ends the reservation with the actual usage of the call, which may be more or less than the reserved tokens.
    pub fn settle(mut self, actual: Usage) {
        self.metered = self.metered.max(actual.total_tokens());
        self.settled = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let counts = self.settled || self.metered > 0;
        self.budget.settle(self.tokens, self.metered, counts);
    }
}
