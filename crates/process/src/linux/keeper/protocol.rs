//! Messages between a keeper and its owner. A keeper is a small process that starts commands and contains their process
//! trees; its owner is the process that requests these commands. Each message is one packet, so no framing is needed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::status::ExitInfo;

/// The longest path that the system accepts (`PATH_MAX`).
pub(in crate::linux) const PATH_BYTES_MAX: usize = 4096;
/// The longest packet: a path of this length, and one more word.
pub(in crate::linux) const PACKET_BYTES_MAX: usize = PATH_BYTES_MAX + 64;
/// Maximum number of members in a report, because people do not read longer lists. Each member needs 32 bytes, so the
/// list fits into a packet.
pub(in crate::linux) const MEMBERS_MAX: usize = 64;

/// A message from the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::linux) enum KeeperReport {
    /// The command runs as the process with this pid and start time.
    Started { pid: u32, start_ticks: u64 },
    /// The command could not be started. Contains the system's error number, and whether the directory was the reason.
    Failed { errno: i32, in_directory: bool },
    /// The main process has ended.
    Exited(ExitInfo),
    /// The current processes of the tree, at most [`MEMBERS_MAX`]: pids and start times.
    Members(Vec<(u32, u64)>),
    /// A process of the tree has entered another PID namespace.
    Entered,
    /// The owner has not postponed its deadline, so the keeper kills the tree.
    Expired,
    /// The keeper has no child left, and can serve another call.
    Empty,
    /// The tree is detached.
    Detached,
    /// The tree was not detached, because the file for its further output could not be opened.
    NotDetached { errno: i32 },
}

/// A message from the owner. The message contains an action and the number of the call. With this number, a message for
/// an ended call has no effect on the next call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::linux) struct KeeperCommand {
    pub(in crate::linux) call: u64,
    pub(in crate::linux) action: KeeperAction,
}

/// Action that the owner requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::linux) enum KeeperAction {
    /// Start a command. Two files are sent with the packet: a pipe for the output, and a file with the
    /// [`StartCommand`](super::start_command::StartCommand).
    Start,
    /// Send SIGTERM to all members.
    Ask,
    /// Send SIGKILL to all members, repeatedly, until no member is left.
    Force,
    /// Outlive the owner, and write the output to this file.
    Detach(PathBuf),
}

impl KeeperReport {
    pub(in crate::linux) fn encode(&self) -> String {
        match self {
            Self::Started { pid, start_ticks } => format!("started {pid} {start_ticks}"),
            Self::Failed {
                errno,
                in_directory,
            } => format!("failed {errno} {in_directory}"),
            Self::Exited(ExitInfo::Code(code)) => format!("exited code {code}"),
            Self::Exited(ExitInfo::Signal(signal)) => format!("exited signal {signal}"),
            Self::Exited(ExitInfo::Unknown) => "exited unknown 0".to_owned(),
            Self::Members(members) => {
                let members = members.iter().take(MEMBERS_MAX);
                let words = members.map(|(pid, ticks)| format!(" {pid} {ticks}"));
                format!("members{}", words.collect::<String>())
            }
            Self::Entered => "entered".to_owned(),
            Self::Expired => "expired".to_owned(),
            Self::Empty => "empty".to_owned(),
            Self::Detached => "detached".to_owned(),
            Self::NotDetached { errno } => format!("not-detached {errno}"),
        }
    }

