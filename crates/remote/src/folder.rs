//! The folder of a user's sockets. Only that user can access the folder.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use allstop_core::process::ProcessIdentity;
use allstop_process::this_process;

/// Suffix of a socket's file name. The number of the process precedes the suffix.
const SUFFIX: &str = ".sock";

/// A pid, and the PID namespace in which the pid is valid. Containers may share the socket folder, and the same pid may
/// then exist in several of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessNumber {
    /// Pid of the process, in its PID namespace.
    pub pid: u32,
    namespace: Option<u64>,
}

impl ProcessNumber {
    /// Number of the process with this identity.
    pub fn of(process: &ProcessIdentity) -> Self {
        Self {
            pid: process.pid,
            namespace: process.pid_namespace,
        }
    }

    /// File name of the process's socket.
    fn socket(self) -> String {
        let namespace = self.namespace.map_or(String::new(), |id| format!("-{id}"));
        format!("{}{namespace}{SUFFIX}", self.pid)
    }

    fn of_socket(path: &Path) -> Option<Self> {
        let number = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
        let (pid, namespace) = match number.split_once('-') {
            Some((pid, namespace)) => (pid, Some(namespace.parse().ok()?)),
            None => (number, None),
        };
        let pid = pid.parse().ok()?;
        Some(Self { pid, namespace })
    }
}

/// Folder of a user's sockets. The folder may not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFolder(PathBuf);

impl SocketFolder {
    /// The folder of this user: `allstop` in `runtime_folder`, the value of `XDG_RUNTIME_DIR`, if this value is an
    /// absolute path. Otherwise a folder in `/run/user` or `/tmp`.
    pub fn of_user(runtime_folder: Option<PathBuf>) -> Self {
        if let Some(named) = runtime_folder.filter(|path| path.is_absolute()) {
            return Self(named.join("allstop"));
        }
        let user = rustix::process::geteuid().as_raw();
        let of_user = PathBuf::from(format!("/run/user/{user}"));
        Self(if of_user.is_dir() {
            of_user.join("allstop")
        } else {
            PathBuf::from(format!("/tmp/allstop-{user}"))
        })
    }

    /// Returns the path of the folder, and creates the folder if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be created, or other users can access it.
    pub fn make(&self) -> io::Result<&Path> {
        let folder = &*self.0;
        if let Err(error) = DirBuilder::new().mode(0o700).create(folder)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            let said = format!("the folder {} cannot be created: {error}", folder.display());
            return Err(io::Error::new(error.kind(), said));
        }
        check(folder)?;
        Ok(folder)
    }

    /// Path for the socket of this process, in a folder that only this user can access.
    ///
    /// # Errors
    /// If the folder cannot be created, belongs to another user, or is accessible to other users.
    pub(crate) fn own_socket(&self) -> io::Result<PathBuf> {
        Ok(self
            .make()?
            .join(ProcessNumber::of(this_process()).socket()))
    }

    /// Sockets of this user's processes, with the process numbers. Empty if the folder does not exist.
    ///
    /// # Errors
    /// If the folder exists but cannot be read, or other users can access it.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(ProcessNumber, PathBuf)>> {
        match check(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            checked => checked?,
        }
        let mut sockets = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let path = entry?.path();
            sockets.extend(ProcessNumber::of_socket(&path).map(|number| (number, path)));
        }
        sockets.sort();
        Ok(sockets)
    }
}

/// Checks that the folder belongs to this user alone. Otherwise another user could own a folder in `/tmp` and receive
/// all requests for stops.
fn check(folder: &Path) -> io::Result<()> {
    // Checks a symbolic link itself, not its target.
    let found: Metadata = std::fs::symlink_metadata(folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    let others = found.mode() & 0o077;
    if found.is_dir() && is_own && others == 0 {
        return Ok(());
    }
    let message = format!(
        "{} is not a folder that only you can use: remove it, or set the environment variable XDG_RUNTIME_DIR to another one",
        folder.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}
