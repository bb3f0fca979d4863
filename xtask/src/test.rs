//! `cargo xtask test`: everything that must pass before a commit lands.
//!
//! One build profile, and the tests come last, so that the run ends with their summary.

use std::process::Command;

use crate::{exec, gates, parts, workspace};

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    // Before anything long, so that a missing part is told at once.
    let tools = parts::TOOLS.fetch()?;
    parts::LLAMA.fetch()?;
    let mut nextest = Command::new(tools.join("bin/cargo-nextest"));
    nextest
        .current_dir(workspace::root())
        .args(["nextest", "run"]);
    if !args.is_empty() {
        return exec::step("tests", nextest.args(args));
    }
    gates::run()?;
    exec::step(
        "doc tests",
        workspace::cargo().args(["test", "--workspace", "--all-features", "--doc", "--quiet"]),
    )?;
    exec::step(
        "tests",
        nextest.args(["--workspace", "--all-features", "--no-fail-fast"]),
    )
}
