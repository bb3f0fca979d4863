//! Order of the messages of a session, decided synchronously and without a runtime.
//!
//! Invariants:
//! 1. At most one entry runs.
//! 2. Entries leave in the order in which they were let in, superseded ones too: each has a turn of its own, and with it
//!    its one ending.
//! 3. After [`Desk::close`] none is let in; those that wait still leave.

use std::collections::VecDeque;

use crate::follow_up::FollowUp;

/// Place of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Its turn starts now.
    Starts,
    /// It waits for this many turns before its own.
    Waits {
        /// Number of turns.
        ahead: usize,
    },
    /// It superseded what ran and waited, and starts when that has its ending.
    Supersedes {
        /// Number of turns.
        turns: usize,
    },
    /// The running turn takes it before its next step.
    Steers,
}

/// Reason that a message was not let in. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// A turn runs, and the policy is `reject`.
    #[error("a turn is running")]
    Busy,
    /// As many messages wait as may.
    #[error("{0} messages wait already")]
    Full(
        /// The limit.
        usize,
    ),
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
}

/// Answer to a message that was let in, and the others to stop for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted<T> {
    pub(crate) admission: Admission,
    /// The superseded ones: to be stopped at once, in this order.
    pub(crate) superseded: Vec<T>,
}

/// The running entry, and those that wait.
#[derive(Debug)]
pub(crate) struct Desk<T> {
    running: Option<Running<T>>,
    waiting: VecDeque<T>,
    waiting_max: usize,
    closed: bool,
}

#[derive(Debug)]
struct Running<T> {
    entry: T,
    steered: Vec<T>,
}

