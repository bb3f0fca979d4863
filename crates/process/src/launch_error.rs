//! Errors of a launch.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Failure to start a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The program is missing, or cannot be executed.
    #[error("cannot start {program:?}")]
    Program {
        /// The requested program.
        program: OsString,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The working directory is missing, or is not a directory.
    #[error("cannot start in the directory {}", cwd.display())]
    Directory {
        /// The requested directory.
        cwd: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The keeper's program did not start.
    #[error("cannot start the keeper {}", executable.display())]
    Keeper {
        /// The configured path of the keeper's program.
        executable: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The keeper ended before it reported the start of the command. The command may have run.
    #[error("the keeper ended before it reported the start of the command, which may have run")]
    KeeperLost,
    /// The limit of commands is reached. The command may start after another one has ended.
    #[error(
        "{max} commands run, which is the maximum with this limit of open files: raise it (`ulimit -n`), or stop a command"
    )]
    TooManyCommands {
        /// The maximum number of commands at the same time.
        max: usize,
    },
    /// The system refused a pipe, a socket or a descriptor.
    #[error("cannot set up the {what} of a process")]
    Setup {
        /// Name of the missing resource.
        what: &'static str,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

impl LaunchError {
    pub(crate) fn setup(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Setup { what, source }
    }
}
