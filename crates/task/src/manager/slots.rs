//! Limits for executions: a global limit, a limit per owner, and a queue. A slot is the permission to run one
//! execution.
//!
//! Invariants:
//! 1. A request that is refused or abandoned changes no counter.
//! 2. Waiting requests start in order, with one exception: a request whose owner has reached its limit does not block
//!    later requests.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::options::{OWNER_WAITS, TaskOptions, WhenFull, queue_share};

/// Numbers of running executions, and the queue of waiting requests.
#[derive(Debug)]
pub(crate) struct ExecutionSlots {
    running_max: Option<usize>,
    running_per_owner_max: Option<usize>,
    when_full: WhenFull,
    running: usize,
    running_by_owner: HashMap<Arc<str>, usize>,
    waiting: VecDeque<WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    owner: Arc<str>,
    grant: oneshot::Sender<()>,
}

/// Answer to a request for a slot.
#[derive(Debug)]
pub(crate) enum SlotAnswer {
    /// The slot is taken.
    Granted,
    /// The slot will be granted later, through the receiver.
    Waiting(oneshot::Receiver<()>),
    /// Refused, with the reason.
    Full(&'static str),
}

impl ExecutionSlots {
    pub(crate) fn new(options: &TaskOptions) -> Self {
        Self {
            running_max: options.running_max,
            running_per_owner_max: options.running_per_owner_max,
            when_full: options.when_full,
            running: 0,
            running_by_owner: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes a slot for this owner. If no slot is free, takes a position in the queue, unless the queue is full.
    pub(crate) fn request(&mut self, owner: &Arc<str>) -> SlotAnswer {
        let Some(limit) = self.limit_reached(owner) else {
            return self.request_always(owner);
        };
        let WhenFull::Queue { len_max } = self.when_full else {
            return SlotAnswer::Full(limit);
        };
        if self.waiting.len() >= len_max {
            self.waiting.retain(|waiting| !waiting.grant.is_closed());
        }
        if self.waiting.len() >= len_max {
            return SlotAnswer::Full("too many tasks wait");
        }
        if self.running_per_owner_max.is_some() && self.waiting_of(owner) >= queue_share(len_max) {
            return SlotAnswer::Full(OWNER_WAITS);
        }
        self.request_always(owner)
    }

    /// Takes a slot for this owner. If no slot is free, takes a position in the queue, even if the queue is full.
    pub(crate) fn request_always(&mut self, owner: &Arc<str>) -> SlotAnswer {
        if self.limit_reached(owner).is_none() {
            self.take(owner);
            return SlotAnswer::Granted;
        }
        let (grant, granted) = oneshot::channel();
        self.waiting.push_back(WaitingRequest {
            owner: Arc::clone(owner),
            grant,
        });
        SlotAnswer::Waiting(granted)
    }

    /// Releases a slot, and grants free slots to waiting requests.
    pub(crate) fn release(&mut self, owner: &Arc<str>) {
        self.running -= 1;
        if let Some(count) = self.running_by_owner.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.running_by_owner.remove(owner);
            }
        }
        // Requests that cannot start return to the queue in their order. If no owner has reached its limit, the loop
        // reads only requests that start.
        let mut passed = Vec::new();
        while self.running_max.is_none_or(|max| self.running < max)
            && let Some(request) = self.waiting.pop_front()
        {
            if self.limit_reached(&request.owner).is_some() {
                passed.push(request);
            } else if request.grant.send(()).is_ok() {
                self.take(&request.owner);
            }
        }
        for request in passed.into_iter().rev() {
            self.waiting.push_front(request);
        }
    }

    /// Empties the queue. Each waiting request gets no slot.
    pub(crate) fn close_queue(&mut self) {
        self.waiting.clear();
    }

    fn waiting_of(&self, owner: &Arc<str>) -> usize {
        let waiting = self.waiting.iter();
        let of_owner = waiting.filter(|waiting| waiting.owner == *owner);
        of_owner
            .filter(|waiting| !waiting.grant.is_closed())
            .count()
    }

    fn take(&mut self, owner: &Arc<str>) {
        self.running += 1;
        *self.running_by_owner.entry(Arc::clone(owner)).or_default() += 1;
    }

