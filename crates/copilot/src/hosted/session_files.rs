//! Files of a session: its plan, the files of its workspace, and a copy of its events. They are in a folder of the server, or
//! the program that has opened the session stores them. The log of the session always stays in the store, which confirms each
//! write.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::fs;

/// Name of the plan.
pub(crate) const PLAN: &str = "plan.md";

/// Folder of the workspace.
pub(crate) const WORKSPACE_FILES: &str = "files";

/// Maximum number of files in a list. A workspace holds notes of one session, not a project.
const FILES_MAX: usize = 10_000;

/// Maximum size of a file in bytes, because a file travels in one message.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Files of one session. The names are relative paths with `/`.
pub(crate) trait SessionFileStore: fmt::Debug + Send + Sync {
    /// Returns the path of a file for programs.
    fn path_of(&self, name: &str) -> String;

    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read, is too long, or is no text.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<String>>>;

    /// Creates or replaces a file, with its folders.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn write<'a>(
        &'a self,
        name: &'a str,
        content: &'a str,
    ) -> BoxFuture<'a, io::Result<StoredFileChange>>;

    /// Appends to a file, and creates it if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn append<'a>(&'a self, name: &'a str, content: &'a str) -> BoxFuture<'a, io::Result<()>>;

    /// Removes a file. Returns false if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be removed.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<bool>>;

    /// Returns the names of all files in a folder and below, relative to the folder, in their order.
    ///
    /// # Errors
    /// If a folder cannot be read, or has too many files.
    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>>;
}

/// Change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredFileChange {
    Created,
    Updated,
}

impl StoredFileChange {
    /// Name in the events of the protocol.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "create",
            Self::Updated => "update",
        }
    }

    pub(super) fn of(existed: bool) -> Self {
        if existed {
            Self::Updated
        } else {
            Self::Created
        }
    }
}

/// Files in a folder of the server.
#[derive(Debug)]
pub(crate) struct FolderFiles(PathBuf);

impl FolderFiles {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }
}

async fn folder_of(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) => fs::create_dir_all(folder).await,
        None => Ok(()),
    }
}

/// Returns `None` instead of the error that a file does not exist.
pub(super) fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

async fn read_text(file: &Path) -> io::Result<String> {
    let bytes = fs::metadata(file).await?.len();
    if bytes > FILE_BYTES_MAX {
        let message = format!("it has {bytes} bytes, and the limit is {FILE_BYTES_MAX}");
        return Err(io::Error::other(message));
    }
    fs::read_to_string(file).await
}

async fn list_folder(folder: &Path) -> io::Result<Vec<String>> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(next) = folders.pop() {
        let Some(mut entries) = if_found(fs::read_dir(&next).await)? else {
            continue;
        };
        while let Some(entry) = entries.next_entry().await? {
            check_count(files.len() + folders.len())?;
            let (path, kind) = (entry.path(), entry.file_type().await?);
            if kind.is_dir() {
                folders.push(path);
            } else if let Ok(path) = path.strip_prefix(folder) {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Replaces a file atomically: after a crash or on a full disk, the file has the old content or the new one. `folder` is on
/// the file system of the file, and contains the new file until it is whole.
async fn replace(folder: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{}.new", ulid::Ulid::generate()));
    let written = async {
        fs::write(&new, content).await?;
        fs::rename(&new, file).await
    };
    let written = written.await;
    if written.is_err() {
        drop(fs::remove_file(&new).await);
    }
    written
}

pub(super) fn check_count(count: usize) -> io::Result<()> {
    if count < FILES_MAX {
        return Ok(());
    }
    Err(io::Error::other(format!("more than {FILES_MAX} files")))
}

impl SessionFileStore for FolderFiles {
    fn path_of(&self, name: &str) -> String {
        let path = if name.is_empty() {
            self.0.clone()
        } else {
            self.0.join(name)
        };
        path.to_string_lossy().into_owned()
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<String>>> {
        async move { if_found(read_text(&self.0.join(name)).await) }.boxed()
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        content: &'a str,
    ) -> BoxFuture<'a, io::Result<StoredFileChange>> {
        async move {
            let file = self.0.join(name);
            let existed = fs::try_exists(&file).await?;
            folder_of(&file).await?;
            replace(&self.0, &file, content.as_bytes()).await?;
            Ok(StoredFileChange::of(existed))
        }
        .boxed()
    }

    fn append<'a>(&'a self, name: &'a str, content: &'a str) -> BoxFuture<'a, io::Result<()>> {
        async move {
            use tokio::io::AsyncWriteExt as _;
            let file = self.0.join(name);
            folder_of(&file).await?;
            let mut options = fs::OpenOptions::new();
            let mut file = options.append(true).create(true).open(file).await?;
            file.write_all(content.as_bytes()).await?;
            file.flush().await
        }
        .boxed()
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<bool>> {
        async move {
            let removed = if_found(fs::remove_file(self.0.join(name)).await)?;
            Ok(removed.is_some())
        }
        .boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>> {
        async move { list_folder(&self.0.join(folder)).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[tokio::test]
    async fn reader_of_the_old_plan_keeps_it_whole() {
        let place = tempfile::tempdir().expect("a folder");
        let files = FolderFiles::new(place.path().to_owned());
        files.write(PLAN, "the old plan").await.expect("written");
        let mut old = std::fs::File::open(place.path().join(PLAN)).expect("a file");
        files.write(PLAN, "new").await.expect("written");
        let mut text = String::new();
        old.read_to_string(&mut text).expect("text");
        assert_eq!(text, "the old plan");
        // A folder cannot be replaced by a file, and nothing is left of the attempt.
        std::fs::create_dir(place.path().join("files")).expect("a folder");
        files.write("files", "x").await.expect_err("a folder");
        let names = std::fs::read_dir(place.path()).expect("a folder");
        assert_eq!(names.count(), 2);
    }
}
