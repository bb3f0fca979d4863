//! The environment with which a process was started. The environment contains the marker: a unique value for each call
//! (launched command), which all processes of the call inherit.

use std::fs;
use std::io;

use crate::spec::MARKER_VARIABLE;

use super::procfs::stat;

/// Maximum number of checks of a process that is in the middle of an exec. The thread yields after each check. After
/// the last check, the result is unknown. Most execs have completed by then.
const EXEC_YIELDS: u32 = 10;

/// True if a process was started with this variable and this value. False if the process has ended, or if its
/// environment cannot be read. The environment cannot be read if the process belongs to another user or has forbidden
/// such reads (`PR_SET_DUMPABLE`). `None` if the process is in the middle of an exec, and therefore has no environment.
pub(super) fn has_variable(pid: u32, name: &str, value: &str) -> Option<bool> {
    let is_it = |entry: &[u8]| {
        let rest = entry.strip_prefix(name.as_bytes());
        rest.and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
    };
    let mut was_without = false;
    for _ in 0..EXEC_YIELDS {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) if !environment.is_empty() => {
                return Some(environment.split(|byte| *byte == 0).any(is_it));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Some(false),
            Ok(_) | Err(_) => {}
        }
        match stat(pid) {
            Some(now) if now.is_zombie() && !now.is_dead() => {
                let environment = environment_of_threads(pid);
                return Some(environment.split(|byte| *byte == 0).any(is_it));
            }
            Some(now) if now.is_in_exec() => std::thread::yield_now(),
            // The exec may have been in progress when the environment was read, and complete when the state was read.
            // So the environment is read once more.
            Some(_) if !was_without => was_without = true,
            Some(_) | None => return Some(false),
        }
    }
    None
}

/// Environment of a process whose first thread has ended. The environment can still be read through the other threads.
fn environment_of_threads(pid: u32) -> Vec<u8> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads
        .find_map(|thread| {
            fs::read(thread.path().join("environ"))
                .ok()
                .filter(|read| !read.is_empty())
        })
        .unwrap_or_default()
}

/// The marker in the environment of a process. `None` if the process has no marker, or if its environment cannot be
/// read.
pub(super) fn marker_of(pid: u32) -> Option<String> {
    let mut environment = Vec::new();
    for _ in 0..EXEC_YIELDS {
        let read = fs::read(format!("/proc/{pid}/environ"));
        let is_denied =
            matches!(&read, Err(error) if error.kind() == io::ErrorKind::PermissionDenied);
        environment = read.unwrap_or_default();
        match stat(pid) {
            _ if !environment.is_empty() => break,
            Some(now) if now.is_zombie() => {
                environment = environment_of_threads(pid);
                break;
            }
            Some(now) if now.is_in_exec() => std::thread::yield_now(),
            Some(_) if !is_denied => {}
            Some(_) | None => return None,
        }
    }
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry
            .strip_prefix(MARKER_VARIABLE.as_bytes())?
            .strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_variable_is_known_unless_the_read_fails() {
        let pid = std::process::id();
        #[expect(clippy::disallowed_methods, reason = "any variable will do")]
        let (name, value) = std::env::vars()
            .find(|(name, value)| !name.is_empty() && !value.is_empty())
            .expect("a variable");
        assert_eq!(has_variable(pid, &name, &value), Some(true));
        assert_eq!(has_variable(pid, &name, "another"), Some(false));
        let mut without = std::process::Command::new("sleep");
        let mut without = without.arg("60").env_clear().spawn().expect("it starts");
        // The result is unknown during the exec of the process.
        let told = (0..1_000_000).find_map(|_| has_variable(without.id(), &name, &value));
        without.kill().expect("it is ended");
        without.wait().expect("it is reaped");
        assert_eq!(told, Some(false));
        assert_eq!(has_variable(without.id(), &name, &value), Some(false));
    }

    #[test]
    fn threads_have_the_environment_of_their_process() {
        let own = fs::read("/proc/self/environ").expect("this process has one");
        assert_eq!(environment_of_threads(std::process::id()), own);
        assert!(environment_of_threads(u32::MAX).is_empty());
    }
    /// Regression: the marker of a process whose first thread has ended was not found.
    #[test]
    fn marker_is_read_after_the_end_of_the_first_thread() {
        const PROGRAM: &str = "import ctypes, threading, time\n\
                               threading.Thread(target=time.sleep, args=(60,)).start()\n\
                               ctypes.CDLL(None).pthread_exit(None)";
        let mut process = std::process::Command::new("python3");
        process.args(["-c", PROGRAM]).env(MARKER_VARIABLE, "s.1");
        let mut process = process.spawn().expect("it starts");
        let pid = process.id();
        let begin = std::time::Instant::now();
        while stat(pid).is_some_and(|now| !now.is_zombie()) && begin.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        let (now, marker) = (stat(pid), marker_of(pid));
        process.kill().expect("it is ended");
        process.wait().expect("it is reaped");
        assert!(now.is_some_and(|now| now.is_zombie() && !now.is_dead()));
        assert_eq!(marker.as_deref(), Some("s.1"));
    }
}
