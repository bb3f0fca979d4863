//! The folders that the file tools may use.
//!
//! A path is first resolved, including symbolic links. The resolved path decides whether access is allowed. Then the
//! resolved path is opened, folder by folder from the root and never through a symbolic link (see [`super::open`]). So
//! a link that is created between the two steps is not followed.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::error::FileError;
use super::reserved::ReservedFiles;

/// Folder in which git keeps hooks and settings. Hooks and settings name commands that later git calls run, so a change
/// there would run a command without a permission question. A file with this name is also protected, because it points
/// to such a folder.
const GIT_FOLDER: &str = ".git";

/// Access to a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderAccess {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The working directory of a session, and other folders that its file tools may use.
#[derive(Debug, Clone)]
pub struct Workspace {
    folder: PathBuf,
    others: Vec<(PathBuf, FolderAccess)>,
    reserved: Vec<PathBuf>,
}

/// A resolved path inside one of the folders.
#[derive(Debug, Clone)]
pub(crate) struct LocatedPath {
    /// Allowed folder that contains the path.
    pub(crate) root: PathBuf,
    /// Plain names below `root`. None of the existing files and folders is a link. Empty for the folder itself.
    pub(crate) names: Vec<OsString>,
    /// Path for the model. A path inside the working directory is relative to that directory.
    pub(crate) shown: String,
    /// Files that the tools may not access even in that folder.
    pub(crate) reserved: Arc<ReservedFiles>,
}

impl LocatedPath {
    /// The absolute path.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.join(self.names.iter().collect::<PathBuf>())
    }
}

impl Workspace {
    /// Creates a workspace whose only folder is `folder`.
    ///
    /// # Errors
    /// If the folder does not exist, or is not a folder.
    pub fn new(folder: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self {
            folder: canonical_folder(folder.as_ref())?,
            others: Vec::new(),
            reserved: Vec::new(),
        })
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// If the folder does not exist, or is not a folder.
    pub fn allow(mut self, folder: impl AsRef<Path>, access: FolderAccess) -> io::Result<Self> {
        self.others
            .push((canonical_folder(folder.as_ref())?, access));
        Ok(self)
    }

    /// Excludes these files and folders under every name and link: file tools neither read nor change these files.
    /// Tools that read only names (`list`, `glob`) still show these names.
    #[must_use]
    pub fn reserve(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.reserved.extend(paths);
        self
    }

    /// The resolved working directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Resolves a path from the model, for `access`.
    pub(crate) fn locate(
        &self,
        path: &str,
        access: FolderAccess,
    ) -> Result<LocatedPath, FileError> {
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
        let is_of_git = |name: &OsString| name.eq_ignore_ascii_case(GIT_FOLDER);
        if access == FolderAccess::ReadWrite && names.iter().any(is_of_git) {
            return Err(FileError::OfGit {
                path: path.to_owned(),
            });
        }
        let shown = self.shown(&root.join(names.iter().collect::<PathBuf>()));
        Ok(LocatedPath {
            root,
            names,
            shown,
            reserved: Arc::new(ReservedFiles::look_up(&self.reserved)),
        })
    }

    /// Returns the path in the form that the model should use.
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

/// Resolves the deepest existing ancestor of a path. Returns the ancestor, and the missing names below it.
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
                    action: "could not resolve",
                    path: given.to_owned(),
                    source,
                });
            }
        }
        // `..` below a missing folder has no meaning; the operating system refuses it too.
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
