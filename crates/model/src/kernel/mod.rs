//! State of this process's TCP connections in the kernel.

#[cfg(target_os = "linux")]
mod diag;
mod socket_pair;
mod table;

use std::time::Instant;

pub(crate) use socket_pair::SocketPair;

/// True if this process holds the connection open. The answer of the kernel is not older than `since`. `None` if the
/// system cannot determine the state.
pub(crate) fn is_open(pair: &SocketPair, since: Instant) -> Option<bool> {
    #[cfg(target_os = "linux")]
    if let Some(state) = diag::state(pair) {
        return Some(is_held_open(state));
    }
    table::open_sockets_since(since).map(|open| open.contains(pair))
}

/// True if this process has not closed the connection: the connection is established, is being set up, or was closed
/// only by the other side. In all other states (`FIN_WAIT`, `CLOSING`, `LAST_ACK`, `TIME_WAIT`), this process has
/// already closed the connection.
fn is_held_open(state: u8) -> bool {
    const ESTABLISHED: u8 = 1;
    const SYN_SENT: u8 = 2;
    const SYN_RECV: u8 = 3;
    const CLOSE_WAIT: u8 = 8;
    matches!(state, ESTABLISHED | SYN_SENT | SYN_RECV | CLOSE_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that both methods of asking the kernel give the same result for the same connection.
    #[test]
    fn connection_is_open_until_our_side_closes_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else {
                // This machine has no IPv6.
                assert!(address.starts_with('['));
                continue;
            };
            let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, remote) = (ours.local_addr().unwrap(), ours.peer_addr().unwrap());
            let pair = SocketPair { local, remote };
            let seen = || {
                let table = table::open_sockets_since(Instant::now())
                    .unwrap()
                    .contains(&pair);
                #[cfg(target_os = "linux")]
                assert_eq!(
                    is_held_open(diag::state(&pair).expect("the kernel answers")),
                    table
                );
                table
            };
            assert!(seen());
            // Only the other side has closed the connection. This process still holds it open.
            drop(listener.accept().unwrap());
            assert!(seen());
            drop(ours);
            assert!(!seen());
            assert_eq!(is_open(&pair, Instant::now()), Some(false));
        }
    }
}
