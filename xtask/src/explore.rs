//! `cargo xtask explore`: runs the long form of the exploration, which stops scenarios at every point. This form
//! includes killed processes, a soak test, and a table of the checks.
//!
//! The exploration is an example program of the test kit, and parses its own arguments. This command only builds and
//! starts the program.

use std::process::{ExitCode, Stdio};

use anyhow::Context as _;

use crate::workspace;

/// Runs the program and returns its exit code: 0, 1 or 2.
pub(crate) fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    if args == ["--faults"] {
        return every_fault();
    }
    // The program is built with optimisation. The long form has hundreds of thousands of runs, so the longer build does
    // not matter.
    let status = workspace::cargo()
        .args(["run", "--release", "--package", "allstop-testkit"])
        .args(["--example", "explore", "--"])
        .args(args)
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs the test of the store's system calls for each call, and not for a random sample.
fn every_fault() -> anyhow::Result<ExitCode> {
    let status = workspace::cargo()
        .args(["test", "--package", "allstop-cli", "--test", "it", "--"])
        .args(["fault_sweep::", "--nocapture"])
        .env("ALLSTOP_TEST_FAULTS", "1")
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
