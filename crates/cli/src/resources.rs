//! Checks the resources that the process needs to start: threads and file descriptors.
//!
//! The check allocates all of these resources at once and then releases them. A shortage therefore leads to one clear
//! message, and not to the error of the part that fails first. If another process takes the last threads or descriptors
//! after the check, a runtime still panics.

use std::io;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;

use crate::error::CliError;

/// File descriptors for the three runtimes, signals, output and a store, with a reserve for a shell command.
const FILES_MIN: usize = 24;

/// Threads for the runtimes, the writers and the store, with a reserve for tools.
const THREADS_MIN: usize = 12;

/// Stack bytes of a test thread, which only waits. The system may round this size up to its minimum.
const STACK_BYTES: usize = 16 * 1024;

/// Remedy for missing threads.
const THREADS_HINT: &str =
    "raise the limit (ulimit -u, or the tasks of the container), or end other processes";

/// Error for a runtime that panics during its start.
pub(crate) fn exhausted() -> CliError {
    CliError::failure("the system is out of threads or file descriptors").hint(THREADS_HINT)
}

/// Checks that the process can start.
pub(crate) fn check() -> Result<(), CliError> {
    take_files().map_err(|error| {
        CliError::failure(format!("too few file descriptors to start: {error}"))
            .hint("raise the limit: ulimit -n 256")
    })?;
    take_threads().map_err(|error| {
        CliError::failure(format!("too few threads to start: {error}")).hint(THREADS_HINT)
    })
}

/// Checks that `/proc` shows the processes of this process's PID namespace.
///
/// # Errors
/// If it does not. Allstop starts commands through `/proc/self/exe`, and finds their processes in `/proc`, so no call of
/// a command could run or be stopped.
pub(crate) fn check_proc() -> Result<(), CliError> {
    if !cfg!(target_os = "linux") || std::fs::read_link("/proc/self/exe").is_ok() {
        return Ok(());
    }
    Err(
        CliError::failure("/proc is not mounted: without it, no command can be started or stopped")
            .hint("mount it: mount -t proc proc /proc; or start the container with /proc"),
    )
}

fn take_files() -> io::Result<()> {
    let stdin = io::stdin();
    let copies = (0..FILES_MIN).map(|_| rustix::io::fcntl_dupfd_cloexec(&stdin, 0));
    let _all_at_once: Vec<OwnedFd> = copies.collect::<Result<_, _>>()?;
    Ok(())
}

fn take_threads() -> io::Result<()> {
    // Every thread waits for this lock until the last one is started.
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let _closed = gate.lock();
        (0..THREADS_MIN).try_for_each(|_| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, || drop(gate.lock())).map(drop)
        })
    })
}
