//! `cargo xtask test`: everything that must pass before a commit is merged.
//!
//! There is one build profile. The tests run last, so that the run ends with their summary.

use std::process::Command;

use crate::{documented_commands, exec, gates, parts, workspace};

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    // Before the long steps, so that a missing part is reported at once.
    let nextest = parts::TOOLS.fetch()?.join("bin/cargo-nextest");
    parts::LLAMA.fetch()?;
    parts::A2A_PYTHON.fetch()?;
    parts::COPILOT_PYTHON.fetch()?;
    parts::NATS.fetch()?;
    parts::fetch_npm_parts()?;
    let nextest = || {
        let mut command = Command::new(&nextest);
        command
            .current_dir(workspace::root())
            .args(["nextest", "run"]);
        command
    };
    if !args.is_empty() {
        return exec::step("tests", nextest().args(args));
    }
    let whole = ["--workspace", "--all-features"];
    gates::run()?;
    exec::step("build", nextest().args(whole).arg("--no-run"))?;
    let binary = workspace::target_dir()?.join("debug/allstop");
    exec::check("allstop commands in documents", || {
        documented_commands::check_allstop(&binary)
    })?;
    exec::step(
        "doc tests",
        workspace::cargo()
            .args(["test", "--doc", "--quiet"])
            .args(whole),
    )?;
    exec::step("tests", nextest().args(whole).arg("--no-fail-fast"))
}
