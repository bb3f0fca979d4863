//! What an exploration found.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::aftermath::Aftermath;
use super::point::Point;
use super::replay::{CaseName, VARIABLE};
use super::scenario::Scenario;
use super::way::Way;
use crate::check::{Undisturbed, Violation};

/// How many failures of each checker are printed in full. The first ones say what is wrong; the rest is counted.
const PRINTED_MAX: usize = 2;

/// How many points before a failure are printed.
const POINTS_BEFORE: usize = 12;

/// How many points after it.
const POINTS_AFTER: usize = 24;

/// What an exploration found.
#[derive(Debug, Clone)]
#[must_use = "assert that it is clean"]
pub struct Report {
    /// The scenario.
    pub scenario: Arc<str>,
    /// How many points it has.
    pub points: usize,
    /// How many cases were run: a point and a way to stop there.
    pub cases: usize,
    /// How many of those at each kind of point.
    pub cases_at: BTreeMap<&'static str, usize>,
    /// How many of those in each way.
    pub cases_by: BTreeMap<String, usize>,
    /// The cases in which something was broken.
    pub failures: Vec<Failure>,
}

/// A case in which something was broken.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The case, for seeing it again; none where the scenario is broken without a stop.
    pub case: Option<CaseName>,
    scenario: Arc<str>,
    /// What was broken.
    pub violations: Vec<Violation>,
    point: Option<Point>,
    points: Vec<Point>,
}

impl Failure {
    pub(crate) fn of_case(
        case: CaseName,
        point: &Point,
        aftermath: &Aftermath,
        violations: Vec<Violation>,
    ) -> Self {
        let points = if violations.is_empty() {
            Vec::new()
        } else {
            let from = (point.number as usize).saturating_sub(POINTS_BEFORE);
            let all = aftermath.points.iter().skip(from);
            all.take(POINTS_BEFORE + POINTS_AFTER).cloned().collect()
        };
        Self {
            scenario: case.scenario.as_str().into(),
            case: Some(case),
            violations,
            point: Some(point.clone()),
            points,
        }
    }

    pub(crate) fn of_undisturbed(scenario: &Arc<str>, violations: Vec<Violation>) -> Self {
        Self {
            case: None,
            scenario: Arc::clone(scenario),
            violations,
            point: None,
            points: Vec::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.case, &self.point) {
            (Some(case), Some(point)) => {
                writeln!(f, "{}: stopped by {} at {point}", case.scenario, case.way)?;
            }
            _ => writeln!(f, "{}: without any stop", self.scenario)?,
        }
        for Violation {
            checker,
            invariant,
            class,
            what,
        } in &self.violations
        {
            writeln!(f, "  {checker}: {what}")?;
            writeln!(f, "    ({invariant}; {class})")?;
        }
        for point in &self.points {
            let here = self
                .point
                .as_ref()
                .is_some_and(|at| at.number == point.number);
            writeln!(f, "  {} {point}", if here { ">" } else { " " })?;
        }
        match &self.case {
            Some(case) => writeln!(f, "  again: {VARIABLE}='{case}'"),
            None => Ok(()),
        }
    }
}

impl Report {
    /// Of a scenario that is broken without any stop.
    pub(crate) fn of_undisturbed(
        scenario: &Scenario,
        undisturbed: &Undisturbed,
        violations: Vec<Violation>,
    ) -> Self {
        let mut report = Self::new(scenario.name(), undisturbed.points.len());
        report.add(Failure::of_undisturbed(scenario.name(), violations));
        report
    }

    pub(crate) fn new(scenario: &Arc<str>, points: usize) -> Self {
        Self {
            scenario: Arc::clone(scenario),
            points,
            cases: 0,
            cases_at: BTreeMap::new(),
            cases_by: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn count(&mut self, point: &Point, way: Way) {
        self.cases += 1;
        *self.cases_at.entry(point.what).or_default() += 1;
        let way = way.to_string();
        let kind = way.split('+').next().unwrap_or_default();
        *self.cases_by.entry(kind.to_owned()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, failure: Failure) {
        if !failure.violations.is_empty() {
            self.failures.push(failure);
        }
    }

    /// Takes the cases of another exploration of the same scenario.
    pub fn merge(&mut self, other: Self) {
        self.cases += other.cases;
        for (at, cases) in other.cases_at {
            *self.cases_at.entry(at).or_default() += cases;
        }
        for (by, cases) in other.cases_by {
            *self.cases_by.entry(by).or_default() += cases;
        }
        self.failures.extend(other.failures);
    }

    /// Prints how much was explored.
    ///
    /// # Panics
    /// If anything was broken: with the first cases, and how to see each again.
    #[expect(
        clippy::print_stdout,
        reason = "a test says how much it has looked at, where tests say things"
    )]
    pub fn assert_clean(&self) {
        assert!(self.failures.is_empty(), "{self}");
        println!("{self}");
    }

    /// The names of the checkers that found something.
    pub fn caught_by(&self) -> Vec<&'static str> {
        let violations = self.failures.iter().flat_map(|failure| &failure.violations);
        let mut names: Vec<_> = violations.map(|violation| violation.checker).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario,
            points,
            cases,
            failures,
            ..
        } = self;
        let broken = failures.len();
        writeln!(
            f,
            "{scenario}: {points} points, {cases} cases, {broken} broken"
        )?;
        let mut by_checker = BTreeMap::<_, Vec<_>>::new();
        for failure in failures {
            let first = failure.violations.first();
            let checker = first.map_or("", |violation| violation.checker);
            by_checker.entry(checker).or_default().push(failure);
        }
        for (checker, failures) in by_checker {
            writeln!(f, "\n{} broken for {checker}", failures.len())?;
            for failure in failures.iter().take(PRINTED_MAX) {
                write!(f, "\n{failure}")?;
            }
        }
        Ok(())
    }
}
