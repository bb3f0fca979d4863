//! A limited amount of memory that the users of a server share.
//!
//! Invariants:
//! 1. All permits together have at most the bytes of the budget, and the permits of one user at most half of them. A
//!    larger request counts as this half.
//! 2. The requests of one user are granted in their order, and the users take turns. So many requests of one user delay
//!    no other user.
//! 3. A request that waits for its own user delays no other user. A request that waits for free bytes is not overtaken,
//!    so a large request is granted in the end.
//! 4. A dropped request leaves the queue.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Memory that users share, in bytes. Clones share the budget.
#[derive(Debug, Clone)]
pub struct FairBudget(Arc<Mutex<BudgetQueue<oneshot::Sender<BudgetPermit>>>>);

/// A part of a budget. The bytes are free again when this value is dropped.
#[derive(Debug)]
#[must_use = "the bytes are free when this value is dropped"]
pub struct BudgetPermit {
    budget: FairBudget,
    user: Arc<str>,
    bytes: usize,
    is_largest: bool,
}

impl FairBudget {
    /// Creates a budget with this number of bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(BudgetQueue::new(bytes_max))))
    }

    /// Waits for these bytes. The permit has fewer bytes if a user cannot have so many.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn acquire(&self, user: &Arc<str>, bytes: usize) -> BudgetPermit {
        let (granted, permit) = oneshot::channel();
        let number = self.0.lock().enter(user, bytes, granted);
        let _in_queue = QueuedRequest {
            budget: self,
            user,
            number,
        };
        self.grant();
        permit.await.expect("only a grant removes the sender")
    }

    fn grant(&self) {
        loop {
            let grant = self.0.lock().grant();
            let Some(grant) = grant else {
                return;
            };
            let permit = BudgetPermit {
                budget: self.clone(),
                user: grant.user,
                bytes: grant.bytes,
                is_largest: grant.is_largest,
            };
            // If the request was dropped meanwhile, the permit is dropped here.
            drop(grant.waiter.send(permit));
        }
    }
}

impl BudgetPermit {
    /// The bytes of the permit.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if a user cannot have more bytes.
    pub fn is_largest(&self) -> bool {
        self.is_largest
    }

    /// Gives the bytes beyond this number back.
    pub fn shrink_to(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        if rest > 0 {
            self.bytes -= rest;
            self.budget.0.lock().give_back(&self.user, rest);
            self.budget.grant();
        }
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        self.budget.0.lock().give_back(&self.user, self.bytes);
        self.budget.grant();
    }
}

/// Removes a request from the queue on drop. A granted request is not in the queue.
struct QueuedRequest<'a> {
    budget: &'a FairBudget,
    user: &'a Arc<str>,
    number: u64,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        if self.budget.0.lock().leave(self.user, self.number) {
            self.budget.grant();
        }
    }
}

/// The requests that wait, and the bytes that the users have.
#[derive(Debug)]
struct BudgetQueue<W> {
    free: usize,
    user_bytes_max: usize,
    users: HashMap<Arc<str>, UserShare<W>>,
    /// Users with waiting requests, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    next_number: u64,
}

#[derive(Debug)]
struct UserShare<W> {
    held: usize,
    waiting: VecDeque<BudgetRequest<W>>,
}

#[derive(Debug)]
struct BudgetRequest<W> {
    number: u64,
    bytes: usize,
    is_largest: bool,
    waiter: W,
}

#[derive(Debug)]
struct BudgetGrant<W> {
    user: Arc<str>,
    bytes: usize,
    is_largest: bool,
    waiter: W,
}

impl<W> BudgetQueue<W> {
    fn new(bytes_max: usize) -> Self {
        Self {
            free: bytes_max,
            user_bytes_max: bytes_max / 2,
            users: HashMap::new(),
            turns: VecDeque::new(),
            next_number: 0,
        }
    }

