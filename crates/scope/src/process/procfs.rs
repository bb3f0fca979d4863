//! What `/proc` says of processes, and signals that cannot hit the wrong one.

use std::fs;
use std::io::{self, Read as _};

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
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
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

/// Every process of the machine that is visible from here, in no particular order.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) all: Vec<Stat>,
    /// Whether each one that was listed could be read: one that ended in between may have had a child in time.
    pub(super) is_complete: bool,
}

pub(super) fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot {
        all: Vec::new(),
        is_complete: true,
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        if let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            let read = stat(pid);
            snapshot.is_complete &= read.is_some();
            snapshot.all.extend(read);
        }
    }
    snapshot
}

/// Whether the environment that a process was started with has this variable with this value. Another user's
/// environment cannot be read and counts as no. `None`: not to be told now, because it ended in between or is in the
/// middle of an exec.
pub(super) fn has_variable(pid: u32, name: &str, value: &str) -> Option<bool> {
    let read = || match fs::read(format!("/proc/{pid}/environ")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(Vec::new()),
        Err(_) => None,
        Ok(environment) if !environment.is_empty() => Some(environment),
        Ok(_) => {
            let now = stat(pid)?;
            (now.is_kernel || now.environment_end != 0).then(Vec::new)
        }
    };
    // Whoever was in an exec at the first read, and out of it when it was looked at, has one at the second.
    let environment = read().map(|first| {
        if first.is_empty() {
            read()
        } else {
            Some(first)
        }
    })??;
    Some(environment.split(|byte| *byte == 0).any(|entry| {
        entry
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            == Some(value.as_bytes())
    }))
}

/// The arguments separated by spaces; the process's name in brackets if it has none.
pub(super) fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
    if line.trim().is_empty() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", name.trim());
    }
    line.trim_end().to_owned()
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
        assert_eq!(has_variable(without.id(), &name, &value), None);
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
