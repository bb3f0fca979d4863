//! `cargo xtask explore`: the long form of the exploration, with process kills, a soak test, and a table of the
//! checks.
//!
//! The program is an example of the test kit, and parses its own arguments; this command builds and starts it.

use std::process::{ExitCode, Stdio};

use anyhow::Context as _;

use crate::workspace;

/// Runs the program and returns its exit code: 0, 1 or 2.
pub(crate) fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    // Optimised: the long form has hundreds of thousands of runs, so the build time is small.
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
