//! Stops Allstop's own agent and its sessions at every point with every method. Each scenario is a separate test, so
//! that the scenarios run in parallel.

use allstop_testkit::explore::explore;
use allstop_testkit::scenarios;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let trials = scenarios::everything().into_iter().map(|scenario| {
        Trial::test(scenario.name().to_string(), move || {
            explore(&scenario).assert_clean();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
