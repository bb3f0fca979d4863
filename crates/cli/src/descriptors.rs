//! The limit of file descriptors of this process. A server needs more of them than an interactive program, and most
//! systems permit more than their default.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that this process asks for. A server with thousands of connections and sessions uses fewer.
const WANTED: u64 = 65_536;

/// Raises the soft limit of this process as far as the hard limit permits. Returns the soft limit before: commands that
/// the model runs get that limit, because old programs are slow or fail with a high limit.
pub(crate) fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let before = limit.current?;
    let current = WANTED.min(limit.maximum.unwrap_or(u64::MAX));
    if current > before {
        set(current);
    }
    Some(before)
}

/// Sets the soft limit. If the system refuses, the limit stays as it is.
pub(crate) fn set(current: u64) {
    let limit = Rlimit {
        current: Some(current),
        ..getrlimit(Resource::Nofile)
    };
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of file descriptors cannot be changed");
    }
}

/// Maximum number of sessions that a server keeps open. An open session holds the descriptor of its lock. The running
/// tasks, their commands and the connections need the other descriptors.
pub(crate) fn sessions_open_max(default: usize) -> usize {
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(current / 4).map_or(default, |part| part.min(default))
}
