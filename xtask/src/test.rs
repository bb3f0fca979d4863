//! `cargo xtask test`: all checks and tests that must pass before a commit is merged.
//!
//! All checks and tests use one build profile. The tests run last, so that their summary is at the end of the output.

use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::Context as _;

use crate::{dist, documented_commands, exec, gates, parts, python, workspace};

/// Number of concurrent tests per core. The number is more than one, because most tests wait for processes and grace
/// periods (the times in which stopped work may end by itself).
const TESTS_PER_CORE: usize = 2;

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let nextest = parts::TOOLS.fetch()?.join("bin/cargo-nextest");
    if args.is_empty() {
        return run_all(&nextest);
    }
    parts::fetch_for_tests()?;
    let mut tests = nextest_run(&nextest);
    // If no package is named, Cargo would choose only the library and the binary.
    let names_package = |arg: &String| {
        arg.starts_with("-p") || arg.starts_with("--package") || arg == "--workspace"
    };
    if !args.iter().any(names_package) {
        tests.args(["--workspace", "--all-features", "--tests"]);
    }
    exec::step("tests", tests.args(args))
}

fn run_all(nextest: &Path) -> anyhow::Result<()> {
    // The external parts are downloaded, and one is compiled, while the gates compile.
    thread::scope(|scope| {
        let parts = scope.spawn(|| {
            parts::fetch_for_tests()?;
            parts::CARGO_DEB.fetch()
        });
        gates::run()?;
        parts.join().expect("fetching does not panic")
    })?;
    // Only the gates compile the examples.
    let whole = ["--workspace", "--all-features"];
    let tests = || {
        let mut tests = nextest_run(nextest);
        tests.args(whole).arg("--tests");
        tests
    };
    exec::step("build", tests().arg("--no-run"))?;
    let binary = workspace::target_dir()?.join("debug/allstop");
    exec::check("allstop commands in documents", || {
        documented_commands::check_allstop(&binary)
    })?;
    exec::check("files of a release", || dist::check(&binary))?;
    exec::step(
        "doc tests",
        workspace::cargo()
            .args(["test", "--doc", "--quiet"])
            .args(whole),
    )?;
    python::test()?;
    let cores = thread::available_parallelism().context("the number of cores")?;
    let at_once = TESTS_PER_CORE * cores.get();
    exec::step(
        "tests",
        tests()
            .arg("--no-fail-fast")
            .arg(format!("--test-threads={at_once}")),
    )
}

fn nextest_run(nextest: &Path) -> Command {
    let mut command = workspace::building(nextest);
    command.args(["nextest", "run"]);
    command
}
