//! Message queue of a session. Decides the order of messages synchronously and without a runtime.
//!
//! Waiting messages are in memory only. A crash rolls back the running turn, so messages that survived the crash would
//! lack their context. The senders of lost messages receive no outcome.
//!
//! Invariants:
//! 1. At most one entry runs.
//! 2. Entries leave the queue in the order of admission, including superseded entries. Each entry has a separate turn,
//!    and therefore exactly one ending.
//! 3. After [`MessageQueue::close`] no entry is admitted; waiting entries still leave the queue.

use std::collections::VecDeque;

use crate::follow_up::FollowUp;

/// Initial place of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The message's turn starts now.
    Starts,
    /// The message waits for other turns.
    Waits {
        /// Number of turns ahead.
        ahead: usize,
    },
    /// The message superseded the running and the waiting turns, and starts after they have ended.
    Supersedes {
        /// Number of superseded turns.
        turns: usize,
    },
    /// The running turn takes the message before its next step.
    Steers,
}

/// Reason why a message was refused. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageRefused {
    /// A turn runs, and the policy is `reject`.
    #[error("a turn is running")]
    Busy,
    /// The queue contains the maximum number of waiting messages.
    #[error("the queue is full: {0} messages are waiting")]
    Full(
        /// The limit.
        usize,
    ),
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
}

/// Result for an admitted message, with the entries to stop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AdmittedEntry<T> {
    pub(crate) admission: Admission,
    /// Superseded entries, to be stopped at once in this order.
    pub(crate) superseded: Vec<T>,
}

/// The running entry and the waiting entries.
#[derive(Debug)]
pub(crate) struct MessageQueue<T> {
    running: Option<RunningEntry<T>>,
    waiting: VecDeque<T>,
    waiting_max: usize,
    closed: bool,
}

#[derive(Debug)]
struct RunningEntry<T> {
    entry: T,
    steered: Vec<T>,
}

