//! `cargo xtask explore`: the long form of the exploration, with process kills, a soak, and a table of what was checked.
//!
//! It is an example of the test kit, which knows its own arguments; this builds and starts it.

use std::process::{ExitCode, Stdio};

use anyhow::Context as _;

use crate::workspace;

/// The program ends with 0, 1 or 2, and so does this.
pub(crate) fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    // Optimised: the long form is some hundred thousand runs, which take many times as long as the build otherwise.
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
