//! Messages to the service manager that started this process, such as systemd: the server is ready, or it stops.
//!
//! The protocol is `sd_notify(3)`: one datagram for each message, to the socket in the variable `NOTIFY_SOCKET`. The
//! messages are optional, so a failure is only logged.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::host::variable;

/// Environment variable with the address of the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The service manager; absent if the process has another parent, such as a shell.
#[derive(Debug)]
pub(crate) struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    /// The service manager that the environment names.
    pub(crate) fn of_environment() -> Self {
        let Some(name) = variable(SOCKET).filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        let connected = connect(&name);
        if let Err(error) = &connected {
            tracing::warn!(%error, "the service manager cannot be notified");
        }
        Self(connected.ok())
    }

    /// Reports that the server accepts requests.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the server stops, and the cause.
    pub(crate) fn stopping(&self, cause: &str) {
        // A second line would be a separate message.
        let cause = cause.replace('\n', " ");
        self.send(&format!("STOPPING=1\nSTATUS=stopping: {cause}"));
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.0 else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, "the service manager was not notified");
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
        let manager = ServiceManager(Some(connect(path.as_os_str()).unwrap()));
        manager.ready();
        assert_eq!(received(&socket), "READY=1");
        manager.stopping("shutdown\nSIGTERM");
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
        let manager = ServiceManager(Some(connect(format!("@{name}").as_ref()).unwrap()));
        manager.ready();
        assert_eq!(received(&socket), "READY=1");
    }

    #[test]
    fn absent_manager_costs_nothing() {
        let gone = tempfile::tempdir().unwrap().path().join("gone");
        for manager in [
            ServiceManager(None),
            ServiceManager(connect(gone.as_os_str()).ok()),
        ] {
            manager.ready();
            manager.stopping("shutdown");
        }
    }
}
