//! Asks the kernel over netlink (`sock_diag(7)`) about one TCP connection. The cost of the query does not depend on the
//! number of connections of the machine, unlike the cost of reading the kernel's whole table.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::socket_pair::SocketPair;

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
/// TCP state of a connection that does not exist.
const CLOSED: u8 = 7;
const HEADER_LEN: usize = 16;
/// Length of the whole request: the length of the header and of `struct inet_diag_req_v2`.
const REQUEST_LEN: usize = HEADER_LEN + 56;

/// TCP state of this connection, or [`CLOSED`] if the connection does not exist; `None` if the query fails.
pub(super) fn state(pair: &SocketPair) -> Option<u8> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .ok()?;
    send(&kernel, &request(pair), SendFlags::empty()).ok()?;
    let mut answer = [0; 1024];
    // The answer is available when `send` returns.
    let (len, _) = recv(&kernel, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    parse(answer.get(..len)?)
}

fn parse(answer: &[u8]) -> Option<u8> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    match kind {
        // The state is the second byte of `struct inet_diag_msg`.
        SOCK_DIAG_BY_FAMILY => answer.get(HEADER_LEN + 1).copied(),
        NLMSG_ERROR => {
            let error = answer.get(HEADER_LEN..HEADER_LEN + 4)?.try_into().ok()?;
            let is_gone = i32::from_ne_bytes(error) == -Errno::NOENT.raw_os_error();
            is_gone.then_some(CLOSED)
        }
        _ => None,
    }
}

fn request(pair: &SocketPair) -> Vec<u8> {
    let family = match pair.local.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let mut out = Vec::with_capacity(REQUEST_LEN);
    // struct nlmsghdr: length, type, flags, sequence number, port.
    out.extend((REQUEST_LEN as u32).to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend(NLM_F_REQUEST.to_ne_bytes());
    out.extend([0; 8]);
    // struct inet_diag_req_v2: family, protocol, extensions, padding, states (all).
    out.extend([family.as_raw() as u8, IPPROTO_TCP, 0, 0]);
    out.extend(u32::MAX.to_ne_bytes());
    // struct inet_diag_sockid: ports, addresses, interface (any), cookie (none).
    out.extend(pair.local.port().to_be_bytes());
    out.extend(pair.remote.port().to_be_bytes());
    out.extend(address_bytes(pair.local));
    out.extend(address_bytes(pair.remote));
    out.extend(0_u32.to_ne_bytes());
    out.extend([0xff; 8]);
    out
}

fn address_bytes(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}
