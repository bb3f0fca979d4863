//! Copy of the sources, in which cargo-mutants creates mutants (small mistakes).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::{exec, workspace};

/// Updates the copy, and returns its folder. Files that have not changed keep their time stamps, so Cargo compiles only
/// the changed crates.
pub(super) fn copy_to(copy: &Path) -> anyhow::Result<PathBuf> {
    let root = workspace::root();
    let listed = exec::output(Command::new("git").current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let files: BTreeSet<&Path> = listed
        .split('\0')
        .map(Path::new)
        // Git may still list a file that was deleted.
        .filter(|path| root.join(path).is_file())
        .collect();
    fs::create_dir_all(copy).context("cannot create the copy")?;
    remove_others(copy, copy, &files)?;
    for path in &files {
        let (from, to) = (root.join(path), copy.join(path));
        let text = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if fs::read(&to).is_ok_and(|there| there == text) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(copy)).context("cannot create a folder")?;
        // `fs::copy` also copies the permissions.
        fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    link_parts(copy)?;
    Ok(copy.to_owned())
}

/// Removes files from the copy that do not exist in the sources, except build results.
fn remove_others(copy: &Path, folder: &Path, files: &BTreeSet<&Path>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).context("cannot read the copy")? {
        let entry = entry.context("cannot read the copy")?;
        let path = entry.path();
        let Ok(relative) = path.strip_prefix(copy) else {
            continue;
        };
        if relative == Path::new("target") {
            continue;
        }
        if entry.file_type().context("cannot read the copy")?.is_dir() {
            remove_others(copy, &path, files)?;
            // Cargo treats an empty folder in `crates` as a package, so an empty folder must be removed. If the folder
            // contains files, the removal fails and has no effect.
            fs::remove_dir(&path).unwrap_or_default();
        } else if !files.contains(relative) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Creates a link to the folder of the external parts, which the tests in the copy need.
fn link_parts(copy: &Path) -> anyhow::Result<()> {
    let link = copy.join("target/parts");
    let parts = workspace::target_dir()?.join("parts");
    if fs::read_link(&link).is_ok_and(|linked| linked == parts) {
        return Ok(());
    }
    fs::create_dir_all(copy.join("target")).context("cannot create a build folder")?;
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).context("cannot remove the link to other parts")?;
    }
    std::os::unix::fs::symlink(parts, &link).context("cannot link the parts")?;
    Ok(())
}