    /// Adds a request, and returns its number.
    fn enter(&mut self, user: &Arc<str>, bytes: usize, waiter: W) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let share = self.users.entry(Arc::clone(user)).or_insert(UserShare {
            held: 0,
            waiting: VecDeque::new(),
        });
        if share.waiting.is_empty() {
            self.turns.push_back(Arc::clone(user));
        }
        share.waiting.push_back(BudgetRequest {
            number,
            bytes: bytes.min(self.user_bytes_max),
            is_largest: bytes >= self.user_bytes_max,
            waiter,
        });
        number
    }

    /// Grants the next request that fits.
    fn grant(&mut self) -> Option<BudgetGrant<W>> {
        let max = self.user_bytes_max;
        let fits_its_user = |user: &Arc<str>| {
            let share = self.users.get(user)?;
            let first = share.waiting.front()?;
            (share.held + first.bytes <= max).then_some(first.bytes)
        };
        let mut turns = self.turns.iter().enumerate();
        let (turn, bytes) = turns.find_map(|(turn, user)| Some((turn, fits_its_user(user)?)))?;
        if bytes > self.free {
            return None;
        }
        let user = self.turns.remove(turn)?;
        let share = self.users.get_mut(&user)?;
        let first = share.waiting.pop_front()?;
        share.held += bytes;
        self.free -= bytes;
        if !share.waiting.is_empty() {
            self.turns.push_back(Arc::clone(&user));
        }
        Some(BudgetGrant {
            user,
            bytes,
            is_largest: first.is_largest,
            waiter: first.waiter,
        })
    }

    /// Removes a request. False if it is not in the queue.
    fn leave(&mut self, user: &Arc<str>, number: u64) -> bool {
        let Some(share) = self.users.get_mut(user) else {
            return false;
        };
        let place = share.waiting.iter().position(|it| it.number == number);
        let Some(place) = place else {
            return false;
        };
        share.waiting.remove(place);
        if share.waiting.is_empty() {
            self.turns.retain(|other| other != user);
        }
        self.forget_idle(user);
        true
    }

    fn give_back(&mut self, user: &Arc<str>, bytes: usize) {
        self.free += bytes;
        if let Some(share) = self.users.get_mut(user) {
            share.held -= bytes;
        }
        self.forget_idle(user);
    }

    fn forget_idle(&mut self, user: &Arc<str>) {
        let share = self.users.get(user);
        if share.is_some_and(|share| share.held == 0 && share.waiting.is_empty()) {
            self.users.remove(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Arc<str> {
        name.into()
    }

    /// Grants all requests that fit, and returns their waiters.
    fn granted(queue: &mut BudgetQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.grant().map(|grant| grant.waiter)).collect()
    }

    #[test]
    fn users_take_turns_and_have_at_most_half() {
        let mut queue = BudgetQueue::new(8);
        let (a, b, c) = (user("a"), user("b"), user("c"));
        for name in ["a1", "a2", "a3", "a4"] {
            queue.enter(&a, 2, name);
        }
        assert_eq!(granted(&mut queue), ["a1", "a2"]);
        queue.enter(&b, 2, "b1");
        queue.enter(&b, 2, "b2");
        queue.enter(&c, 2, "c1");
        assert_eq!(granted(&mut queue), ["b1", "c1"], "a has its half");
        queue.give_back(&a, 4);
        assert_eq!(granted(&mut queue), ["a3", "b2"], "a has its turn");
    }

    #[test]
    fn large_request_is_not_overtaken_and_counts_as_half() {
        let mut queue = BudgetQueue::new(8);
        let (a, b, c) = (user("a"), user("b"), user("c"));
        for (user, name) in [(&a, "a1"), (&b, "b1")] {
            queue.enter(user, 3, name);
        }
        assert_eq!(granted(&mut queue), ["a1", "b1"]);
        let large = queue.enter(&c, 100, "c1");
        queue.enter(&a, 1, "a2");
        assert!(granted(&mut queue).is_empty(), "2 bytes are free");
        queue.give_back(&b, 3);
        assert_eq!(granted(&mut queue), ["c1", "a2"]);
        assert!(!queue.leave(&c, large), "it is granted");
        queue.give_back(&c, 4);
        queue.give_back(&a, 4);
        assert_eq!((queue.free, queue.users.len()), (8, 0));
    }

    #[test]
    fn request_that_leaves_makes_room_for_the_next() {
        let mut queue = BudgetQueue::new(8);
        let (a, b) = (user("a"), user("b"));
        queue.enter(&a, 4, "a1");
        queue.enter(&b, 2, "b1");
        assert_eq!(granted(&mut queue), ["a1", "b1"]);
        let large = queue.enter(&user("c"), 4, "c1");
        queue.enter(&b, 2, "b2");
        assert!(granted(&mut queue).is_empty());
        assert!(queue.leave(&user("c"), large));
        assert_eq!(granted(&mut queue), ["b2"]);
    }

    #[tokio::test]
    async fn dropped_request_holds_nothing() {
        let budget = FairBudget::new(4);
        let a = user("a");
        let held = budget.acquire(&a, 2).await;
        let mut waiting = Box::pin(budget.acquire(&a, 1));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(held); // grants the request that waits
        drop(waiting);
        let mut whole = budget.acquire(&a, 9).await;
        assert_eq!((whole.bytes(), whole.is_largest()), (2, true));
        whole.shrink_to(1);
        let rest = budget.acquire(&a, 1).await;
        assert_eq!(rest.bytes() + whole.bytes(), 2);
    }
}
