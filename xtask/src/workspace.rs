//! Paths of the workspace, and `cargo metadata`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;
use serde_json::Value;

use crate::exec;

/// Returns the folder with the `Cargo.toml` of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in a folder of the workspace")
}

/// Returns the output of `cargo metadata`, with the members of the workspace but without other dependencies.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let text = exec::output(cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    serde_json::from_str(&text).context("cargo metadata printed no JSON")
}

/// Returns the build folder, as configured by the caller. The folder is cached, because Cargo needs a quarter of a
/// second for the answer.
pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    static ANSWER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = ANSWER.get() {
        return Ok(folder.clone());
    }
    let metadata = metadata()?;
    let folder = metadata["target_directory"].as_str();
    let folder = folder.context("cargo metadata names no target_directory")?;
    Ok(ANSWER.get_or_init(|| folder.into()).clone())
}

/// Returns a `cargo` command that runs in the root of the workspace.
pub(crate) fn cargo() -> Command {
    building("cargo")
}

/// Returns a command that runs in the root of the workspace and builds by Cargo. It does not inherit the description of the
/// package `xtask`, which `cargo run` adds to the environment. Some build scripts run again if this description changes, so
/// a build by hand and a build by `cargo xtask` would compile a hundred packages in turns.
pub(crate) fn building(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment that `cargo run` has made"
    )]
    let inherited = std::env::vars_os();
    for (name, _) in inherited {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}
