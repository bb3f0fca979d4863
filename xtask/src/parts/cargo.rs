//! Parts that Cargo builds from source.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::{exec, workspace};

/// Builds the program that a list names, and installs it into a folder. The version and the lock file of the program are
/// fixed. Its optional features are left out, and it is not optimised, because the build takes longer than its work.
pub(super) fn install(list: &Path, into: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    let (program, version) =
        program(&text).with_context(|| format!("{} has no line `NAME VERSION`", list.display()))?;
    let install = ["install", program, "--version", version];
    build(program, workspace::cargo().args(install), into)
}

/// Builds the program of a package in this repository that is no member of the workspace.
pub(super) fn install_package(manifest: &Path, into: &Path) -> anyhow::Result<()> {
    let folder = manifest.parent().context("a manifest is in a folder")?;
    let mut install = workspace::cargo();
    install
        .args(["install", "--path"])
        .arg(folder)
        // Otherwise the build of the Copilot SDK downloads the official program, which no test uses.
        .env("COPILOT_SKIP_CLI_DOWNLOAD", "1");
    build(&folder.display().to_string(), &mut install, into)
}

fn build(program: &str, install: &mut Command, into: &Path) -> anyhow::Result<()> {
    let build = into.with_extension("build");
    exec::step(
        &format!("build {program}"),
        install
            .args(["--locked", "--quiet", "--debug"])
            .args(["--no-default-features", "--no-track"])
            .arg("--root")
            .arg(into)
            .arg("--target-dir")
            .arg(&build)
            // Line numbers of a program that works are of no use, and take a third of the time.
            .env("CARGO_PROFILE_DEV_DEBUG", "false"),
    )?;
    std::fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))
}

/// Returns the name and the version in the first line that is no comment.
fn program(list: &str) -> Option<(&str, &str)> {
    let mut lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.next()?.split_once(' ')
}

#[cfg(test)]
mod tests {
    #[test]
    fn program_is_read_from_a_list() {
        assert_eq!(
            super::program("# Why.\na-b 1.2.3\n"),
            Some(("a-b", "1.2.3"))
        );
        assert_eq!(super::program("# Why.\n"), None);
    }
}