impl<T: Clone> Desk<T> {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            running: None,
            waiting: VecDeque::new(),
            waiting_max,
            closed: false,
        }
    }

    /// Lets a message in, or says why not. `steer` hands it to the running turn, if that takes it.
    pub(crate) fn admit(
        &mut self,
        entry: &T,
        policy: FollowUp,
        steer: impl FnOnce(&T) -> bool,
    ) -> Result<Admitted<T>, NotAdmitted> {
        if self.closed {
            return Err(NotAdmitted::Closed);
        }
        let alone = |admission| Admitted {
            admission,
            superseded: Vec::new(),
        };
        if self.is_idle() {
            self.waiting.push_back(entry.clone());
            return Ok(alone(Admission::Starts));
        }
        let ahead = self.waiting.len() + usize::from(self.running.is_some());
        if policy == FollowUp::Reject {
            return Err(NotAdmitted::Busy);
        }
        if policy == FollowUp::Steer
            && let Some(running) = &mut self.running
            && running.steered.len() < self.waiting_max
            && steer(&running.entry)
        {
            running.steered.push(entry.clone());
            return Ok(alone(Admission::Steers));
        }
        // Superseded ones count too, until they have their ending: a flood stays bounded whatever the policy.
        if self.waiting.len() >= self.waiting_max {
            return Err(NotAdmitted::Full(self.waiting_max));
        }
        let admitted = if policy.supersedes_with().is_some() {
            // Those that were handed to the running one too: what it does not take must not have a turn after all.
            Admitted {
                admission: Admission::Supersedes { turns: ahead },
                superseded: self.all().cloned().collect(),
            }
        } else {
            alone(Admission::Waits { ahead })
        };
        self.waiting.push_back(entry.clone());
        Ok(admitted)
    }

    /// Takes the next one, which runs from now on. `None` while one runs, or if none waits.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.running.is_some() {
            return None;
        }
        let entry = self.waiting.pop_front()?;
        self.run(entry.clone());
        Some(entry)
    }

    /// Puts one in that nobody sent. Only while the desk is idle.
    pub(crate) fn run(&mut self, entry: T) {
        debug_assert!(self.running.is_none(), "one runs already");
        self.running = Some(Running {
            entry,
            steered: Vec::new(),
        });
    }

    /// The running one has its ending. Those that were handed to it and that it did not take go first now, in order;
    /// those that it took are returned: its ending is theirs.
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

    /// Forgets all of them: there is nobody who could give them an ending.
    pub(crate) fn clear(&mut self) {
        self.running = None;
        self.waiting.clear();
    }

    /// Lets none in any more.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }

    pub(crate) fn running(&self) -> Option<&T> {
        self.running.as_ref().map(|running| &running.entry)
    }

    /// Whether the running one was handed such an entry.
    pub(crate) fn was_handed(&self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut handed = self.running.iter().flat_map(|running| &running.steered);
        handed.any(is_it)
    }

    /// All that were let in and have no ending yet.
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

    fn sent(desk: &mut Desk<u32>, entry: u32, policy: FollowUp) -> Result<Vec<u32>, NotAdmitted> {
        desk.admit(&entry, policy, NOT_STEERED)
            .map(|admitted| admitted.superseded)
    }

    #[test]
    fn what_each_policy_does_while_a_turn_runs() {
        for policy in FollowUp::ALL {
            let mut desk = Desk::new(2);
            assert_eq!(sent(&mut desk, 1, policy), Ok(Vec::new()), "idle: {policy}");
            assert_eq!(desk.next(), Some(1));
            let second = sent(&mut desk, 2, policy);
            let third = sent(&mut desk, 3, policy);
            match policy {
                FollowUp::Reject => {
                    assert_eq!(
                        (second, third),
                        (Err(NotAdmitted::Busy), Err(NotAdmitted::Busy))
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
                assert_eq!(sent(&mut desk, 4, policy), Err(NotAdmitted::Full(2)));
                assert_eq!(desk.next(), None, "one runs");
                assert!(desk.end(|_| true).is_empty());
                assert_eq!(desk.next(), Some(2), "superseded ones leave in order too");
                desk.end(|_| true);
                assert_eq!(desk.next(), Some(3));
            }
        }
    }

    #[test]
    fn what_the_turn_did_not_take_goes_first_afterwards() {
        let mut desk = Desk::new(4);
        for entry in 1..=4 {
            let policy = if entry == 2 {
                FollowUp::Enqueue
            } else {
                FollowUp::Steer
            };
            let admitted = desk.admit(&entry, policy, |_| true).unwrap();
            if entry == 1 {
                desk.next();
            }
            let steers = matches!(admitted.admission, Admission::Steers);
            assert_eq!(steers, entry > 2, "{entry}");
        }
        assert_eq!(desk.end(|entry| *entry == 3), [3]);
        assert_eq!((desk.next(), desk.end(|_| true)), (Some(4), Vec::new()));
        assert_eq!(desk.next(), Some(2));
    }

    #[test]
    fn what_was_handed_to_the_superseded_turn_is_superseded_too() {
        for policy in [FollowUp::Interrupt, FollowUp::Replace] {
            let mut desk = Desk::new(4);
            sent(&mut desk, 1, FollowUp::Enqueue).unwrap();
            desk.next();
            desk.admit(&2, FollowUp::Steer, |_| true).unwrap();
            sent(&mut desk, 3, FollowUp::Enqueue).unwrap();
            assert_eq!(sent(&mut desk, 4, policy), Ok(vec![1, 2, 3]), "{policy}");
        }
    }

    #[test]
    fn a_closed_desk_lets_none_in_and_all_out() {
        let mut desk = Desk::new(4);
        sent(&mut desk, 1, FollowUp::Enqueue).unwrap();
        desk.next();
        sent(&mut desk, 2, FollowUp::Enqueue).unwrap();
        desk.close();
        assert_eq!(
            sent(&mut desk, 3, FollowUp::Interrupt),
            Err(NotAdmitted::Closed)
        );
        desk.end(|_| true);
        assert_eq!(desk.next(), Some(2));
        desk.end(|_| true);
        assert!(desk.is_idle());
    }
}
