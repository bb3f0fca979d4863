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

/// Descriptors of a server without tasks, connections and sessions: the store, the listeners, the runtimes, the MCP
/// servers and the idle keepers of commands. An idle server has 29. The rest is for short needs, such as the start of a
/// command.
const OF_SERVER: usize = 64;

/// Descriptors of a running task without its session and its commands: the connection to the model, and the file that a
/// tool reads or writes.
const OF_TASK: usize = 4;

/// Descriptors of a running command of a tool or a hook: the pipe of its output, the file of its output, the socket of
/// its keeper, and the descriptor of the keeper's process.
const OF_COMMAND: usize = 4;

/// Maximum number of connections of a server's clients.
pub(crate) fn connections_max(default: usize) -> usize {
    default.min(quarter())
}

/// Maximum number of tasks that a server with these defaults runs at the same time. Without this limit, tasks would fail
/// in the middle for lack of descriptors.
pub(crate) fn running_tasks_max(sessions_default: usize, connections_default: usize) -> usize {
    let others = sessions_open_max(sessions_default) + connections_max(connections_default);
    (for_work(others) / 2 / OF_TASK).max(1)
}

/// Maximum number of commands that this process runs at the same time. A task can have any number of commands, so the
/// commands of all tasks share this limit. A command beyond the limit waits until another one has ended.
pub(crate) fn commands_max() -> usize {
    (for_work(2 * quarter()) / 2 / OF_COMMAND).max(1)
}

/// Maximum number of sessions that a server keeps open. An open session holds the descriptor of its lock. The running
/// tasks, their commands and the connections need the other descriptors.
pub(crate) fn sessions_open_max(default: usize) -> usize {
    default.min(quarter())
}

/// Descriptors of the tasks and of the commands, if these others are taken. Each of the two gets half.
fn for_work(others: usize) -> usize {
    current().saturating_sub(OF_SERVER + others)
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
