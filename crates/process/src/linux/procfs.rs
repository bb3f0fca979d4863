//! Processes in `/proc`.

use std::fs;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;

use rustix::fs::{Mode, OFlags, RawDir, open};

/// The fields of `/proc/PID/stat` that this crate needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) pid: u32,
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) threads: u32,
    pub(super) start_ticks: u64,
    pub(super) is_kernel: bool,
    /// End of the environment in the process's memory. 0 if the process has no environment *yet*, because an exec sets
    /// the environment late.
    pub(super) environment_end: u64,
}

/// Flag of kernel threads in field 9, `PF_KTHREAD` in the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl ProcessStat {
    /// True if no thread of the process runs. If the main thread has ended but other threads are alive, the process is
    /// a zombie but not dead.
    pub(super) fn is_dead(&self) -> bool {
        self.is_zombie() && self.threads <= 1
    }

    pub(super) fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// True if the process has left its old program but has not begun the new program. Also true for a process whose
    /// memory may not be read, and for a process that is about to end.
    pub(super) fn is_in_exec(&self) -> bool {
        self.environment_end == 0 && !self.is_kernel && !self.is_dead()
    }

    /// True if the process is suspended (SIGSTOP, SIGTTIN, a debugger), so that SIGTERM has no effect until SIGCONT.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// The process with this pid. `None` if no process has this pid.
pub(super) fn stat(pid: u32) -> Option<ProcessStat> {
    // The longest observed line has about 350 bytes. The kernel prints 52 numbers and a name of at most 64 bytes.
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

/// Parses the line. The name (field 2) may contain spaces and brackets, so fields are counted from the last bracket on.
fn parse_stat(line: &[u8]) -> Option<ProcessStat> {
    let text = String::from_utf8_lossy(line);
    let pid = text.split_ascii_whitespace().next()?.parse().ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    Some(ProcessStat {
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

/// True if the process has entered a PID namespace: its parent is in another namespace, and the process is not the
/// first process in its namespace.
pub(super) fn has_entered_namespace(stat: &ProcessStat) -> bool {
    let (parent, own) = (namespace_pids(stat.parent), namespace_pids(stat.pid));
    !parent.is_empty() && own.len() > parent.len() && own.last() != Some(&1)
}

/// Real user id of a process. `None` if the process has ended.
pub(super) fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Pids of a process: one for each PID namespace, from the namespace of `/proc` down to the namespace of the process.
/// Empty if the process has ended.
fn namespace_pids(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let pids = line.unwrap_or_default().split_ascii_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Visits every process that is visible from here, in the order of the pids. Returns false if some processes could not
/// be listed.
///
/// `/proc` is listed in the order of the pids, and each process is visited before the next processes are listed. If a
/// process ends before its visit, its children are still found: a child has a higher pid, so it is listed later. The
/// exception is a child whose pid is lower because the pids have wrapped around.
pub(super) fn visit_processes(mut visit: impl FnMut(ProcessStat)) -> bool {
    // The buffer is small, so that each read lists at most two processes before they are visited. The buffer still has
    // enough space for the longest name in `/proc` that is not a pid.
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

/// Arguments of a process, separated by spaces. They are read from the process's memory, and this read can hang. If
/// there are no arguments, the name of the process in brackets.
pub(super) fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
    if line.trim().is_empty() {
        return short_name(pid);
    }
    line.trim_end().to_owned()
}

/// Name of a process in brackets, as the kernel stores it. The name is not in the process's memory, so this read never
/// hangs.
pub(super) fn short_name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("[{}]", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let line = b"7 (a ) b (c) S 2 3 4 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 5 0 4242 9 9 9 9 9 9 9 9 0 0 0 0 0 0 0 \
            17 1 0 0 0 0 0 30 31 32 33 34 35 36 0\n";
        let expected = ProcessStat {
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
    fn every_process_is_visited_by_its_number() {
        let mut visited = Vec::new();
        assert!(visit_processes(|stat| visited.push(stat.pid)));
        assert!(visited.contains(&std::process::id()));
        assert!(visited.is_sorted(), "{visited:?}");
    }

    #[test]
    fn garbage_is_no_process() {
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"7 (x"), None);
        assert_eq!(parse_stat(b"7 (x) S 1 2"), None);
    }
}
