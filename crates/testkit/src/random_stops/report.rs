//! What stops at random moments found.

use std::fmt;
use std::time::Duration;

use allstop_core::StopReason;
use allstop_core::receipt::ItemState;

use super::checks::{self, CHECKS};
use super::random::SEED_VARIABLE;
use super::round::Left;
use super::way::RandomWay;
use crate::check::{FailureClass, Invariant, Violation};

/// What stops at random moments found.
#[derive(Debug, Clone)]
#[must_use = "assert that it is clean"]
pub struct RandomReport {
    /// What the moments were made of.
    pub seed: u64,
    /// How long a run takes that nobody stops.
    pub length: Duration,
    /// Each stopped run.
    pub rounds: Vec<RandomRound>,
}

/// One stopped run.
#[derive(Debug, Clone)]
pub struct RandomRound {
    /// Its number, from 0.
    pub number: u32,
    /// When it was stopped.
    pub moment: Duration,
    /// How.
    pub way: RandomWay,
    /// Whether it was over by then.
    pub was_over: bool,
    /// Items of all receipts that say that they were stopped.
    pub items_stopped: usize,
    /// Items of all receipts that say that nobody knows.
    pub items_unknown: usize,
    /// The longest that an answer took.
    pub answered_after: Duration,
    /// What was broken.
    pub violations: Vec<Violation>,
}

impl RandomReport {
    pub(super) fn new(seed: u64, length: Duration) -> Self {
        Self {
            seed,
            length,
            rounds: Vec::new(),
        }
    }

    /// What is checked of each round.
    pub fn checks() -> impl Iterator<Item = (Invariant, FailureClass)> {
        CHECKS
            .iter()
            .map(|(_, invariant, class, _)| (*invariant, *class))
    }

    /// In how many rounds something was broken.
    pub fn broken(&self) -> usize {
        let broken = self
            .rounds
            .iter()
            .filter(|round| !round.violations.is_empty());
        broken.count()
    }

    /// Prints how much was stopped.
    ///
    /// # Panics
    /// If anything was broken: with each round, and the seed.
    #[expect(
        clippy::print_stdout,
        reason = "a test says how much it has looked at, where tests say things"
    )]
    pub fn assert_clean(&self) {
        assert!(self.broken() == 0, "{self}");
        println!("{self}");
    }
}

impl RandomRound {
    pub(super) fn of(number: u32, moment: Duration, way: RandomWay, left: &Left) -> Self {
        let receipts = left
            .answers
            .iter()
            .filter_map(|answer| answer.receipt.as_ref());
        let items = || receipts.clone().flat_map(|receipt| receipt.items());
        let took = left.answers.iter().map(|answer| answer.took);
        Self {
            number,
            moment,
            way,
            was_over: left
                .turns
                .as_ref()
                .and_then(|turns| turns.last())
                .is_some_and(|turn| turn.stop_reason == StopReason::Completed),
            items_stopped: items()
                .filter(|item| matches!(item.state, ItemState::Stopped { .. }))
                .count(),
            items_unknown: items()
                .filter(|item| matches!(item.state, ItemState::Unknown { .. }))
                .count(),
            answered_after: took.max().unwrap_or_default(),
            violations: checks::check(left),
        }
    }
}

impl fmt::Display for RandomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = &self.rounds;
        let sum = |count: fn(&RandomRound) -> usize| rounds.iter().map(count).sum::<usize>();
        writeln!(
            f,
            "random moments: {} over {:?}, {} of them after the end, {} items stopped, {} unknown, answers within {:?}, \
             {} broken",
            rounds.len(),
            self.length,
            sum(|round| usize::from(round.was_over)),
            sum(|round| round.items_stopped),
            sum(|round| round.items_unknown),
            rounds
                .iter()
                .map(|round| round.answered_after)
                .max()
                .unwrap_or_default(),
            self.broken(),
        )?;
        for round in rounds.iter().filter(|round| !round.violations.is_empty()) {
            writeln!(
                f,
                "\nround {}: {} after {:?}",
                round.number, round.way, round.moment
            )?;
            for violation in &round.violations {
                writeln!(f, "  {}: {}", violation.checker, violation.what)?;
                writeln!(f, "    ({}; {})", violation.invariant, violation.class)?;
            }
        }
        writeln!(f, "the same moments again: {SEED_VARIABLE}={}", self.seed)
    }
}
