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
}

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
        threads: fields.nth(13)?.parse().ok()?,
        start_ticks: fields.nth(1)?.parse().ok()?,
    })
}

/// Every process of the machine that is visible from here, in no particular order.
pub(super) fn snapshot() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| stat(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Whether the environment that a process was started with has this variable with this value. Another user's
/// environment cannot be read and counts as no.
pub(super) fn has_variable(pid: u32, name: &str, value: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    environment.split(|byte| *byte == 0).any(|entry| {
        entry
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            == Some(value.as_bytes())
    })
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
        let line = b"7 (a ) b (c) S 2 3 4 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 5 0 4242 9 9";
        let expected = Stat {
            pid: 7,
            state: b'S',
            parent: 2,
            group: 3,
            session: 4,
            threads: 5,
            start_ticks: 4242,
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
