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

/// Descriptors of a server without tasks, connections and sessions: the store, the listeners, the runtime and the MCP
/// servers.
const OF_SERVER: usize = 64;

/// Descriptors of a running task: its session, the connection to the model, and a command with its pipes and its keeper.
const OF_TASK: usize = 8;

/// Maximum number of connections of a server's clients.
pub(crate) fn connections_max(default: usize) -> usize {
    default.min(quarter())
}

/// Maximum number of tasks that a server with these defaults runs at the same time. Without this limit, tasks would fail
/// in the middle for lack of descriptors.
pub(crate) fn running_tasks_max(sessions_default: usize, connections_default: usize) -> usize {
    let others =
        OF_SERVER + sessions_open_max(sessions_default) + connections_max(connections_default);
    (current().saturating_sub(others) / OF_TASK).max(1)
}

/// Maximum number of sessions that a server keeps open. An open session holds the descriptor of its lock. The running
/// tasks, their commands and the connections need the other descriptors.
pub(crate) fn sessions_open_max(default: usize) -> usize {
    default.min(quarter())
}

fn quarter() -> usize {
    current() / 4
}

/// The soft limit.
fn current() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current
        .and_then(|current| usize::try_from(current).ok())
        .unwrap_or(usize::MAX)
}
