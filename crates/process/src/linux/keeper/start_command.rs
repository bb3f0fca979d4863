//! The command that a keeper starts. The command is sent in a memory file, because it may be longer than a packet of
//! the keeper's socket.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::fs::{MemfdFlags, memfd_create};

/// A command that a keeper starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::linux) struct StartCommand {
    pub(in crate::linux) cwd: OsString,
    pub(in crate::linux) program: OsString,
    pub(in crate::linux) args: Vec<OsString>,
    /// The whole environment. The command inherits nothing from the keeper.
    pub(in crate::linux) env: Vec<(OsString, OsString)>,
}

impl StartCommand {
    /// Writes the command into a memory file, which can be sent to the keeper.
    pub(in crate::linux) fn to_file(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
        file.write_all(&self.encode()?)?;
        Ok(file.into())
    }

    /// Reads the command from the file that was sent.
    pub(in crate::linux) fn from_file(file: OwnedFd) -> io::Result<Self> {
        let mut file = File::from(file);
        file.rewind()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Self::decode(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Encodes a list of texts that each end with a zero byte: directory, program, number of arguments, arguments, then
    /// pairs of name and value.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let count = OsString::from(self.args.len().to_string());
        let command = [&self.cwd, &self.program, &count].into_iter();
        let env = self.env.iter().flat_map(|(name, value)| [name, value]);
        let mut bytes = Vec::new();
        for word in command.chain(&self.args).chain(env) {
            if word.as_bytes().contains(&0) {
                let why = "nul byte in a command, its folder or its environment";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
        }
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let owned = |word: &[u8]| OsString::from_vec(word.to_vec());
        let mut words = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let (cwd, program) = (owned(words.next()?), owned(words.next()?));
        let count = OsStr::from_bytes(words.next()?).to_str()?.parse().ok()?;
        let args: Vec<_> = words.by_ref().take(count).map(owned).collect();
        let mut env = Vec::new();
        while let Some(name) = words.next() {
            env.push((owned(name), owned(words.next()?)));
        }
        (args.len() == count).then_some(Self {
            cwd,
            program,
            args,
            env,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> StartCommand {
        StartCommand {
            cwd: "/".into(),
            program: "sh".into(),
            args: vec![
                "-c".into(),
                "".into(),
                OsString::from_vec(vec![0xff, b'\n']),
            ],
            env: vec![("A".into(), "b=c".into()), ("EMPTY".into(), "".into())],
        }
    }

    #[test]
    fn start_command_survives_its_file() {
        let bare = StartCommand {
            args: Vec::new(),
            env: Vec::new(),
            ..order()
        };
        for order in [order(), bare] {
            let file = order.to_file().expect("a file of memory");
            assert_eq!(
                StartCommand::from_file(file).expect("it can be read"),
                order
            );
        }
    }

    #[test]
    fn a_zero_byte_is_refused() {
        let order = StartCommand {
            program: "a\0b".into(),
            ..order()
        };
        let error = order.to_file().expect_err("no program has this name");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn garbage_is_no_start_command() {
        for garbage in [
            &b""[..],
            b"/",
            b"/\0sh\0",
            b"/\0sh\0x\0",
            b"/\0sh\x002\0a\0",
        ] {
            assert_eq!(StartCommand::decode(garbage), None);
        }
    }
}
