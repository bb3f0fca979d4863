//! `cargo xtask minimal`: checks that the binary compiles alone, both with and without its features. The help of a
//! binary without a feature must not mention the feature.
//!
//! This check is not a part of `cargo xtask test`, because it takes long. Without the binary's features, most
//! dependencies have other features, too, and must be compiled again.

use std::process::Command;

use anyhow::bail;

use crate::{exec, workspace};

/// Words in the help that occur only with a feature.
const OF_FEATURES: [&str; 7] = [
    "copilot",
    "serve commands",
    "worker",
    "--cluster",
    "--nats-",
    "--grpc-",
    "--otlp",
];

pub(crate) fn run() -> anyhow::Result<()> {
    // The binary is compiled alone, because tests of the workspace enable features of libraries that the binary does
    // not enable.
    exec::step(
        "check of the binary alone",
        workspace::cargo().args(["check", "-p", "allstop-cli"]),
    )?;
    let minimal = ["-p", "allstop-cli", "--no-default-features"];
    exec::step(
        "clippy of the minimal binary",
        workspace::cargo()
            .arg("clippy")
            .args(minimal)
            .args(["--", "-D", "warnings"]),
    )?;
    exec::step(
        "build of the minimal binary",
        workspace::cargo().arg("build").args(minimal),
    )?;
    let binary = workspace::target_dir()?.join("debug/allstop");
    exec::check("help of the minimal binary", || {
        for args in [&["--help"][..], &["serve", "--help"], &["demo", "--help"]] {
            let help = exec::output(Command::new(&binary).args(args))?;
            if let Some(word) = OF_FEATURES.iter().find(|word| help.contains(**word)) {
                bail!("`allstop {}` names {word}", args.join(" "));
            }
        }
        Ok(())
    })
}
