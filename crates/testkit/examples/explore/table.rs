//! Table of checks and failures, grouped by promise, by failure class, by point of the stop and by method of the stop.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use allstop_testkit::check::{CHECKERS, FailureClass, Invariant, Violation};
use allstop_testkit::explore::CheckReport;

/// Number of checks, and number of failed checks.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    checks: usize,
    broken: usize,
}

/// Sums over all reports.
#[derive(Debug, Default)]
pub(crate) struct Table {
    invariants: BTreeMap<Invariant, Count>,
    classes: BTreeMap<FailureClass, Count>,
    points: BTreeMap<&'static str, usize>,
    ways: BTreeMap<String, usize>,
    cases: usize,
    broken: usize,
}

impl Table {
    fn violated<'a>(&mut self, violations: impl IntoIterator<Item = &'a Violation>) {
        for violation in violations {
            self.invariants
                .entry(violation.invariant)
                .or_default()
                .broken += 1;
            self.classes.entry(violation.class).or_default().broken += 1;
        }
    }

    fn checked(&mut self, invariant: Invariant, class: FailureClass, checks: usize) {
        self.invariants.entry(invariant).or_default().checks += checks;
        self.classes.entry(class).or_default().checks += checks;
    }

    /// Adds the counts of a report.
    pub(crate) fn add(&mut self, report: &CheckReport) {
        for checker in &CHECKERS {
            let checks = report.checks.get(checker.name).copied().unwrap_or_default();
            self.checked(checker.invariant, checker.class, checks);
        }
        self.cases += report.cases;
        self.broken += report.failures.len();
        for (at, cases) in &report.cases_at {
            *self.points.entry(at).or_default() += cases;
        }
        for (by, cases) in &report.cases_by {
            *self.ways.entry(by.clone()).or_default() += cases;
        }
        self.violated(
            report
                .failures
                .iter()
                .flat_map(|failure| &failure.violations),
        );
    }

    /// Number of cases that were run.
    pub(crate) fn cases(&self) -> usize {
        self.cases
    }

    /// Number of cases in which a promise was broken.
    pub(crate) fn broken(&self) -> usize {
        self.broken
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbered = |invariant: &Invariant| format!("{:>2} {invariant}", *invariant as u8);
        let invariants = self.invariants.iter();
        let invariants = invariants.map(|(invariant, count)| (numbered(invariant), *count));
        counts(f, "invariant", &invariants.collect())?;
        counts(f, "failure class", &self.classes)?;
        cases(f, "cases by point", &self.points)?;
        cases(f, "cases by way", &self.ways)
    }
}

fn counts<K: Display>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    counts: &BTreeMap<K, Count>,
) -> fmt::Result {
    writeln!(f, "\n{name:<44}{:>12}{:>9}", "checks", "broken")?;
    for (key, Count { checks, broken }) in counts {
        writeln!(f, "{:<44}{checks:>12}{broken:>9}", key.to_string())?;
    }
    Ok(())
}

fn cases<K: Display>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    cases: &BTreeMap<K, usize>,
) -> fmt::Result {
    writeln!(f, "\n{name:<44}{:>12}", "cases")?;
    for (key, cases) in cases {
        writeln!(f, "{:<44}{cases:>12}", key.to_string())?;
    }
    Ok(())
}
