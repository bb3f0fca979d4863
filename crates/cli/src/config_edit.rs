//! Edits the user's configuration file. An edit keeps the comments and the order of the file. An edit with an invalid
//! result is never written.

use std::fs;
use std::io;
use std::path::Path;

use allstop_host::{FolderLock, replace_file};
use allstop_runtime::Config;
use anyhow::Context as _;
use toml_edit::DocumentMut;

use crate::error::CliError;

/// Edits a configuration file, and creates it if it does not exist.
///
/// # Errors
/// If the file is invalid before or after the change, or cannot be written.
pub(crate) fn edit(
    path: &Path,
    change: impl FnOnce(&mut DocumentMut) -> Result<(), CliError>,
) -> Result<(), CliError> {
    // Two commands at once must not lose each other's change. Without locks on the file system, the last change wins.
    let _lock = FolderLock::of_file(path);
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

/// Replaces a configuration file atomically: a reader sees either the old file or the new one.
///
/// # Errors
/// If the text is an invalid configuration, or cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    Config::parse(path, text)?;
    let written = replace_file(path, text);
    Ok(written.with_context(|| format!("{} cannot be written", path.display()))?)
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
