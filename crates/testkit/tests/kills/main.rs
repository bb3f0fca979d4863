//! Kills Allstop's own agent with `kill -9` at points of every scenario. Each scenario is one test. The process that
//! started the killed process checks the store on disk.

use std::process::Command;

use allstop_testkit::explore::explore_kills;
use allstop_testkit::scenarios;
use libtest_mimic::{Arguments, Trial};

/// Number of killed processes for each scenario. A process takes about 50 ms, and there are about forty scenarios.
/// `cargo xtask explore --kill` kills a process at every point.
const KILLS_MAX: usize = 8;

fn main() {
    let trials = scenarios::everything().into_iter().map(|scenario| {
        let name = scenario.name().to_string();
        Trial::test(name.clone(), move || {
            let again = || {
                let program = std::env::current_exe().expect("a program knows its own path");
                let mut command = Command::new(program);
                command.args([&name, "--exact"]);
                command
            };
            explore_kills(&scenario, KILLS_MAX, again).assert_clean();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
