//! Stored trust decisions about the files of projects, by path and content: about the configuration, and about the
//! definitions of commands, skills and agents.
//!
//! Each answer is a small file in the data folder. The name of this answer file is a hash of the path and the content
//! of the project's files. If a file changes, its subject therefore has no answer. A copy in another folder has no answer
//! either, because a command such as `./check.sh` runs a different file there. Each path has at most one stored answer.
//! If the content changes back to an earlier version, the user is therefore asked again.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use allstop_runtime::config::{McpJsonFile, ProjectFile};
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

/// Limit for reading an answer, in bytes: an answer is a word and a path.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Subject of an answer: files of a project that a person trusts or refuses together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustSubject {
    /// Path that stands for the files.
    pub(crate) path: PathBuf,
    /// All bytes that have an effect.
    pub(crate) content: Vec<u8>,
}

impl From<&ProjectFile> for TrustSubject {
    fn from(file: &ProjectFile) -> Self {
        Self {
            path: file.path.clone(),
            content: file.text.clone().into(),
        }
    }
}

impl From<&McpJsonFile> for TrustSubject {
    fn from(file: &McpJsonFile) -> Self {
        Self {
            path: file.path.clone(),
            content: file.text.clone().into(),
        }
    }
}

/// A user's answer about one version of a project's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrustAnswer {
    Trusted,
    Refused,
}

/// Stored answers.
#[derive(Debug, Clone)]
pub(crate) struct TrustStore {
    folder: PathBuf,
}

impl TrustStore {
    /// Uses this folder for the answers. The folder may not exist yet.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Folder of the answers.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The stored answer about this version of the files; `None` if the user has to be asked.
    pub(crate) fn answer(&self, subject: &TrustSubject) -> Option<TrustAnswer> {
        let text = read_answer(&self.path(subject)).ok()?;
        match text.split(|byte| *byte == b'\n').next()? {
            b"trusted" if text.len() > b"trusted".len() => Some(TrustAnswer::Trusted),
            b"refused" if text.len() > b"refused".len() => Some(TrustAnswer::Refused),
            _ => None,
        }
    }

    /// Stores an answer, and removes earlier answers about the path.
    ///
    /// # Errors
    /// If the answer cannot be written, or an earlier answer cannot be removed.
    pub(crate) fn remember(&self, subject: &TrustSubject, answer: TrustAnswer) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        self.forget(&subject.path)?;
        let word = match answer {
            TrustAnswer::Trusted => "trusted",
            TrustAnswer::Refused => "refused",
        };
        let mut text = Vec::from(format!("{word}\n"));
        text.extend(subject.path.as_os_str().as_bytes());
        // A single short write stores the answer. A reader therefore sees the whole answer or an empty file, and an
        // empty file is no answer.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path(subject))?
            .write_all(&text)
    }

    /// Removes all answers about a path, and returns the number of removed answers. Other files stay unchanged.
    ///
    /// # Errors
    /// If the folder cannot be read, or an answer cannot be removed.
    pub(crate) fn forget(&self, path: &Path) -> io::Result<usize> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut forgotten = 0;
        for entry in entries {
            let answer = entry?.path();
            let Ok(text) = read_answer(&answer) else {
                continue;
            };
            let about = text.splitn(2, |byte| *byte == b'\n').nth(1);
            if about == Some(path.as_os_str().as_bytes()) {
                fs::remove_file(&answer)?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    fn path(&self, subject: &TrustSubject) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(subject.path.as_os_str().as_bytes());
        hash.update([0]);
        hash.update(&subject.content);
        let mut name = String::with_capacity(64);
        for byte in hash.finalize() {
            name.extend(
                [byte >> 4, byte & 15]
                    .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
            );
        }
        self.folder.join(name)
    }
}

/// Reads an answer file. Accepts only a regular file: does not follow a symbolic link, and does not wait for a named
/// pipe.
fn read_answer(path: &Path) -> io::Result<Vec<u8>> {
    let no_wait = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let flags = i32::try_from(no_wait.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    file.take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use allstop_runtime::config::ProjectFileSearch;

    use super::*;

    fn file(folder: &Path, text: &str) -> TrustSubject {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(".allstop.toml"), text).unwrap();
        match ProjectFile::find(folder) {
            Ok(ProjectFileSearch::Found(file)) => (&*file).into(),
            other => panic!("the file is valid: {other:?}"),
        }
    }

    #[test]
    fn answer_is_about_one_content_in_one_folder() {
        let place = tempfile::tempdir().unwrap();
        let store = TrustStore::new(place.path().join("state/trusted"));
        let here = file(&place.path().join("here"), "on_stop = 'keep'");
        assert_eq!(store.answer(&here), None);
        store.remember(&here, TrustAnswer::Refused).unwrap();
        store.remember(&here, TrustAnswer::Trusted).unwrap();
        assert_eq!(store.answer(&here), Some(TrustAnswer::Trusted));
        let copy = file(&place.path().join("there"), "on_stop = 'keep'");
        assert_eq!(store.answer(&copy), None);
        let changed = file(&place.path().join("here"), "on_stop = 'keep' ");
        assert_eq!(store.answer(&changed), None);
        store.remember(&changed, TrustAnswer::Refused).unwrap();
        assert_eq!(store.answer(&changed), Some(TrustAnswer::Refused));
        let mode = fs::metadata(store.path(&changed)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);

        store.remember(&copy, TrustAnswer::Trusted).unwrap();
        assert_eq!(store.answer(&here), None, "it is asked about again");
        assert_eq!(store.forget(&here.path).unwrap(), 1);
        assert_eq!(store.answer(&changed), None);
        assert_eq!(store.answer(&copy), Some(TrustAnswer::Trusted));
    }

    #[test]
    fn damaged_answer_is_no_answer() {
        let place = tempfile::tempdir().unwrap();
        let store = TrustStore::new(place.path().join("trusted"));
        let file = file(place.path(), "on_stop = 'keep'");
        store.remember(&file, TrustAnswer::Trusted).unwrap();
        for text in ["", "trusted", "trustedx\n"] {
            fs::write(store.path(&file), text).unwrap();
            assert_eq!(store.answer(&file), None, "{text:?}");
        }
    }

    /// Regression: a named pipe among the answer files blocked the read, and a folder prevented the removal of other
    /// answers.
    #[test]
    fn invalid_answer_files_are_ignored() {
        let place = tempfile::tempdir().unwrap();
        let store = TrustStore::new(place.path().join("trusted"));
        let here = file(&place.path().join("here"), "on_stop = 'keep'");
        let there = file(&place.path().join("there"), "on_stop = 'keep'");
        store.remember(&here, TrustAnswer::Trusted).unwrap();
        fs::create_dir(store.folder().join("0")).unwrap();
        let pipe = store.path(&there);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        assert_eq!(store.answer(&there), None);
        assert_eq!(store.forget(&here.path).unwrap(), 1);
        assert_eq!(store.answer(&here), None);
    }
}