impl<T: Clone> MessageQueue<T> {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            running: None,
            waiting: VecDeque::new(),
            waiting_max,
            closed: false,
        }
    }

    /// Admits a message, or returns the reason for the refusal. `steer` returns true if the running turn takes the
    /// message.
    pub(crate) fn admit(
        &mut self,
        entry: &T,
        policy: FollowUp,
        steer: impl FnOnce(&T) -> bool,
    ) -> Result<AdmittedEntry<T>, MessageRefused> {
        if self.closed {
            return Err(MessageRefused::Closed);
        }
        let alone = |admission| AdmittedEntry {
            admission,
            superseded: Vec::new(),
        };
        if self.is_idle() {
            self.waiting.push_back(entry.clone());
            return Ok(alone(Admission::Starts));
        }
        let ahead = self.waiting.len() + usize::from(self.running.is_some());
        if policy == FollowUp::Reject {
            return Err(MessageRefused::Busy);
        }
        if policy == FollowUp::Steer
            && let Some(running) = &mut self.running
            && running.steered.len() < self.waiting_max
            && steer(&running.entry)
        {
            running.steered.push(entry.clone());
            return Ok(alone(Admission::Steers));
        }
        // Superseded entries count until they have ended, so the queue is bounded under every policy.
        if self.waiting.len() >= self.waiting_max {
            return Err(MessageRefused::Full(self.waiting_max));
        }
        let admitted = if policy.supersedes_with().is_some() {
            // The superseded entries include messages that were handed to the running turn. Otherwise such a message
            // would get a separate turn later if the superseded turn does not take it.
            AdmittedEntry {
                admission: Admission::Supersedes { turns: ahead },
                superseded: self.all().cloned().collect(),
            }
        } else {
            alone(Admission::Waits { ahead })
        };
        self.waiting.push_back(entry.clone());
        Ok(admitted)
    }

    /// Takes the next entry and makes it the running entry. `None` if an entry runs, or if no entry waits.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.running.is_some() {
            return None;
        }
        let entry = self.waiting.pop_front()?;
        self.run(entry.clone());
        Some(entry)
    }

    /// Makes an entry the running entry, even if it was never queued. Must only be called while no entry runs.
    pub(crate) fn run(&mut self, entry: T) {
        debug_assert!(self.running.is_none(), "an entry runs already");
        self.running = Some(RunningEntry {
            entry,
            steered: Vec::new(),
        });
    }

    /// Ends the running entry. If the running entry did not take a steered entry, the steered entry moves to the front
    /// of the queue; several such entries keep their order. Returns the entries that the running entry took, because
    /// these entries end together with the running entry.
    pub(crate) fn end(&mut self, was_taken: impl Fn(&T) -> bool) -> Vec<T> {
        let Some(running) = self.running.take() else {
            return Vec::new();
        };
        let (taken, back): (Vec<T>, Vec<T>) = running.steered.into_iter().partition(was_taken);
        for entry in back.into_iter().rev() {
            self.waiting.push_front(entry);
        }
        taken
    }

    /// Drops all entries. Used if the session has no owner left that could end the entries.
    pub(crate) fn clear(&mut self) {
        self.running = None;
        self.waiting.clear();
    }

    /// Refuses all later messages.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// True if no entry runs or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }

    pub(crate) fn running(&self) -> Option<&T> {
        self.running.as_ref().map(|running| &running.entry)
    }

    /// Entries that were handed to the running entry.
    pub(crate) fn steered(&self) -> impl Iterator<Item = &T> {
        self.running.iter().flat_map(|running| &running.steered)
    }

    /// True if an entry that satisfies `is_it` was handed to the running entry.
    pub(crate) fn has_steered(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.steered().any(is_it)
    }

    /// Entries that wait for their turns.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter()
    }

    /// All admitted entries that have not ended.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        let running = self.running.iter();
        let running =
            running.flat_map(|running| [&running.entry].into_iter().chain(&running.steered));
        running.chain(&self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_STEERED: fn(&u32) -> bool = |_| false;

    fn sent(
        queue: &mut MessageQueue<u32>,
        entry: u32,
        policy: FollowUp,
    ) -> Result<Vec<u32>, MessageRefused> {
        queue
            .admit(&entry, policy, NOT_STEERED)
            .map(|admitted| admitted.superseded)
    }

    #[test]
    fn each_policy_admits_or_refuses_while_a_turn_runs() {
        for policy in FollowUp::ALL {
            let mut queue = MessageQueue::new(2);
            assert_eq!(
                sent(&mut queue, 1, policy),
                Ok(Vec::new()),
                "idle: {policy}"
            );
            assert_eq!(queue.next(), Some(1));
            let second = sent(&mut queue, 2, policy);
            let third = sent(&mut queue, 3, policy);
            match policy {
                FollowUp::Reject => {
                    assert_eq!(
                        (second, third),
                        (Err(MessageRefused::Busy), Err(MessageRefused::Busy))
                    );
                }
                FollowUp::Enqueue | FollowUp::Steer => {
                    assert_eq!((second, third), (Ok(Vec::new()), Ok(Vec::new())));
                }
                FollowUp::Interrupt | FollowUp::Replace => {
                    assert_eq!((second, third), (Ok(vec![1]), Ok(vec![1, 2])));
                }
            }
            if policy != FollowUp::Reject {
                assert_eq!(sent(&mut queue, 4, policy), Err(MessageRefused::Full(2)));
                assert_eq!(queue.next(), None, "one runs");
                assert!(queue.end(|_| true).is_empty());
                assert_eq!(queue.next(), Some(2), "superseded ones leave in order too");
                queue.end(|_| true);
                assert_eq!(queue.next(), Some(3));
            }
        }
    }

    #[test]
    fn steered_messages_that_were_not_taken_go_first() {
        let mut queue = MessageQueue::new(4);
        for entry in 1..=4 {
            let policy = if entry == 2 {
                FollowUp::Enqueue
            } else {
                FollowUp::Steer
            };
            let admitted = queue.admit(&entry, policy, |_| true).unwrap();
            if entry == 1 {
                queue.next();
            }
            let steers = matches!(admitted.admission, Admission::Steers);
            assert_eq!(steers, entry > 2, "{entry}");
        }
        assert_eq!(queue.end(|entry| *entry == 3), [3]);
        assert_eq!((queue.next(), queue.end(|_| true)), (Some(4), Vec::new()));
        assert_eq!(queue.next(), Some(2));
    }

    #[test]
    fn steered_messages_of_a_superseded_turn_are_superseded() {
        for policy in [FollowUp::Interrupt, FollowUp::Replace] {
            let mut queue = MessageQueue::new(4);
            sent(&mut queue, 1, FollowUp::Enqueue).unwrap();
            queue.next();
            queue.admit(&2, FollowUp::Steer, |_| true).unwrap();
            sent(&mut queue, 3, FollowUp::Enqueue).unwrap();
            assert_eq!(sent(&mut queue, 4, policy), Ok(vec![1, 2, 3]), "{policy}");
        }
    }

    #[test]
    fn closed_queue_admits_no_message_and_drains() {
        let mut queue = MessageQueue::new(4);
        sent(&mut queue, 1, FollowUp::Enqueue).unwrap();
        queue.next();
        sent(&mut queue, 2, FollowUp::Enqueue).unwrap();
        queue.close();
        assert_eq!(
            sent(&mut queue, 3, FollowUp::Interrupt),
            Err(MessageRefused::Closed)
        );
        queue.end(|_| true);
        assert_eq!(queue.next(), Some(2));
        queue.end(|_| true);
        assert!(queue.is_idle());
    }
}
