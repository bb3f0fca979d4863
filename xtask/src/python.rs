//! `cargo xtask python`: the tests of the Python package. They run in a virtual environment in which the wheel is installed
//! as users install it.

use std::process::Command;

use crate::wheel::{self, WheelKind};
use crate::{exec, parts, workspace};

pub(crate) fn run() -> anyhow::Result<()> {
    exec::step(
        "build the binary",
        workspace::cargo().args(["build", "--package=allstop-cli", "--all-features"]),
    )?;
    test()
}

/// Builds the wheel with the binary of the last build, and runs the tests.
pub(crate) fn test() -> anyhow::Result<()> {
    let target = workspace::target_dir()?;
    let wheel = wheel::build(WheelKind::Test, &target.join("debug/allstop"))?;
    let environment = target.join("parts/python_environment");
    let python = environment.join("bin/python");
    exec::step(
        "virtual environment",
        parts::python()
            .args(["-m", "venv", "--clear", "--without-pip"])
            .arg(&environment),
    )?;
    exec::step(
        "install the wheel",
        parts::python()
            .args(["-m", "pip", "--python"])
            .arg(&python)
            .args([
                "install",
                "--quiet",
                "--no-input",
                "--no-index",
                "--no-deps",
            ])
            .arg(wheel),
    )?;
    exec::step(
        "Python tests",
        Command::new(python)
            .current_dir(workspace::root().join("python"))
            // With `-P`, the folder `allstop` with the sources is not in the import path.
            .args(["-P", "-m", "pytest", "--quiet"])
            .env("PYTHONPATH", parts::PYTHON_TOOLS.fetch()?)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}
