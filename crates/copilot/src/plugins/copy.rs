//! Copies of plugins in the folder of the settings.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::folder::PluginFolder;

/// Maximum number of files and folders of a plugin. A server with its libraries has some thousands.
const ENTRIES_MAX: usize = 10_000;

/// Maximum size of a file of a plugin, in bytes. It is read as a whole.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum size of all files of a plugin, in bytes.
const COPY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Folder that is left out: the history of the source is large, and no part of the plugin.
const HISTORY: &str = ".git";

/// Copies a folder into a new one that only its user can read. A link to a file inside the folder becomes a file; any other
/// link is refused. Blocks the thread. The error is the reason, for people.
pub(super) fn copy(folder: &PluginFolder, to: &Path) -> Result<(), String> {
    let (mut folders, mut entries, mut bytes) = (vec![PathBuf::new()], 0_usize, 0_usize);
    while let Some(below) = folders.pop() {
        let from = folder.root.join(&below);
        let failed = |error: std::io::Error| format!("{} is not copied: {error}", from.display());
        let mut private = DirBuilder::new();
        let made = private.recursive(true).mode(0o700).create(to.join(&below));
        made.map_err(failed)?;
        for entry in fs::read_dir(&from).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(format!(
                    "the plugin in {} has more than {ENTRIES_MAX} files and folders",
                    folder.root.display()
                ));
            }
            let path = below.join(entry.file_name());
            if !entry.file_type().map_err(failed)?.is_dir() {
                bytes += copy_file(folder, &path, to)?;
            } else if entry.file_name() != HISTORY {
                folders.push(path);
            }
            if bytes > COPY_BYTES_MAX {
                return Err(format!(
                    "the plugin in {} has more than {COPY_BYTES_MAX} bytes",
                    folder.root.display()
                ));
            }
        }
    }
    Ok(())
}

/// Copies a file, and returns its size.
fn copy_file(folder: &PluginFolder, path: &Path, to: &Path) -> Result<usize, String> {
    let from = folder.root.join(path);
    let bytes = folder.read(folder.relative(&from)?, FILE_BYTES_MAX)?;
    let bytes = bytes.ok_or_else(|| format!("{} leads to no file", from.display()))?;
    let failed = |error: std::io::Error| format!("{} is not copied: {error}", from.display());
    let mode = fs::metadata(&from).map_err(failed)?.permissions().mode();
    let is_program = mode & 0o100 != 0;
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true);
    let options = options.mode(if is_program { 0o700 } else { 0o600 });
    let mut file = options.open(to.join(path)).map_err(failed)?;
    file.write_all(&bytes).map_err(failed)?;
    Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn copies_have_no_links_and_no_history() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        fs::create_dir_all(from.join(".git")).unwrap();
        fs::create_dir_all(from.join("bin")).unwrap();
        fs::write(from.join("bin/run"), "x").unwrap();
        fs::set_permissions(from.join("bin/run"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("bin/run", from.join("link")).unwrap();
        let folder = PluginFolder::open(&from).unwrap();
        let to = place.path().join("to");
        copy(&folder, &to).unwrap();
        assert!(to.join("link").symlink_metadata().unwrap().is_file());
        assert!(!to.join(".git").exists());
        let mode = |path: &str| to.join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("bin/run"), mode(".")), (0o700, 0o700));

        fs::write(place.path().join("secret"), "x").unwrap();
        for target in ["../secret", "missing", "bin"] {
            fs::remove_file(from.join("link")).unwrap();
            symlink(target, from.join("link")).unwrap();
            copy(&folder, &place.path().join(target.trim_matches('.'))).unwrap_err();
        }
    }
}
