//! The tree of installed files, in the build folder of the profile: the stripped binary, its manual pages and completions,
//! licences and the bill of materials.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{Release, bill};
use crate::{exec, workspace};

/// Path of the bill of materials in the tree.
pub(super) const BILL: &str = "share/doc/allstop/allstop.spdx.json";

/// Shells, and the paths at which they look for the completions of a command.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/allstop"),
    ("zsh", "share/zsh/vendor-completions/_allstop"),
    ("fish", "share/fish/vendor_completions.d/allstop.fish"),
];

/// Documents that every release contains, and their names there. Debian prescribes the name of the changelog.
const DOCUMENTS: [(&str, &str); 4] = [
    ("README.md", "README.md"),
    ("CHANGELOG.md", "changelog"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("LICENSE-MIT", "LICENSE-MIT"),
];

/// Makes the tree, and returns its folder. The package for Debian names this folder in `crates/cli/Cargo.toml`.
pub(super) fn make(release: &Release) -> anyhow::Result<PathBuf> {
    let tree = release.build_folder()?.join("dist");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let manuals = tree.join("share/man/man1");
    for folder in ["bin", "share/doc/allstop"].map(|folder| tree.join(folder)) {
        fs::create_dir_all(folder)?;
    }
    fs::create_dir_all(&manuals)?;
    let binary = tree.join("bin/allstop");
    let mut strip = Command::new("strip");
    exec::output(strip.arg("-o").arg(&binary).arg(&release.binary))
        .context("cannot strip the binary: this needs binutils")?;
    exec::output(program(&binary).args(["man", "--folder"]).arg(&manuals))?;
    for (shell, path) in COMPLETIONS {
        let script = exec::output(program(&binary).args(["completions", shell]))?;
        write(&tree.join(path), &script)?;
    }
    let documents = tree.join("share/doc/allstop");
    for (document, name) in DOCUMENTS {
        fs::copy(workspace::root().join(document), documents.join(name))?;
    }
    compress(fs::read_dir(&manuals)?.map(|page| Ok(page?.path())))?;
    compress([Ok(documents.join("changelog"))])?;
    write(&tree.join(BILL), &bill::make(release)?)?;
    Ok(tree)
}

/// The built program, without settings of the user: manual pages contain none.
fn program(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().env("LANG", "C.UTF-8");
    command
}

/// Compresses files in place, without their names and times.
fn compress(files: impl IntoIterator<Item = std::io::Result<PathBuf>>) -> anyhow::Result<()> {
    let files: Vec<PathBuf> = files.into_iter().collect::<Result<_, _>>()?;
    exec::output(
        Command::new("gzip")
            .args(["-9", "--no-name", "--"])
            .args(files),
    )?;
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().context("a path without folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
