//! Proves that the checkers find bugs: explores an engine with seeded bugs. The checker that belongs to a bug must find
//! this bug. Without a bug, no checker may report a violation. The test also shows that the exploration works for
//! engines other than Allstop's own engine.

mod bug;
mod engine;
mod scenario;

use std::collections::BTreeSet;

use allstop_testkit::check::FailureClass;
use allstop_testkit::explore::{CheckReport, Exploration, explore};
use libtest_mimic::{Arguments, Failed, Trial};

use bug::{BUGS, Bug, Expected};
use scenario::SETTINGS;

fn main() {
    let clean = SETTINGS.into_iter().map(|setting| {
        Trial::test(format!("without_a_bug/{setting:?}"), move || {
            explore(&setting.scenario(None)).assert_clean();
            Ok(())
        })
    });
    let seeded = BUGS.map(|bug| Trial::test(format!("seeded/{bug:?}"), move || is_caught(bug)));
    let complete = Trial::test("every_class_has_its_bug", complete);
    let trials = clean.chain(seeded).chain([complete]);
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

#[expect(
    clippy::print_stdout,
    reason = "the table is what this test is read for"
)]
fn is_caught(bug: Bug) -> Result<(), Failed> {
    let Expected {
        class,
        checker,
        setting,
        method,
    } = bug.expected();
    if bug == Bug::ForgottenProcess && !cfg!(target_os = "linux") {
        println!("{bug:?}: only Linux says which thread started a process");
        return Ok(());
    }
    let scenario = setting.scenario(Some(bug));
    let report = Exploration::of(&scenario).only(method).run();
    println!("{}", row(bug, class, &report));
    if report.caught_by().contains(&checker) {
        return Ok(());
    }
    Err(format!("{bug:?} was not caught by {checker}\n{report}").into())
}

/// A row of the table: the bug, the failure class, the number of broken cases, the first broken case, and the checkers
/// with their numbers of violations.
fn row(bug: Bug, class: FailureClass, report: &CheckReport) -> String {
    let (broken, cases) = (report.failures.len(), report.cases);
    let first = report.failures.iter().find_map(|found| found.case.as_ref());
    let first = first.map_or_else(|| "none".to_owned(), ToString::to_string);
    let by = report.caught_by().into_iter().map(|name| {
        let saw = report.failures.iter().filter(|failure| {
            let mut violations = failure.violations.iter();
            violations.any(|violation| violation.checker == name)
        });
        format!("{name} {}", saw.count())
    });
    let by = by.collect::<Vec<_>>().join(", ");
    let (bug, class) = (format!("{bug:?}"), class.to_string());
    format!("{bug:<21} {class:<34} {broken:>4} of {cases:<5} {first:<48} {by}")
}

/// Checks that each failure class has a bug. A test in `check` verifies that each checker has a bug or a falsified
/// observation.
fn complete() -> Result<(), Failed> {
    let classes: BTreeSet<_> = BUGS.iter().map(|bug| bug.expected().class).collect();
    if classes.len() != FailureClass::LostCause as usize {
        return Err(format!("of 13 failure classes {} have a bug", classes.len()).into());
    }
    Ok(())
}
