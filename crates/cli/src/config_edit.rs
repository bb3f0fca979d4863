//! Edits the user's configuration file. An edit keeps the comments and the order of the file. An edit with an invalid
//! result is never written.

use std::fs::{self, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use allstop_runtime::Config;
use anyhow::Context as _;
use toml_edit::DocumentMut;

use crate::error::CliError;

/// Maximum wait for the change of another command. A change takes milliseconds.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Edits a configuration file, and creates it if it does not exist.
///
/// # Errors
/// If the file is invalid before or after the change, or cannot be written.
pub(crate) fn edit(
    path: &Path,
    change: impl FnOnce(&mut DocumentMut) -> Result<(), CliError>,
) -> Result<(), CliError> {
    // Two commands at once must not lose each other's change. Without locks on the file system, the last change wins.
    let _lock = lock(path);
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("{} cannot be read", path.display()))?,
    };
    Config::parse(path, &text)?;
    let mut document: DocumentMut = text
        .parse()
        .with_context(|| format!("{} cannot be changed", path.display()))?;
    change(&mut document)?;
    write(path, &document.to_string())
}

/// Locks the folder of the file, because another file replaces the file itself. The lock ends when the value is dropped.
fn lock(path: &Path) -> io::Result<fs::File> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    make_private(folder)?;
    let folder = fs::File::open(folder)?;
    let started = Instant::now();
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            // The wait is limited, because a user may hold this lock for longer.
            Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_WAIT_MAX => {
                park_timeout(LOCK_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}

/// Replaces a configuration file atomically: a reader sees either the old file or the new one.
///
/// # Errors
/// If the text is an invalid configuration, or cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    Config::parse(path, text)?;
    let failed = || format!("{} cannot be written", path.display());
    // If the path is a symbolic link, for example into a dotfiles repository, the link stays and its target is
    // replaced.
    let path: PathBuf = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("."));
    make_private(folder).with_context(failed)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = write_new(&path, &new, text);
    if written.is_err() {
        drop(fs::remove_file(&new));
    }
    Ok(written.with_context(failed)?)
}

fn write_new(path: &Path, new: &Path, text: &str) -> io::Result<()> {
    // Only the user may read the file: the headers of an MCP server may contain API keys.
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(text.as_bytes())?;
    if let Ok(before) = fs::metadata(path) {
        file.set_permissions(before.permissions())?;
    }
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn comments_links_and_modes_stay() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("real.toml"), place.path().join("a.toml"));
        fs::write(&file, "# mine\non_stop = 'keep' # why\n").unwrap();
        let mode = fs::metadata(&file).unwrap().mode();
        symlink(&file, &link).unwrap();
        edit(&link, |document| {
            document["limits"]["max_steps"] = toml_edit::value(3);
            Ok(())
        })
        .unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("# mine\non_stop = 'keep' # why\n"),
            "{text}"
        );
        assert!(text.contains("max_steps = 3"), "{text}");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().mode(), mode);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn invalid_file_or_change_is_not_written() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("below/a.toml");
        let nonsense = |document: &mut DocumentMut| {
            document["nonsense"] = toml_edit::value(1);
            Ok(())
        };
        assert_eq!(edit(&file, nonsense).unwrap_err().code(), 2);
        assert!(!file.exists());
        edit(&file, |_| Ok(())).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        fs::write(&file, "[model").unwrap();
        assert!(edit(&file, |_| Ok(())).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "[model");
    }
}
