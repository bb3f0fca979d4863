//! The tarball, the package for Debian and the checksums. Times, owners, modes and the order of the entries are fixed.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::Release;
use crate::parts;
use crate::{exec, workspace};

/// Name of the file with the checksums.
pub(super) const SUMS: &str = "SHA256SUMS";

/// Makes the tarball: the tree, and the files for systemd. The names of all entries begin with the name of the release.
pub(super) fn tarball(release: &Release, tree: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = format!("allstop-{}-{}", release.version, release.target);
    let level = if release.is_fast() { "-1" } else { "-9" };
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--mode=u=rwX,go=rX", "--format=ustar"])
        .arg(format!("--mtime=@{}", release.epoch))
        .arg(format!("--transform=s,^\\.,{name},"))
        .arg(format!("--use-compress-program=gzip -n {level}"))
        .arg("--create")
        .arg("--file")
        .arg(folder.join(format!("{name}.tar.gz")))
        .arg("--directory")
        .arg(tree)
        .arg(".")
        .arg("--directory")
        .arg(workspace::root().join("packaging"))
        .args(["./systemd", "./etc"]);
    exec::output(&mut tar).context("cannot make the tarball: this needs GNU tar")?;
    Ok(())
}

/// Makes the package for Debian from the tree. `crates/cli/Cargo.toml` describes the package.
pub(super) fn debian(release: &Release, folder: &Path) -> anyhow::Result<()> {
    let part = parts::CARGO_DEB.fetch()?;
    let mut deb = Command::new(part.join("bin/cargo-deb"));
    deb.current_dir(workspace::root())
        .args([
            "--package=allstop-cli",
            "--no-build",
            "--no-strip",
            "--no-dbgsym",
            "--quiet",
        ])
        .args([
            "--compress-system",
            "--profile",
            release.profile,
            "--output",
        ])
        .arg(folder)
        .env("SOURCE_DATE_EPOCH", &release.epoch);
    if release.is_fast() {
        deb.args(["--fast", "--compress-type=gz"]);
    }
    exec::output(&mut deb)?;
    Ok(())
}

/// Writes the checksums of all files in a folder, in the format of `sha256sum`.
pub(super) fn sums(folder: &Path) -> anyhow::Result<()> {
    let mut names = Vec::<OsString>::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let mut sha256sum = Command::new("sha256sum");
    let sums = exec::output(sha256sum.current_dir(folder).arg("--").args(names))?;
    Ok(fs::write(folder.join(SUMS), sums)?)
}
