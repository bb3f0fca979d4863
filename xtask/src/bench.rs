//! `cargo xtask bench`: runs every criterion benchmark of the workspace.

use crate::{exec, workspace};

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    // Only targets that are benchmarks: without it cargo would also start every library's tests,
    // which do not know criterion's arguments.
    exec::step(
        "benchmarks",
        workspace::cargo()
            .args(["bench", "--workspace", "--bench", "*"])
            .args(args),
    )
}