    /// The limit that this owner has reached, or the global limit. `None` if a slot is free.
    fn limit_reached(&self, owner: &Arc<str>) -> Option<&'static str> {
        let of_owner = self.running_by_owner.get(owner).copied().unwrap_or(0);
        if self.running_max.is_some_and(|max| self.running >= max) {
            Some("too many tasks run")
        } else if self
            .running_per_owner_max
            .is_some_and(|max| of_owner >= max)
        {
            Some("too many of your tasks run")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(running_max: usize, per_owner_max: usize, when_full: WhenFull) -> ExecutionSlots {
        ExecutionSlots::new(&TaskOptions {
            running_max: Some(running_max),
            running_per_owner_max: Some(per_owner_max),
            when_full,
            ..TaskOptions::default()
        })
    }

    #[test]
    fn refusal_leaves_the_counters_as_they_were() {
        let (one, two) = (Arc::from("one"), Arc::from("two"));
        let mut slots = slots(2, 1, WhenFull::Refuse);
        assert!(matches!(slots.request(&one), SlotAnswer::Granted));
        for _ in 0..3 {
            assert!(matches!(
                slots.request(&one),
                SlotAnswer::Full("too many of your tasks run")
            ));
        }
        assert!(matches!(slots.request(&two), SlotAnswer::Granted));
        assert!(matches!(
            slots.request(&Arc::from("three")),
            SlotAnswer::Full("too many tasks run")
        ));
        slots.release(&one);
        slots.release(&two);
        assert_eq!(slots.running, 0);
        assert!(slots.running_by_owner.is_empty());
    }

    #[test]
    fn one_owner_at_its_limit_lets_others_pass() {
        let (one, two) = (Arc::from("one"), Arc::from("two"));
        let mut slots = slots(2, 1, WhenFull::Queue { len_max: 3 });
        assert!(matches!(slots.request(&one), SlotAnswer::Granted));
        let SlotAnswer::Waiting(mut first) = slots.request(&one) else {
            panic!("its owner is at the limit");
        };
        assert!(matches!(slots.request(&two), SlotAnswer::Granted));
        let SlotAnswer::Waiting(mut second) = slots.request(&two) else {
            panic!("both limits are reached");
        };
        slots.release(&two);
        assert!(first.try_recv().is_err(), "one is still at its limit");
        assert!(second.try_recv().is_ok());
        slots.release(&one);
        assert!(first.try_recv().is_ok());
    }

    #[test]
    fn full_queue_refuses_the_next_request() {
        let owner = Arc::from("one");
        let mut slots = slots(1, 1, WhenFull::Queue { len_max: 1 });
        assert!(matches!(slots.request(&owner), SlotAnswer::Granted));
        let SlotAnswer::Waiting(mut first) = slots.request(&owner) else {
            panic!("the queue is empty");
        };
        assert!(matches!(
            slots.request(&owner),
            SlotAnswer::Full("too many tasks wait")
        ));
        slots.release(&owner);
        assert!(first.try_recv().is_ok());
        slots.release(&owner);
        assert_eq!(slots.running, 0);
    }

    #[test]
    fn one_owner_does_not_fill_the_queue() {
        let (one, two) = (Arc::from("one"), Arc::from("two"));
        let mut slots = slots(2, 1, WhenFull::Queue { len_max: 4 });
        let mut waiting = Vec::new();
        assert!(matches!(slots.request(&one), SlotAnswer::Granted));
        for _ in 0..2 {
            let SlotAnswer::Waiting(grant) = slots.request(&one) else {
                panic!("the queue has a place for it");
            };
            waiting.push(grant);
        }
        assert!(matches!(slots.request(&one), SlotAnswer::Full(OWNER_WAITS)));
        assert!(matches!(slots.request(&two), SlotAnswer::Granted));
        assert!(matches!(slots.request(&two), SlotAnswer::Waiting(_)));
        waiting.clear();
        assert!(matches!(slots.request(&one), SlotAnswer::Waiting(_)));
    }

    #[test]
    fn abandoned_request_takes_no_slot() {
        let owner = Arc::from("one");
        let mut slots = slots(1, 1, WhenFull::Queue { len_max: 1 });
        assert!(matches!(slots.request(&owner), SlotAnswer::Granted));
        drop(slots.request(&owner));
        // The position of the abandoned request is free again.
        assert!(matches!(slots.request(&owner), SlotAnswer::Waiting(_)));
        slots.release(&owner);
        assert_eq!(slots.running, 0);
    }
}