    pub(in crate::linux) fn decode(packet: &[u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(packet).ok()?.split(' ').collect();
        Some(match words.as_slice() {
            ["started", pid, ticks] => Self::Started {
                pid: pid.parse().ok()?,
                start_ticks: ticks.parse().ok()?,
            },
            ["failed", errno, in_directory] => Self::Failed {
                errno: errno.parse().ok()?,
                in_directory: in_directory.parse().ok()?,
            },
            ["exited", "code", code] => Self::Exited(ExitInfo::Code(code.parse().ok()?)),
            ["exited", "signal", signal] => Self::Exited(ExitInfo::Signal(signal.parse().ok()?)),
            ["exited", "unknown", _] => Self::Exited(ExitInfo::Unknown),
            ["members", members @ ..] => {
                let pairs = members.chunks(2).map(|pair| match pair {
                    [pid, ticks] => Some((pid.parse().ok()?, ticks.parse().ok()?)),
                    _ => None,
                });
                Self::Members(pairs.collect::<Option<_>>()?)
            }
            ["entered"] => Self::Entered,
            ["expired"] => Self::Expired,
            ["empty"] => Self::Empty,
            ["detached"] => Self::Detached,
            ["not-detached", errno] => Self::NotDetached {
                errno: errno.parse().ok()?,
            },
            _ => return None,
        })
    }
}

impl KeeperCommand {
    pub(in crate::linux) fn encode(&self) -> Vec<u8> {
        let (word, path): (_, &[u8]) = match &self.action {
            KeeperAction::Start => ("start", &[]),
            KeeperAction::Ask => ("ask", &[]),
            KeeperAction::Force => ("force", &[]),
            KeeperAction::Detach(path) => ("detach", path.as_os_str().as_bytes()),
        };
        [format!("{} {word} ", self.call).as_bytes(), path].concat()
    }

    pub(in crate::linux) fn decode(packet: &[u8]) -> Option<Self> {
        let mut words = packet.splitn(3, |byte| *byte == b' ');
        let (call, word, path) = (words.next()?, words.next()?, words.next()?);
        let action = match word {
            b"start" => KeeperAction::Start,
            b"ask" => KeeperAction::Ask,
            b"force" => KeeperAction::Force,
            b"detach" => KeeperAction::Detach(OsStr::from_bytes(path).into()),
            _ => return None,
        };
        let call = std::str::from_utf8(call).ok()?.parse().ok()?;
        Some(Self { call, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_its_packet() {
        let reports = [
            KeeperReport::Started {
                pid: 7,
                start_ticks: 42,
            },
            KeeperReport::Failed {
                errno: 2,
                in_directory: true,
            },
            KeeperReport::Members(Vec::new()),
            KeeperReport::Members(vec![(7, 42), (8, 43)]),
            KeeperReport::Exited(ExitInfo::Code(3)),
            KeeperReport::Exited(ExitInfo::Signal(9)),
            KeeperReport::Exited(ExitInfo::Unknown),
            KeeperReport::Entered,
            KeeperReport::Expired,
            KeeperReport::Empty,
            KeeperReport::Detached,
            KeeperReport::NotDetached { errno: 13 },
        ];
        for report in reports {
            assert_eq!(
                KeeperReport::decode(report.encode().as_bytes()),
                Some(report)
            );
        }
        let path = PathBuf::from(OsStr::from_bytes(b"/tmp/a \xff\n b"));
        for action in [
            KeeperAction::Start,
            KeeperAction::Ask,
            KeeperAction::Force,
            KeeperAction::Detach(path),
        ] {
            let command = KeeperCommand { call: 7, action };
            assert_eq!(KeeperCommand::decode(&command.encode()), Some(command));
        }
    }

    #[test]
    fn the_longest_list_of_members_fits_into_a_packet() {
        let members = vec![(u32::MAX, u64::MAX); MEMBERS_MAX];
        assert!(KeeperReport::Members(members).encode().len() <= PACKET_BYTES_MAX);
    }

    #[test]
    fn garbage_is_no_message() {
        assert_eq!(KeeperReport::decode(b"started x 1"), None);
        assert_eq!(KeeperReport::decode(b"\xff"), None);
        assert_eq!(KeeperReport::decode(b"members 1"), None);
        assert_eq!(KeeperCommand::decode(b"detach"), None);
        assert_eq!(KeeperCommand::decode(b"x ask "), None);
    }
}
