//! The kernel's table of TCP connections, `/proc/self/net/tcp`. It is used if netlink is not available.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::is_held_open;
use super::socket_pair::SocketPair;

/// Connections that this process holds open.
pub(super) type OpenSockets = Arc<HashSet<SocketPair>>;

/// The last result of reading the table, with the time at which the read started. If a thousand calls are stopped
/// together, they share one read. The table is read again only if a query is newer than the start of the last read.
static NEWEST: Mutex<Option<(Instant, OpenSockets)>> = Mutex::new(None);

/// TCP connections of this network namespace that were open when the table was read, which is not before `since`.
/// `None` if the system cannot list them.
pub(super) fn open_sockets_since(since: Instant) -> Option<OpenSockets> {
    let mut newest = NEWEST.lock();
    if let Some((began, open)) = &*newest
        && *began >= since
    {
        return Some(Arc::clone(open));
    }
    let began = Instant::now();
    let mut open = HashSet::new();
    let v4 = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    collect_open(&v4, &mut open);
    // A kernel without IPv6 has no such file and no such connections.
    if let Ok(v6) = std::fs::read_to_string("/proc/self/net/tcp6") {
        collect_open(&v6, &mut open);
    }
    let open = Arc::new(open);
    *newest = Some((began, Arc::clone(&open)));
    Some(open)
}

fn collect_open(table: &str, open: &mut HashSet<SocketPair>) {
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(remote), Some(state)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if !u8::from_str_radix(state, 16).is_ok_and(is_held_open) {
            continue;
        }
        if let (Some(local), Some(remote)) = (parse_address(local), parse_address(remote)) {
            open.insert(SocketPair { local, remote });
        }
    }
}

/// Parses an address such as `0100007F:1F90`. An IPv6 address consists of four such words before the port. Each word is
/// printed in the byte order of the machine.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        Some(
            u32::from_str_radix(ip.get(at..at + 8)?, 16)
                .ok()?
                .to_ne_bytes(),
        )
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at * 8)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn kernel_table_is_parsed() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
             0: 0100007F:1F90 0100007F:C001 01 00000000:00000000\n\
             1: 0100007F:1F91 0100007F:C002 06 00000000:00000000\n\
             2: 0000000000000000FFFF00000100007F:1F92 0000000000000000FFFF00000100007F:C003 08 0\n\
             garbage\n";
        let mut open = HashSet::new();
        collect_open(table, &mut open);
        let pair = |local: &str, remote: &str| SocketPair {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
        assert_eq!(
            open,
            HashSet::from([
                pair("127.0.0.1:8080", "127.0.0.1:49153"),
                pair("127.0.0.1:8082", "127.0.0.1:49155"),
            ])
        );
    }
}
