//! The folders that file tools stay inside.
//!
//! A path is resolved first, symbolic links and all; where that leads decides. What is then opened is the resolved
//! path, folder by folder from the root and never through a symbolic link (see [`super::open`]), so that a link that
//! is swapped in between leads nowhere.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::error::FileError;
use super::reserved::Reserved;

/// What may be done in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderAccess {
    /// Only reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The working directory of a session, and what else its file tools may touch.
#[derive(Debug, Clone)]
pub struct Workspace {
    folder: PathBuf,
    others: Vec<(PathBuf, FolderAccess)>,
    reserved: Vec<PathBuf>,
}

/// A path inside one of the folders, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    /// The folder that it is inside of.
    pub(crate) root: PathBuf,
    /// Plain names below that folder, no link among those that exist; empty: the folder itself.
    pub(crate) names: Vec<OsString>,
    /// For the model: relative to the working directory, where it is inside.
    pub(crate) shown: String,
    /// The files that are out of reach although they may lie in that folder.
    pub(crate) reserved: Arc<Reserved>,
}

impl Located {
    /// The whole path.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.join(self.names.iter().collect::<PathBuf>())
    }
}

impl Workspace {
    /// Stays inside this folder.
    ///
    /// # Errors
    /// It does not exist, or is no folder.
    pub fn new(folder: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self {
            folder: canonical_folder(folder.as_ref())?,
            others: Vec::new(),
            reserved: Vec::new(),
        })
    }

    /// The same, and this folder too.
    ///
    /// # Errors
    /// It does not exist, or is no folder.
    pub fn allow(mut self, folder: impl AsRef<Path>, access: FolderAccess) -> io::Result<Self> {
        self.others
            .push((canonical_folder(folder.as_ref())?, access));
        Ok(self)
    }

    /// The same without these files and folders, wherever they lie and by whatever name they are reached: file tools
    /// neither read nor change them. What reads only names (`list`, `glob`) shows theirs.
    #[must_use]
    pub fn reserve(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.reserved.extend(paths);
        self
    }

    /// The working directory, resolved.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Resolves a path that the model gave, for `access`.
    pub(crate) fn locate(&self, path: &str, access: FolderAccess) -> Result<Located, FileError> {
        let (resolved, missing) = resolve(&self.folder.join(path), path)?;
        let inside = |(root, allowed): (&Path, FolderAccess)| {
            let below = resolved.strip_prefix(root).ok()?;
            Some((
                root.to_owned(),
                below.iter().map(OsString::from).collect::<Vec<_>>(),
                allowed,
            ))
        };
        let mut folders = std::iter::once((self.folder.as_path(), FolderAccess::ReadWrite))
            .chain(
                self.others
                    .iter()
                    .map(|(root, allowed)| (root.as_path(), *allowed)),
            )
            .filter_map(inside)
            .peekable();
        if folders.peek().is_none() {
            let folder = self.folder.display().to_string();
            return Err(FileError::Outside {
                path: path.to_owned(),
                folder,
            });
        }
        let (root, mut names, _) = folders
            .find(|(_, _, allowed)| {
                access == FolderAccess::Read || *allowed == FolderAccess::ReadWrite
            })
            .ok_or_else(|| FileError::ReadOnly {
                path: path.to_owned(),
            })?;
        names.extend(missing);
        let shown = self.shown(&root.join(names.iter().collect::<PathBuf>()));
        Ok(Located {
            root,
            names,
            shown,
            reserved: Arc::new(Reserved::look_up(&self.reserved)),
        })
    }

    /// A path as the model should write it.
    pub(crate) fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.folder) {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => below.display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }
}

fn canonical_folder(folder: &Path) -> io::Result<PathBuf> {
    let folder = folder.canonicalize()?;
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// The deepest ancestor that exists, resolved, and the names below it that do not.
fn resolve(path: &Path, given: &str) -> Result<(PathBuf, Vec<OsString>), FileError> {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(resolved) => {
                missing.reverse();
                return Ok((resolved, missing));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(FileError::Io {
                    did: "could not resolve",
                    path: given.to_owned(),
                    source,
                });
            }
        }
        // `..` below something that does not exist has no meaning; the system refuses it as well.
        match (existing.components().next_back(), existing.parent()) {
            (Some(Component::Normal(name)), Some(parent)) => {
                missing.push(name.to_owned());
                existing = parent;
            }
            _ => {
                return Err(FileError::NotFound {
                    path: given.to_owned(),
                });
            }
        }
    }
}
