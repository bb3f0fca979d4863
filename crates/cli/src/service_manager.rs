//! Messages to the service manager that started this process, such as systemd: the server is ready, or it stops.
//!
//! The protocol is `sd_notify(3)`: one datagram for each message, to the socket in the variable `NOTIFY_SOCKET`. The
//! messages are optional, so a failure is reported and the server continues.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::host::variable;

/// Environment variable with the address of the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The service manager; absent if the process has another parent, such as a shell.
#[derive(Debug)]
pub(crate) struct ServiceManager(Option<OsString>);

/// A message did not reach the service manager.
#[derive(Debug, thiserror::Error)]
#[error("the service manager is not notified: {SOCKET} is {name:?}: {source}")]
pub(crate) struct NotifyError {
    name: OsString,
    source: io::Error,
}

impl ServiceManager {
    /// The service manager that the environment names.
    pub(crate) fn of_environment() -> Self {
        Self(variable(SOCKET).filter(|name| !name.is_empty()))
    }

    /// Reports that the server accepts requests.
    pub(crate) fn ready(&self) -> Result<(), NotifyError> {
        self.send("READY=1")
    }

    /// Reports that the server stops, and the cause.
    pub(crate) fn stopping(&self, cause: &str) -> Result<(), NotifyError> {
        // A second line would be a separate message.
        let cause = cause.replace('\n', " ");
        self.send(&format!("STOPPING=1\nSTATUS=stopping: {cause}"))
    }

    fn send(&self, message: &str) -> Result<(), NotifyError> {
        let Some(name) = &self.0 else {
            return Ok(());
        };
        let sent = connect(name)
            .and_then(|(socket, address)| socket.send_to_addr(message.as_bytes(), &address));
        match sent {
            Ok(_length) => Ok(()),
            Err(source) => Err(NotifyError {
                name: name.clone(),
                source,
            }),
        }
    }
}

/// A socket that never blocks, and the address of a path or, after `@`, of an abstract name.
fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)?
        }
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn each_message_is_one_datagram() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager(Some(path.into()));
        manager.ready().unwrap();
        assert_eq!(received(&socket), "READY=1");
        manager.stopping("shutdown\nSIGTERM").unwrap();
        assert_eq!(
            received(&socket),
            "STOPPING=1\nSTATUS=stopping: shutdown SIGTERM"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn abstract_name_is_accepted() {
        use std::os::linux::net::SocketAddrExt as _;
        let name = format!("allstop-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let manager = ServiceManager(Some(format!("@{name}").into()));
        manager.ready().unwrap();
        assert_eq!(received(&socket), "READY=1");
    }

    #[test]
    fn absent_manager_costs_nothing_and_a_wrong_one_is_named() {
        ServiceManager(None).ready().unwrap();
        let gone = tempfile::tempdir().unwrap().path().join("gone");
        let long = OsString::from("x".repeat(200));
        for name in [gone.into_os_string(), long] {
            let manager = ServiceManager(Some(name.clone()));
            let problem = manager.ready().unwrap_err().to_string();
            let begin = format!("the service manager is not notified: NOTIFY_SOCKET is {name:?}: ");
            assert!(problem.starts_with(&begin), "{problem}");
        }
    }
}
