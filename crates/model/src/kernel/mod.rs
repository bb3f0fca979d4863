//! What the kernel says about a TCP connection of ours.

#[cfg(target_os = "linux")]
mod diag;
mod table;

use std::time::Instant;

use crate::probe::SocketPair;

/// Whether our side holds this connection open, at some moment not before `since`. `None` where the system cannot be
/// asked.
pub(crate) fn is_open(pair: &SocketPair, since: Instant) -> Option<bool> {
    #[cfg(target_os = "linux")]
    if let Some(state) = diag::state(pair) {
        return Some(is_held_open(state));
    }
    table::open_sockets_since(since).map(|open| open.contains(pair))
}

/// Whether our side has not closed it: established, being set up, or closed by the other side only. Everything else
/// (`FIN_WAIT`, `CLOSING`, `LAST_ACK`, `TIME_WAIT`) is what the kernel keeps after we have closed.
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

    /// Both ways of asking, on the same connection.
    #[test]
    fn a_connection_is_seen_while_it_is_held() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else {
                // A machine without IPv6 has nothing to show for it.
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
            // Closed by the other side only: we still hold it.
            drop(listener.accept().unwrap());
            assert!(seen());
            drop(ours);
            assert!(!seen());
            assert_eq!(is_open(&pair, Instant::now()), Some(false));
        }
    }
}
