//! The two ends of a connection.

use std::net::SocketAddr;

/// One TCP connection. Its two ends identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SocketPair {
    /// Local end.
    pub(crate) local: SocketAddr,
    /// Remote end: the server, or a proxy.
    pub(crate) remote: SocketAddr,
}
