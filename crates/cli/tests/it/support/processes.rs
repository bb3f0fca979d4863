//! Running processes, read from `/proc`.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Environment variable that marks all processes of a test, including their children.
pub(crate) const MARK: &str = "ALLSTOP_TEST_MARK";

/// A process at the time of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) command: String,
}

impl Process {
    pub(crate) fn is_keeper(&self) -> bool {
        self.command.contains(" __keeper")
    }

    pub(crate) fn kill(&self) {
        // The process may have ended since the search, so an error is ignored.
        let _gone = Pid::from_raw(self.pid).map(|pid| kill_process(pid, Signal::KILL));
    }
}

/// Every live process with this mark in its environment, or with this command. Zombies are not found, because they have
/// neither an environment nor a command.
pub(crate) fn of_mark_or_command(mark: &str, command: &str) -> Vec<Process> {
    let wanted = format!("{MARK}={mark}");
    let has_mark = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    };
    pids()
        .map(|pid| Process {
            pid,
            command: command_of(pid),
        })
        .filter(|process| process.command == command || has_mark(process.pid))
        .collect()
}

/// Every live process with this text in its command.
pub(crate) fn of_text(text: &str) -> Vec<Process> {
    let all = pids().map(|pid| Process {
        pid,
        command: command_of(pid),
    });
    all.filter(|process| process.command.contains(text))
        .collect()
}

fn pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .expect("/proc is there")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn command_of(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .trim_end_matches('\0')
        .replace('\0', " ")
}

/// True if a process with this pid exists and is not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// A field of `/proc/PID/status` in kB, such as `VmHWM`.
pub(crate) fn memory_kb(pid: i32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time of a process so far, in steps of the kernel's clock tick (usually 10 ms).
pub(crate) fn cpu_time(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    // In proc(5), utime and stime are the fields 14 and 15 of the file `stat`. `rest` begins with the third field.
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?)
}

/// True if a process has a handler for this signal.
pub(crate) fn catches(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.unwrap_or_default() & (1 << (signal.as_raw() - 1)) != 0
}
