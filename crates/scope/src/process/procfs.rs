//! What `/proc` says of processes, and signals that cannot hit the wrong one.

use std::fs;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;

use rustix::fs::{Mode, OFlags, RawDir, open};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::identity::raw_pid;

/// The fields of `/proc/PID/stat` that containment needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: u32,
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) threads: u32,
    pub(super) start_ticks: u64,
    pub(super) is_kernel: bool,
    /// Where its environment ends in its memory. 0 for whoever has none *yet*: that is set late in an exec.
    pub(super) environment_end: u64,
}

/// A flag of the kernel's own threads in field 9, `PF_KTHREAD` in its `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl Stat {
    /// Whether nothing of it runs: a zombie whose main thread alone has ended still counts as running.
    pub(super) fn is_dead(&self) -> bool {
        self.is_zombie() && self.threads <= 1
    }

    fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether it has given up its old program and has not begun the new one. A process whose
    /// memory may not be looked at shows the same, and so does one that is about to end.
    fn is_in_exec(&self) -> bool {
        self.environment_end == 0 && !self.is_kernel && !self.is_dead()
    }

    /// Whether it is stopped (SIGSTOP, SIGTTIN, a debugger), so that it hears SIGTERM only after SIGCONT.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// One process; `None` if there is none with this pid.
pub(super) fn stat(pid: u32) -> Option<Stat> {
    // The longest line seen is about 350 bytes: the kernel prints 52 numbers and a name of at most 64 bytes.
    let mut buffer = [0_u8; 2048];
    let mut file = fs::File::open(format!("/proc/{pid}/stat")).ok()?;
    let mut len = 0;
    loop {
        match file.read(buffer.get_mut(len..)?) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None, // it ended between open and read
        }
    }
    parse_stat(buffer.get(..len)?)
}

/// The name, field 2, may hold spaces and brackets, so counting starts after its last bracket.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(line);
    let pid = text.split_ascii_whitespace().next()?.parse().ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    Some(Stat {
        pid,
        state: *fields.next()?.as_bytes().first()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        session: fields.next()?.parse().ok()?,
        is_kernel: fields.nth(2)?.parse::<u64>().ok()? & KERNEL_THREAD != 0,
        threads: fields.nth(10)?.parse().ok()?,
        start_ticks: fields.nth(1)?.parse().ok()?,
        environment_end: fields.nth(28)?.parse().ok()?,
    })
}

/// Every process of the machine that is visible from here, by its number; `false`: not all could be listed.
///
/// `/proc` is listed in the order of the numbers, and each process is visited before those after it are listed. So one that
/// has ended before its turn comes hides no child: that has a higher number, and is listed later, unless the numbers began
/// anew in between.
pub(super) fn visit_processes(mut visit: impl FnMut(Stat)) -> bool {
    // Room for the longest name in `/proc` that is none of a process, and for two that are.
    let mut buffer = [MaybeUninit::uninit(); 64];
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = open("/proc", flags, Mode::empty()) else {
        return false;
    };
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else {
            return false;
        };
        let pid = entry.file_name().to_str().map(str::parse);
        if let Ok(Ok(pid)) = pid
            && let Some(stat) = stat(pid)
        {
            visit(stat);
        }
    }
    true
}

/// How often a process in the middle of an exec is let go on and asked again, at once: most are through it by then.
const EXEC_YIELDS: u32 = 10;

/// Whether the environment that a process was started with has this variable with this value. One that cannot be read, of
/// another user or of a process that has forbidden it (`PR_SET_DUMPABLE`), counts as no, and so does that of one that has
/// ended. `None`: it is in the middle of an
/// exec, where it has none.
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
            // It may have been in an exec when it was read, and through it when it was looked at.
            Some(_) if !was_without => was_without = true,
            Some(_) | None => return Some(false),
        }
    }
    None
}

/// The environment of a process whose first thread has ended and whose others go on: they have kept it.
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

/// The arguments separated by spaces, out of the process's memory, which can hang; the process's name in brackets if it has none.
pub(super) fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
    if line.trim().is_empty() {
        return short_name(pid);
    }
    line.trim_end().to_owned()
}

/// The kernel's name of a process, in brackets. It stands not in the process's memory, so this never hangs.
pub(super) fn short_name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("[{}]", name.trim())
}

/// Sends a signal to the process that has this pid *and* started then. `Ok(false)`: it has ended.
///
/// The descriptor is opened first and the start compared after: a descriptor stays with the process it was opened for,
/// so what was compared is what is hit.
pub(super) fn signal_exactly(pid: u32, start_ticks: u64, signal: Signal) -> io::Result<bool> {
    let Some(raw) = raw_pid(pid) else {
        return Ok(false);
    };
    let gone = |error: rustix::io::Errno| match error {
        rustix::io::Errno::SRCH => Ok(false),
        other => Err(other.into()),
    };
    let descriptor = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        Err(error) => return gone(error),
    };
    if stat(pid).is_none_or(|now| now.start_ticks != start_ticks || now.is_dead()) {
        return Ok(false);
    }
    pidfd_send_signal(&descriptor, signal).map_or_else(gone, |()| Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let line = b"7 (a ) b (c) S 2 3 4 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 5 0 4242 9 9 9 9 9 9 9 9 0 0 0 0 0 0 0 \
            17 1 0 0 0 0 0 30 31 32 33 34 35 36 0\n";
        let expected = Stat {
            pid: 7,
            state: b'S',
            parent: 2,
            group: 3,
            session: 4,
            threads: 5,
            start_ticks: 4242,
            is_kernel: false,
            environment_end: 36,
        };
        assert_eq!(parse_stat(line), Some(expected));
    }

    #[test]
    fn a_zombie_with_live_threads_is_not_dead() {
        let mut stat = stat(std::process::id()).expect("this process runs");
        assert!(!stat.is_dead());
        stat.state = b'Z';
        stat.threads = 2;
        assert!(!stat.is_dead());
        stat.threads = 1;
        assert!(stat.is_dead());
    }

    #[test]
    fn an_environment_is_told_from_one_that_cannot_be() {
        let pid = std::process::id();
        let (name, value) = std::env::vars()
            .find(|(name, value)| !name.is_empty() && !value.is_empty())
            .expect("a variable");
        assert_eq!(has_variable(pid, &name, &value), Some(true));
        assert_eq!(has_variable(pid, &name, "another"), Some(false));
        let mut without = std::process::Command::new("sleep");
        let mut without = without.arg("60").env_clear().spawn().expect("it starts");
        // In its exec nothing can be told.
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

    #[test]
    fn every_process_is_visited_by_its_number() {
        let mut visited = Vec::new();
        assert!(visit_processes(|stat| visited.push(stat.pid)));
        assert!(visited.contains(&std::process::id()));
        assert!(visited.is_sorted(), "{visited:?}");
    }

    #[test]
    fn a_wrong_start_hits_nobody() {
        let me = stat(std::process::id()).expect("this process runs");
        assert!(!signal_exactly(me.pid, me.start_ticks + 1, Signal::KILL).expect("no error"));
    }

    #[test]
    fn garbage_is_no_process() {
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"7 (x"), None);
        assert_eq!(parse_stat(b"7 (x) S 1 2"), None);
    }
}
