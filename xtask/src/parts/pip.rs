//! Parts that pip installs.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::exec;

pub(super) fn install(
    name: &str,
    requirements: &Path,
    into: &Path,
    usable: &str,
) -> anyhow::Result<()> {
    exec::step(
        &format!("fetch {name}"),
        python()
            .args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"])
            .args(["--no-deps", "--only-binary=:all:", "--require-hashes"])
            .arg("--requirement")
            .arg(requirements)
            .arg("--target")
            .arg(into),
    )
    .with_context(|| {
        format!(
            "cannot fetch `{name}`: it needs Python 3 with pip (`python3 -m pip --version`), a package index \
             that pip can reach, and a platform named in {}",
            requirements.display()
        )
    })?;
    exec::output(
        python()
            .env("PYTHONPATH", into)
            .args(["-c", usable])
            .arg(into),
    )
    .with_context(|| format!("`{name}` was fetched but cannot be used on this machine"))?;
    Ok(())
}

/// The interpreter, without settings of the user that change the target folder of pip.
pub(crate) fn python() -> Command {
    let mut python = Command::new("python3");
    // Neither an activated environment nor the user's own configuration may change the target folder.
    python
        .env_remove("PIP_TARGET")
        .env_remove("PIP_USER")
        .env_remove("PIP_PREFIX")
        // For the user root, pip warns about a change of system packages, but these commands change none. Older
        // versions of pip do not have the argument that disables the warning. They ignore this variable.
        .env("PIP_ROOT_USER_ACTION", "ignore");
    python
}
