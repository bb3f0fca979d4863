//! A folder with the files of a plugin or of a marketplace, which come from another person.

use std::path::{Component, Path, PathBuf};

use allstop_core::json_text::has_reserved_key;
use allstop_tools::Workspace;
use serde::de::DeserializeOwned;

/// Maximum size of a file with settings, in bytes. A catalog of a thousand plugins is smaller.
const SETTINGS_BYTES_MAX: usize = 1024 * 1024;

/// Maximum length of a name. The name of a plugin is a part of messages and lists.
const NAME_LEN_MAX: usize = 64;

/// A folder. No read follows a link out of the folder.
#[derive(Debug)]
pub(super) struct PluginFolder {
    /// The path without links.
    pub(super) root: PathBuf,
    workspace: Workspace,
}

impl PluginFolder {
    /// Opens a folder. The error is the reason, for people.
    pub(super) fn open(folder: &Path) -> Result<Self, String> {
        let failed = |error| {
            let folder = folder.display();
            format!("the folder {folder} cannot be read: {error}; name a folder that exists")
        };
        let root = folder.canonicalize().map_err(failed)?;
        let workspace = Workspace::new(&root).map_err(failed)?;
        Ok(Self { root, workspace })
    }

    /// Reads a file with at most `bytes_max` bytes; `None` if it does not exist.
    pub(super) fn read(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
        let read = self.workspace.read_beginning(path, bytes_max + 1);
        let shown = self.root.join(path);
        let read = read.map_err(|error| format!("{}: {}", shown.display(), error.message))?;
        match read {
            Some(file) if file.bytes.len() > bytes_max => Err(format!(
                "{} has {} bytes, expected at most {bytes_max}",
                shown.display(),
                file.len
            )),
            read => Ok(read.map(|file| file.bytes)),
        }
    }

    /// Parses a file with a JSON object; `None` if it does not exist.
    pub(super) fn read_json<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let Some(bytes) = self.read(path, SETTINGS_BYTES_MAX)? else {
            return Ok(None);
        };
        let shown = self.root.join(path);
        let failed = |reason: &str| format!("{} is invalid: {reason}", shown.display());
        // Serde reads an array as the fields of an object in their order.
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        if first != Some(&b'{') || has_reserved_key(&bytes) {
            return Err(failed("it is not a JSON object, or has a reserved key"));
        }
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let parsed = serde_path_to_error::deserialize(&mut json);
        let parsed = parsed.map_err(|error| {
            let path = error.path().to_string();
            failed(&format!("`{path}`: {}", error.inner()))
        })?;
        json.end().map_err(|error| failed(&error.to_string()))?;
        Ok(Some(parsed))
    }

    /// Returns the first of these files that exists, parsed.
    pub(super) fn read_first<T: DeserializeOwned>(
        &self,
        paths: &[&str],
    ) -> Result<Option<T>, String> {
        for path in paths {
            if let Some(found) = self.read_json(path)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the path of a file or folder that a manifest names. `field` is its place in the manifest.
    ///
    /// # Errors
    /// Returns the reason, for people, if the path leads out of the folder.
    pub(super) fn inside(&self, field: &str, path: &str) -> Result<PathBuf, String> {
        let refused = |reason: &str| format!("`{field}` is {path:?}, {reason}");
        let mut found = self.root.clone();
        for part in Path::new(path).components() {
            match part {
                Component::CurDir => {}
                Component::Normal(part) => found.push(part),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(refused(
                        "but must be a path below the folder: leave out `..` and a leading `/`",
                    ));
                }
            }
        }
        match found.canonicalize() {
            Ok(real) if !real.starts_with(&self.root) => Err(refused(
                "which is a link out of the folder: replace the link by the files",
            )),
            Ok(real) => Ok(real),
            Err(error) => Err(refused(&format!("which cannot be read: {error}"))),
        }
    }

    /// Returns the part of a path below this folder.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> Result<&'a str, String> {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let below = below.to_str();
        below.ok_or_else(|| format!("the name of {} is not UTF-8: rename it", path.display()))
    }
}

/// Refuses a name that is unusable in `PLUGIN@MARKETPLACE`, in messages or in paths.
pub(super) fn check_name(field: &str, name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_LEN_MAX && name.bytes().all(fits) {
        return Ok(());
    }
    Err(format!(
        "`{field}` is {name:?}: use 1 to {NAME_LEN_MAX} letters, digits, `-`, `_` and `.` of ASCII, and begin with a \
         letter or digit"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_out_of_the_folder_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("plugin");
        fs::create_dir_all(folder.join("inner")).unwrap();
        symlink(place.path(), folder.join("out")).unwrap();
        symlink("inner", folder.join("in")).unwrap();
        let folder = PluginFolder::open(&folder).unwrap();
        for (path, reason) in [
            ("..", "below the folder"),
            ("inner/../../x", "below the folder"),
            ("/etc", "below the folder"),
            ("out", "link out of"),
            ("missing", "cannot be read"),
        ] {
            let refused = folder.inside("skills", path).unwrap_err();
            assert!(refused.contains(reason), "{path}: {refused}");
        }
        for path in ["./inner", "in", "."] {
            folder.inside("skills", path).unwrap();
        }
    }

    #[test]
    fn names_are_plain() {
        for name in ["a", "A-b_c.d", "0"] {
            check_name("name", name).unwrap();
        }
        let long = "a".repeat(NAME_LEN_MAX + 1);
        for name in ["", ".", "..", "a/b", "a@b", "-a", "a b", "ä", long.as_str()] {
            check_name("name", name).unwrap_err();
        }
    }
}
