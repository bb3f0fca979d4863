//! `cargo xtask explore`: the long form of the exploration, with process kills and a table of what was checked.
//!
//! It is an example of the test kit, which knows its own arguments; this builds and starts it.

use std::process::{ExitCode, Stdio};

use anyhow::Context as _;

use crate::workspace;

/// The program ends with 0, 1 or 2, and so does this.
pub(crate) fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    // In the profile of the tests: it is built already, and an optimised build takes longer than what it saves.
    let status = workspace::cargo()
        .args(["run", "--quiet", "--package", "allstop-testkit"])
        .args(["--example", "explore", "--"])
        .args(args)
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
