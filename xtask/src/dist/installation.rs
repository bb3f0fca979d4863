//! Installation of the package for Debian in an empty root, and the demo from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::exec;

/// Files that the package must install, with their modes.
const FILES: [(&str, &str); 12] = [
    ("usr/bin/allstop", "755"),
    ("usr/lib/systemd/system/allstop-serve.service", "644"),
    ("usr/lib/systemd/system/allstop-worker.service", "644"),
    ("etc/allstop/serve.toml", "644"),
    ("etc/allstop/serve.env", "600"),
    ("etc/allstop/worker.toml", "644"),
    ("etc/allstop/worker.env", "600"),
    ("usr/share/man/man1/allstop-serve.1.gz", "644"),
    ("usr/share/bash-completion/completions/allstop", "644"),
    ("usr/share/zsh/vendor-completions/_allstop", "644"),
    ("usr/share/fish/vendor_completions.d/allstop.fish", "644"),
    ("usr/share/doc/allstop/copyright", "644"),
];

/// Installs the only package in a folder, checks its files, and runs the demo with a clean environment.
pub(super) fn check(folder: &Path) -> anyhow::Result<()> {
    let package = package_in(folder)?;
    let root = folder.join("root");
    install(&package, &root)?;
    for (file, mode) in FILES {
        let found = exec::output(
            Command::new("stat")
                .args(["--format=%a", "--"])
                .arg(root.join(file)),
        )?;
        if found.trim() != mode {
            bail!("{file} has the mode {}, not {mode}", found.trim());
        }
    }
    let fields = exec::output(Command::new("dpkg-deb").arg("--field").arg(&package))?;
    if !fields
        .lines()
        .any(|line| line.starts_with("Depends:") && line.contains("libc6"))
    {
        bail!("the package does not depend on libc6:\n{fields}");
    }
    check_units(&root)?;
    demo(&root)?;
    fs::remove_dir_all(&root).context("cannot remove the root")
}

fn package_in(folder: &Path) -> anyhow::Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some("deb".as_ref()) {
            return Ok(path);
        }
    }
    bail!("{} contains no package", folder.display())
}

/// Installs the package with dpkg in a new root. The root has no other package, so dependencies are not checked. The
/// scripts of the package run on this machine, and change nothing, because dpkg names the root to them.
fn install(package: &Path, root: &Path) -> anyhow::Result<()> {
    let database = root.join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(folder))?;
    }
    fs::write(database.join("status"), "")?;
    let log = root.join("dpkg.log");
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display()))
        .arg(format!("--log={}", log.display()))
        .args([
            "--force-not-root",
            "--force-script-chrootless",
            "--force-depends",
        ])
        .arg("--install")
        .arg(package);
    let output = dpkg
        .output()
        .context("cannot start dpkg: the check of the package needs it")?;
    if !output.status.success() {
        bail!("dpkg: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Checks the units with systemd-analyze, if this machine has it.
fn check_units(root: &Path) -> anyhow::Result<()> {
    let mut verify = Command::new("systemd-analyze");
    verify
        .args(["verify", "--man=no"])
        .arg(format!("--root={}", root.display()));
    verify.args(["allstop-serve.service", "allstop-worker.service"]);
    let Ok(output) = verify.output() else {
        println!("   systemd-analyze is missing: only the tests of the binary check the units");
        return Ok(());
    };
    // Units of the system itself, such as network-online.target, are not in the root.
    let text = String::from_utf8_lossy(&output.stderr);
    let problems: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("allstop-") && !line.contains("not found"))
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}", problems.join("\n"))
}

/// Runs the demo of the installed program. The demo checks its own result.
fn demo(root: &Path) -> anyhow::Result<()> {
    let home = root.join("home");
    fs::create_dir_all(&home)?;
    let mut demo = Command::new(root.join("usr/bin/allstop"));
    demo.arg("demo")
        .current_dir(&home)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", &home);
    let text = exec::output(&mut demo)?;
    let last = text.lines().next_back().unwrap_or_default();
    println!("   {last}");
    Ok(())
}
