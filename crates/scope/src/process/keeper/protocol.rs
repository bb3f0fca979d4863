//! What keeper and owner say to each other: one packet per message, so that there is nothing to frame.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::process::ExitInfo;

/// The longest path that the system takes (`PATH_MAX`).
pub(in crate::process) const PATH_BYTES_MAX: usize = 4096;
/// The longest packet: such a path, and a word.
pub(in crate::process) const PACKET_BYTES_MAX: usize = PATH_BYTES_MAX + 64;

/// From the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::process) enum Report {
    /// The command runs, as this process that started then.
    Started { pid: u32, start_ticks: u64 },
    /// The command could not be started: the system's error number.
    Failed { errno: i32 },
    /// The main process has ended.
    Exited(ExitInfo),
    /// The keeper has no child left.
    Empty,
    /// Let go.
    Detached,
    /// Not let go: the file could not be opened.
    NotDetached { errno: i32 },
}

/// From the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::process) enum Command {
    /// SIGTERM to all.
    Ask,
    /// SIGKILL to all, until none is left.
    Force,
    /// Outlive the owner, with the output going to this file.
    Detach(PathBuf),
}

impl Report {
    pub(in crate::process) fn encode(&self) -> String {
        match self {
            Self::Started { pid, start_ticks } => format!("started {pid} {start_ticks}"),
            Self::Failed { errno } => format!("failed {errno}"),
            Self::Exited(ExitInfo::Code(code)) => format!("exited code {code}"),
            Self::Exited(ExitInfo::Signal(signal)) => format!("exited signal {signal}"),
            Self::Exited(ExitInfo::Unknown) => "exited unknown 0".to_owned(),
            Self::Empty => "empty".to_owned(),
            Self::Detached => "detached".to_owned(),
            Self::NotDetached { errno } => format!("not-detached {errno}"),
        }
    }

    pub(in crate::process) fn decode(packet: &[u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(packet).ok()?.split(' ').collect();
        Some(match words.as_slice() {
            ["started", pid, ticks] => Self::Started {
                pid: pid.parse().ok()?,
                start_ticks: ticks.parse().ok()?,
            },
            ["failed", errno] => Self::Failed {
                errno: errno.parse().ok()?,
            },
            ["exited", "code", code] => Self::Exited(ExitInfo::Code(code.parse().ok()?)),
            ["exited", "signal", signal] => Self::Exited(ExitInfo::Signal(signal.parse().ok()?)),
            ["exited", "unknown", _] => Self::Exited(ExitInfo::Unknown),
            ["empty"] => Self::Empty,
            ["detached"] => Self::Detached,
            ["not-detached", errno] => Self::NotDetached {
                errno: errno.parse().ok()?,
            },
            _ => return None,
        })
    }
}

impl Command {
    pub(in crate::process) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ask => b"ask".to_vec(),
            Self::Force => b"force".to_vec(),
            Self::Detach(path) => [b"detach ", path.as_os_str().as_bytes()].concat(),
        }
    }

    pub(in crate::process) fn decode(packet: &[u8]) -> Option<Self> {
        match packet {
            b"ask" => Some(Self::Ask),
            b"force" => Some(Self::Force),
            _ => packet
                .strip_prefix(b"detach ")
                .map(|path| Self::Detach(OsStr::from_bytes(path).into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_its_packet() {
        let reports = [
            Report::Started {
                pid: 7,
                start_ticks: 42,
            },
            Report::Failed { errno: 2 },
            Report::Exited(ExitInfo::Code(3)),
            Report::Exited(ExitInfo::Signal(9)),
            Report::Exited(ExitInfo::Unknown),
            Report::Empty,
            Report::Detached,
            Report::NotDetached { errno: 13 },
        ];
        for report in reports {
            assert_eq!(Report::decode(report.encode().as_bytes()), Some(report));
        }
        let path = PathBuf::from(OsStr::from_bytes(b"/tmp/a \xff\n b"));
        for command in [Command::Ask, Command::Force, Command::Detach(path)] {
            assert_eq!(Command::decode(&command.encode()), Some(command));
        }
    }

    #[test]
    fn garbage_is_no_message() {
        assert_eq!(Report::decode(b"started x 1"), None);
        assert_eq!(Report::decode(b"\xff"), None);
        assert_eq!(Command::decode(b"detach"), None);
    }
}
