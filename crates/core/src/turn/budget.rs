//! Tokens and calls, reserved before they are spent, by any number of threads at once.
//!
//! Invariants:
//! 1. What is reserved and what is spent never exceed the limit together, except by what a call used beyond its own
//!    reservation: that is metered too, because it was used.
//! 2. What was metered is never given back.
//! 3. What a child may spend is set aside at its start, and what it meters is taken from that at once: so at any moment
//!    the parent's figures hold all that its children have spent and may spend yet. A child's call is one of its parent's.
//! 4. When nothing can spend from a child any more, what it did not spend is given back, however it came to that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::usage::Usage;

/// Limits of what may be spent. `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Tokens, in and out together.
    pub tokens_max: Option<u64>,
    /// Calls, of models and of tools together.
    pub calls_max: Option<u64>,
}

/// Into how many parts a child's start divides what is left; it gets one of them at most. The rest is for its siblings,
/// and for what its parent makes of its answer.
const PARTS_OF_THE_REST: u64 = 2;

/// A budget that parallel work shares.
#[derive(Debug, Default)]
pub struct Budget {
    limits: BudgetLimits,
    // One short critical section without waiting: both figures are checked and changed as one. A child's is never held
    // together with its parent's.
    ledger: Mutex<Ledger>,
    /// The budget that its limit of tokens was set aside from.
    parent: Option<Arc<Budget>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ledger {
    spent_tokens: u64,
    reserved_tokens: u64,
    /// Calls that run or have run.
    calls: u64,
    /// Of a child: what is still set aside for it in its parent.
    held_above: u64,
}

/// Unit of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetUnit {
    /// Tokens.
    Tokens,
    /// Calls.
    Calls,
}

/// A reservation that did not fit. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the budget of {limit} {} is reached: {spent} spent, {reserved} reserved, {requested} asked", match .unit {
    BudgetUnit::Tokens => "tokens",
    BudgetUnit::Calls => "calls",
})]
pub struct BudgetExceeded {
    /// The unit that ran out.
    pub unit: BudgetUnit,
    /// The limit.
    pub limit: u64,
    /// Amount that was spent before this was asked.
    pub spent: u64,
    /// Amount that others had reserved.
    pub reserved: u64,
    /// Amount that was asked for.
    pub requested: u64,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(limits: BudgetLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            ledger: Mutex::default(),
            parent: None,
        })
    }

    /// A budget of tokens only.
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

    /// A budget for work that is a part of this one's: half of what is left, and `tokens_max` at most, is set aside for
    /// it until nothing can spend from it any more. Without a limit of tokens here its own is `tokens_max`.
    ///
    /// # Errors
    /// If not even a single token is left for it; then nothing is changed.
    pub fn child(self: &Arc<Self>, tokens_max: Option<u64>) -> Result<Arc<Self>, BudgetExceeded> {
        let mut ledger = self.ledger();
        self.check(&ledger, 1)?;
        let (tokens_max, held_above) = match self.limits.tokens_max {
            None => (tokens_max, 0),
            Some(limit) => {
                let used = ledger.spent_tokens.saturating_add(ledger.reserved_tokens);
                let part = limit.saturating_sub(used).div_ceil(PARTS_OF_THE_REST);
                let held = tokens_max.map_or(part, |max| max.min(part));
                (Some(held), held)
            }
        };
        ledger.reserved_tokens = ledger.reserved_tokens.saturating_add(held_above);
        drop(ledger);
        Ok(Arc::new(Self {
            limits: BudgetLimits {
                tokens_max,
                calls_max: None,
            },
            ledger: Mutex::new(Ledger {
                held_above,
                ..Ledger::default()
            }),
            parent: Some(Arc::clone(self)),
        }))
    }

    /// Sets one call of at most so many tokens aside.
    ///
    /// # Errors
    /// If it does not fit; then nothing is changed.
    pub fn reserve(self: &Arc<Self>, tokens: u64) -> Result<Reservation, BudgetExceeded> {
        self.begin_call(tokens)?;
        Ok(Reservation {
            budget: Arc::clone(self),
            tokens,
            metered: 0,
            settled: false,
        })
    }

    /// Checks whether a call of a single token would fit now, without setting anything aside.
    ///
    /// # Errors
    /// If it would not.
    pub fn check_left(&self) -> Result<(), BudgetExceeded> {
        self.check_here_and_above(1)
    }

    /// Tokens that were metered.
    pub fn spent_tokens(&self) -> u64 {
        self.ledger().spent_tokens
    }

    /// Tokens that are set aside for calls that run.
    pub fn reserved_tokens(&self) -> u64 {
        self.ledger().reserved_tokens
    }

    /// Calls that run or have run.
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

    /// One more call, here and above. A child's tokens are set aside above already.
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

    /// Tokens that were set aside are not any more, and these were spent, here and above. A call that `counts` not has
    /// never been one.
    fn settle(&self, set_aside: u64, spent: u64, counts: bool) {
        let mut ledger = self.ledger();
        ledger.reserved_tokens = ledger.reserved_tokens.saturating_sub(set_aside);
        ledger.spent_tokens = ledger.spent_tokens.saturating_add(spent);
        ledger.calls = ledger.calls.saturating_sub(u64::from(!counts));
        let held_above = spent.min(ledger.held_above);
        ledger.held_above -= held_above;
        drop(ledger);
        if let Some(parent) = &self.parent {
            parent.settle(held_above, spent, counts);
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
        // Every change is complete before the guard goes, so a poisoned ledger is still a true one.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let held_above = self.ledger().held_above;
        if let Some(parent) = &self.parent {
            parent.settle(held_above, 0, true);
        }
    }
}

/// Tokens that are set aside for one call. Dropped, it gives back what was not metered.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation {
    budget: Arc<Budget>,
    tokens: u64,
    metered: u64,
    settled: bool,
}

impl Reservation {
    /// Amount that was set aside.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Notes the tokens that the call has used so far, so that they are not lost if it is dropped in mid-stream. It
    /// only grows.
    pub fn meter(&mut self, tokens_so_far: u64) {
        self.metered = self.metered.max(tokens_so_far);
    }

    /// Ends it with what the call used in the end, more or less than was set aside.
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
