//! Loopback addresses for servers that start some time after their port was chosen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Free addresses on [`own_host`], a loopback address that only this process uses. The ports of the addresses differ
/// from each other.
///
/// A port of `127.0.0.1` that was free a moment ago may be in use by another program now. No other process uses the
/// loopback address of this process. Therefore these ports stay free until their servers start, and also after a server
/// was killed. There is one exception: a program that listens on all addresses (0.0.0.0) can still take such a port.
///
/// # Panics
/// Panics if no port can be bound.
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    // The ports differ because all listeners exist at the same time.
    let listeners = [(); N]
        .map(|()| TcpListener::bind((own_host(), 0)).expect("a loopback address can be bound"));
    listeners.map(|listener| listener.local_addr().expect("it is bound"))
}

/// The loopback address of this process alone: an address in `127.0.0.0/8` that contains the process id.
// Linux can bind every address of 127.0.0.0/8. A process id on Linux has at most 22 bits, so the address has room for
// it.
#[cfg(target_os = "linux")]
pub fn own_host() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // These addresses are above 127.63. People choose lower addresses by hand: 127.0.0.1, 127.0.1.1, 127.0.0.53.
    Ipv4Addr::new(127, 64 + high, middle, low)
}

/// The usual loopback address. Systems other than Linux bind only 127.0.0.1, so a port may be taken before its server
/// starts.
#[cfg(not(target_os = "linux"))]
pub fn own_host() -> Ipv4Addr {
    Ipv4Addr::LOCALHOST
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn released_port_is_free_although_a_connection_has_its_number() {
        let [address] = free_addresses();
        // This listener and this connection at 127.0.0.1 use the same port number. Both would block a server at
        // 127.0.0.1, but not at this address.
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, address.port())).unwrap();
        let _connection = TcpStream::connect(taken.local_addr().unwrap()).unwrap();
        TcpListener::bind(address).unwrap();
    }

    #[test]
    fn addresses_of_a_group_differ() {
        let mut addresses = free_addresses::<64>().to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 64);
    }
}
