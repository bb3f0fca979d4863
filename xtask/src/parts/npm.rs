//! Parts that npm installs, if npm is available.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::exec;

/// Oldest Node version that all packages support.
const NODE_MIN: u32 = 20;

/// Returns the reason why npm cannot install parts. `None` if npm can install parts.
pub(super) fn missing() -> Option<String> {
    let Some(node) = version("node") else {
        return Some("`node` is not installed".to_owned());
    };
    let major = node.trim_start_matches('v').split('.').next();
    if major.and_then(|major| major.parse().ok()) < Some(NODE_MIN) {
        return Some(format!("`node` {node} is too old: {NODE_MIN} is needed"));
    }
    match version("npm") {
        Some(_) => None,
        None => Some("`npm` is not installed".to_owned()),
    }
}

/// Installs the packages of the lock file, and checks their hashes. The packages come from the package index in the
/// configuration of npm. No fetched code runs during the installation.
pub(super) fn install(
    name: &str,
    sources: &[PathBuf],
    into: &Path,
    program: &str,
) -> anyhow::Result<()> {
    fs::create_dir_all(into).with_context(|| format!("cannot create {}", into.display()))?;
    for source in sources {
        let copy = into.join(source.file_name().unwrap_or_default());
        fs::copy(source, copy).with_context(|| format!("cannot copy {}", source.display()))?;
    }
    let options = [
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        // Fails fast on machines without a network.
        "--fetch-retries=1",
        "--fetch-timeout=60000",
    ];
    let mut npm = Command::new("npm");
    npm.current_dir(into)
        .args(["ci", "--silent"])
        .args(options)
        // The user's own configuration must not change the target folder.
        .env_remove("npm_config_prefix")
        .env("npm_config_global", "false");
    exec::step(&format!("fetch {name}"), &mut npm).with_context(|| {
        format!("cannot fetch `{name}`: it needs a package index that npm can reach")
    })?;
    let program = into.join(program);
    ensure!(
        program.is_file(),
        "the packages contain no {}",
        program.display()
    );
    Ok(())
}

fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| version.trim().to_owned())
}
