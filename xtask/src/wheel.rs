//! `cargo xtask wheel`: builds the wheel of the Python package. The wheel contains the binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{exec, parts, workspace};

/// Folder of the files that the wheel installs as programs; `tool.maturin.data` in `python/pyproject.toml` names its parent.
const SCRIPTS: &str = "python/allstop.data/scripts";

/// Kind of a wheel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WheelKind {
    /// For the tests: with the profile of the tests, and not compressed.
    Test,
    /// For users: with the profile `release`.
    Release,
}

pub(crate) fn run() -> anyhow::Result<()> {
    exec::step(
        "build the binary",
        workspace::cargo().args(["build", "--release", "--package=allstop-cli"]),
    )?;
    let binary = workspace::target_dir()?.join("release/allstop");
    println!("{}", build(WheelKind::Release, &binary)?.display());
    Ok(())
}

/// Builds a wheel that contains this binary. Returns the path of the wheel.
pub(crate) fn build(kind: WheelKind, binary: &Path) -> anyhow::Result<PathBuf> {
    let maturin = parts::PYTHON_TOOLS.fetch()?.join("bin/maturin");
    stage(binary)?;
    let out = workspace::target_dir()?.join(match kind {
        WheelKind::Test => "wheels/test",
        WheelKind::Release => "wheels/release",
    });
    // An old wheel may have another version in its name.
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    let mut build = workspace::building(maturin);
    build
        .args(["build", "--locked", "--strip"])
        .args(["--manifest-path", "python/Cargo.toml", "--out"])
        .arg(&out);
    build.args(match kind {
        WheelKind::Test => [
            "--profile=dev",
            "--compatibility=linux",
            "--compression-method=stored",
        ]
        .as_slice(),
        WheelKind::Release => &["--release"],
    });
    exec::step("build the wheel", &mut build)?;
    let mut wheels = fs::read_dir(&out).context("cannot list the wheels")?;
    match (wheels.next(), wheels.next()) {
        (Some(wheel), None) => Ok(wheel.context("cannot list the wheels")?.path()),
        _ => bail!("{} does not contain exactly one wheel", out.display()),
    }
}

/// Copies the binary to the files of the wheel, without symbols: they are most of a test binary.
fn stage(binary: &Path) -> anyhow::Result<()> {
    let scripts = workspace::root().join(SCRIPTS);
    fs::create_dir_all(&scripts).context("cannot create the folder of the binary")?;
    let to = scripts.join("allstop");
    let status = Command::new("strip")
        .arg("-o")
        .arg(&to)
        .arg(binary)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        fs::copy(binary, &to).with_context(|| format!("cannot copy {}", binary.display()))?;
    }
    Ok(())
}
