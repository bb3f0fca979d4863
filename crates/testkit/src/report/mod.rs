//! Report of a driver: the number of cases by point, by method and by checker, and each failure with the command that
//! repeats it.

mod case_name;
mod failure;

pub use case_name::{CaseName, UnknownCase, VARIABLE};
pub(crate) use case_name::{asked_for, is_asked_for, print_skipped};
pub use failure::Failure;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::check::CHECKERS;
use crate::observe::RunObservation;
use crate::stop_method::StopMethod;
use crate::violation::Violation;

/// Maximum number of points that the report lists for each checker. The report shows only one case of each checker in
/// full.
const POINTS_NAMED_MAX: usize = 12;

/// Counts and failures of one driver in one scenario.
#[derive(Debug, Clone, Default)]
#[must_use = "assert that it is clean"]
pub struct CheckReport {
    /// The scenario.
    pub scenario: Arc<str>,
    /// Number of the scenario's points.
    pub points: usize,
    /// Number of cases that were run. A case is a point and a method of a stop.
    pub cases: usize,
    /// Number of cases at each kind of point.
    pub cases_at: BTreeMap<&'static str, usize>,
    /// Number of cases with each method.
    pub cases_by: BTreeMap<String, usize>,
    /// Number of observations that each checker has checked, by the name of the checker.
    pub checks: BTreeMap<&'static str, usize>,
    /// More figures of the driver, by name.
    pub figures: BTreeMap<&'static str, u64>,
    /// More lines of the driver.
    pub notes: Vec<String>,
    /// The cases with broken promises.
    pub failures: Vec<Failure>,
}

impl CheckReport {
    /// Report of a scenario that is broken even without a stop.
    pub(crate) fn of_undisturbed(
        scenario: &Arc<str>,
        undisturbed: &RunObservation,
        violations: Vec<Violation>,
    ) -> Self {
        let mut report = Self::new(scenario, undisturbed.points.len());
        report.checked(undisturbed);
        report.add(Failure::of_undisturbed(violations));
        report
    }

    pub(crate) fn new(scenario: &Arc<str>, points: usize) -> Self {
        Self {
            scenario: Arc::clone(scenario),
            points,
            ..Self::default()
        }
    }

    pub(crate) fn count(&mut self, at: &'static str, method: &impl ToString) {
        self.cases += 1;
        *self.cases_at.entry(at).or_default() += 1;
        let method = method.to_string();
        let kind = method.split('+').next().unwrap_or_default();
        *self.cases_by.entry(kind.to_owned()).or_default() += 1;
    }

    /// Counts this observation for each checker that applies to it.
    pub(crate) fn checked(&mut self, observation: &RunObservation) {
        for checker in CHECKERS
            .iter()
            .filter(|checker| checker.applies(observation))
        {
            *self.checks.entry(checker.name).or_default() += 1;
        }
    }

    /// Mutable access to a figure of the driver.
    pub(crate) fn figure(&mut self, what: &'static str) -> &mut u64 {
        self.figures.entry(what).or_default()
    }

    pub(crate) fn add(&mut self, failure: Failure) {
        if !failure.violations.is_empty() {
            self.failures.push(failure);
        }
    }

    /// Prints the number of explored cases.
    ///
    /// # Panics
    /// Panics if a promise was broken. The message contains the first cases, and the command that repeats each of them.
    #[expect(
        clippy::print_stdout,
        reason = "a test says how much it has looked at, where tests say things"
    )]
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.failures.is_empty(), "{self}");
        print!("{self}");
    }

    /// True if no promise was broken.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// Names of the checkers that found a violation.
    pub fn caught_by(&self) -> Vec<&'static str> {
        let violations = self.failures.iter().flat_map(|failure| &failure.violations);
        let mut names: Vec<_> = violations.map(|violation| violation.checker).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario,
            points,
            cases,
            failures,
            ..
        } = self;
        if *points == 0 {
            return writeln!(f, "{scenario}: skipped, nothing was looked at");
        }
        let broken = failures.len();
        writeln!(
            f,
            "{scenario}: {points} points, {cases} cases, {broken} broken"
        )?;
        for (what, number) in &self.figures {
            writeln!(f, "{number:>9} {what}")?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        // The first violation of a case explains the case best, because most other violations follow from it.
        let mut by_checker = BTreeMap::<_, Vec<_>>::new();
        for failure in failures {
            let first = failure.violations.first();
            let checker = first.map_or("", |violation| violation.checker);
            by_checker.entry(checker).or_default().push(failure);
        }
        let mut by_checker: Vec<_> = by_checker.into_iter().collect();
        by_checker.sort_by_key(|(_, failures)| Reverse(failures.len()));
        for (checker, failures) in by_checker {
            if let Some(places) = places(&failures) {
                writeln!(
                    f,
                    "\n{checker}, broken in {}, {places}",
                    counted(failures.len())
                )?;
            }
            // A failure with the simplest method of a stop is the easiest to understand.
            let plain = failures.iter().find(|failure| {
                failure
                    .case
                    .as_ref()
                    .is_some_and(|case| case.method == StopMethod::USER)
            });
            if let Some(shown) = plain.or(failures.first()) {
                write!(f, "\n{shown}")?;
            }
        }
        Ok(())
    }
}

/// Numbers of the points of these failures, as text.
fn places(failures: &[&Failure]) -> Option<String> {
    let points = failures.iter().filter_map(|failure| failure.point.as_ref());
    let mut numbers: Vec<_> = points.map(|point| point.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let named = numbers.iter().take(POINTS_NAMED_MAX);
    let named: Vec<_> = named.map(|number| format!("#{number}")).collect();
    let more = if numbers.len() > POINTS_NAMED_MAX {
        " …"
    } else {
        ""
    };
    (!named.is_empty()).then(|| format!("at {}{more}. One of them:", named.join(" ")))
}

fn counted(cases: usize) -> String {
    match cases {
        1 => "1 case".to_owned(),
        more => format!("{more} cases"),
    }
}
