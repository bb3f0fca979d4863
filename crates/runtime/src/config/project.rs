//! The configuration file of a project, `.allstop.toml` in the working directory.
//!
//! The file has the format of the user's file, but comes with the code and therefore from another author. This module
//! reads the file, up to a size limit. The file has no effect until the caller passes it to
//! [`Config::load_with_project`]; the binary asks a person first.
//!
//! Only the working directory can have a project file, because commands in the file run in the working directory. If
//! the file also applied in a subfolder, a command such as `./check.sh` would run a different script there. The person
//! who trusted the configuration has not reviewed that script.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use allstop_tools::Workspace;
use toml::Table;

use super::{Config, ConfigError};

/// Name of the file.
const NAME: &str = ".allstop.toml";
/// Maximum size of the file, in bytes: hundreds of times the usual size, and small enough to show to a person.
const BYTES_MAX: usize = 64 * 1024;
/// Remedy for a file that cannot be used.
pub(super) const HINT: &str = "correct the file, or leave it out: --project-config ignore";

/// Configuration file of a project. The file has no effect by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Content. The program uses exactly the bytes that a person trusts.
    pub text: String,
    /// Settings, with absolute paths.
    pub config: Config,
    /// Keys that the file sets.
    keys: Table,
}

/// Result of the search for a project's file.
#[derive(Debug, Clone, PartialEq)]
pub enum ProjectFileSearch<F = ProjectFile> {
    /// The file does not exist.
    Absent,
    /// The file belongs to another user, with this id, and is not read.
    ForeignOwner(PathBuf, u32),
    /// The file is valid.
    Found(Box<F>),
}

impl ProjectFile {
    /// Path of the file in a working directory, whether the file exists or not.
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// Searches for the file in a working directory. May wait for a slow disk, but never for a file of a special type,
    /// such as a named pipe.
    ///
    /// # Errors
    /// Returns an error if the file cannot be used: not a regular file, a link out of the folder, too long, or invalid.
    pub fn find(folder: &Path) -> Result<ProjectFileSearch, ConfigError> {
        let ProjectText { path, text } = match ProjectText::find(folder, NAME)? {
            ProjectFileSearch::Absent => return Ok(ProjectFileSearch::Absent),
            ProjectFileSearch::ForeignOwner(path, user) => {
                return Ok(ProjectFileSearch::ForeignOwner(path, user));
            }
            ProjectFileSearch::Found(read) => *read,
        };
        let unusable = |message: String| ConfigError::of_file(&path, message, HINT);
        let mut config = Config::parse(&path, &text).map_err(|error| ConfigError {
            hint: format!("{}; {HINT}", error.hint),
            ..error
        })?;
        config.resolve(folder);
        let keys = text
            .parse()
            .map_err(|error: toml::de::Error| unusable(error.to_string()))?;
        Ok(ProjectFileSearch::Found(Box::new(Self {
            path,
            text,
            config,
            keys,
        })))
    }

    /// True if the file sets this key, such as `["model", "name"]`.
    pub fn sets(&self, key: &[&str]) -> bool {
        let Some((last, tables)) = key.split_last() else {
            return false;
        };
        let mut tables = tables.iter();
        let table = tables.try_fold(&self.keys, |table, name| table.get(*name)?.as_table());
        table.is_some_and(|table| table.contains_key(*last))
    }

    /// The keys that the file sets, as `section.key` or `key`.
    pub fn keys(&self) -> Vec<String> {
        let in_section = |(section, value): (&String, &toml::Value)| match value.as_table() {
            Some(table) => table.keys().map(|key| format!("{section}.{key}")).collect(),
            None => vec![section.clone()],
        };
        self.keys.iter().flat_map(in_section).collect()
    }

    /// The keys that the file sets, as tables.
    pub(super) fn tables(&self) -> &Table {
        &self.keys
    }
}

/// Content of a project's file that is not parsed yet.
pub(super) struct ProjectText {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl ProjectText {
    /// Reads the file with this name in a working directory.
    pub(super) fn find(folder: &Path, name: &str) -> Result<ProjectFileSearch<Self>, ConfigError> {
        let path = folder.join(name);
        let own = rustix::process::geteuid().as_raw();
        // If the path is a link, this reads the metadata of the link itself, because the owner of a link has chosen its
        // target.
        let Ok(found) = path.symlink_metadata() else {
            return Ok(ProjectFileSearch::Absent);
        };
        if found.uid() != own {
            return Ok(ProjectFileSearch::ForeignOwner(path, found.uid()));
        }
        let unusable = |message: String| ConfigError::of_file(&path, message, HINT);
        let workspace = Workspace::new(folder).map_err(|error| unusable(error.to_string()))?;
        let read = workspace.read_beginning(name, BYTES_MAX + 1);
        let Some(read) = read.map_err(|error| unusable(error.message))? else {
            return Ok(ProjectFileSearch::Absent);
        };
        if read.owner != own {
            return Ok(ProjectFileSearch::ForeignOwner(path, read.owner));
        }
        if read.bytes.len() > BYTES_MAX {
            return Err(unusable(format!(
                "has {} bytes, expected at most {BYTES_MAX}",
                read.len
            )));
        }
        let text = String::from_utf8(read.bytes)
            .map_err(|error| unusable(format!("invalid UTF-8, expected text: {error}")))?;
        Ok(ProjectFileSearch::Found(Box::new(Self { path, text })))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns the error of a file that cannot be used.
    #[track_caller]
    fn error(folder: &Path) -> String {
        let error = ProjectFile::find(folder).expect_err("the file cannot be used");
        assert!(error.hint.contains("--project-config ignore"), "{error:?}");
        error.to_string()
    }

    #[test]
    fn folder_without_a_file_has_none() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(
            ProjectFile::find(place.path()),
            Ok(ProjectFileSearch::Absent)
        );
    }

    #[test]
    fn paths_start_at_the_folder_and_keys_are_those_of_the_file() {
        let place = tempfile::tempdir().unwrap();
        let text = "system_prompt_file = 'p.md'\n[model]\nname = 'script:s.yaml'\n[workspace]\nread = ['doc']";
        fs::write(place.path().join(NAME), text).unwrap();
        let Ok(ProjectFileSearch::Found(file)) = ProjectFile::find(place.path()) else {
            panic!("the file is valid");
        };
        let script = format!("script:{}", place.path().join("s.yaml").display());
        assert_eq!(file.config.model.name, Some(script));
        assert_eq!(file.config.workspace.read, [place.path().join("doc")]);
        assert_eq!(
            file.keys(),
            ["model.name", "system_prompt_file", "workspace.read"]
        );
        assert!(file.sets(&["model", "name"]) && file.sets(&["system_prompt_file"]));
        assert!(!file.sets(&["model", "base_url"]) && !file.sets(&["limits", "max_steps"]));
    }

    #[test]
    fn unusable_file_is_an_error_and_never_a_wait() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(NAME);
        fs::write(&file, "[model]\nnonsense = 1").unwrap();
        assert!(error(place.path()).contains(":2:1: unknown field `nonsense`"));
        fs::write(&file, b"\xff\xfe").unwrap();
        assert!(error(place.path()).contains("invalid UTF-8"));
        fs::File::create(&file)
            .and_then(|file| file.set_len(100 << 20))
            .unwrap();
        assert!(error(place.path()).contains("has 104857600 bytes, expected at most 65536"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(error(place.path()).contains("is a folder"));
        fs::remove_dir(&file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(error(place.path()).contains("is a named pipe"));
        fs::remove_file(&file).unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink(outside.path(), &file).unwrap();
        assert!(error(place.path()).contains("outside the working directory"));
    }
}
