//! Decides which addresses a webhook may have. A client chooses the URL, and the server connects to this URL. Without
//! this guard, every client could therefore reach the server's private network (server-side request forgery).
//!
//! The guard lists, where possible, the permitted addresses, not the refused addresses: for IPv6, only the global
//! unicast range is permitted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

use crate::localhost::is_localhost;

/// Maximum size of a URL in bytes, as in common proxies.
const URL_BYTES_MAX: usize = 2_048;

/// IPv4 networks that are not public (IANA's special-purpose registry), and the metadata service of one cloud.
const REFUSED_V4: [(Ipv4Addr, u8, &str); 17] = [
    (Ipv4Addr::UNSPECIFIED, 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-private"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "cloud metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmark"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::BROADCAST, 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Prefix of public unicast IPv6 addresses, and exceptions among them. All other addresses are refused: loopback,
/// link-local, unique-local, multicast, and IPv4 addresses embedded by NAT64.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const REFUSED_V6: [(Ipv6Addr, u8, &str); 4] = [
    (
        Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0),
        23,
        "reserved or Teredo",
    ),
    (
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        32,
        "documentation",
    ),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4"),
    (
        Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0),
        20,
        "documentation",
    ),
];

/// Rule for the addresses of webhooks: public addresses, and addresses that the operator permits.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressGuard {
    allowed: Vec<IpNet>,
}

/// Reason why a URL cannot be a webhook. The text contains no part of the URL except the IP address of its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebhookUrlError {
    #[error("the URL must have at most {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the URL is invalid: {0}")]
    Invalid(#[from] url::ParseError),
    #[error("the URL must begin with http:// or https://")]
    Scheme,
    #[error("the URL must not have a user name or password; use `authentication`")]
    UserInfo,
    #[error(transparent)]
    Address(#[from] RefusedAddress),
}

/// Address that no webhook may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address {address} is not public ({kind}); the operator of the server can allow it")]
pub(crate) struct RefusedAddress {
    pub(crate) address: IpAddr,
    pub(crate) kind: &'static str,
}

impl AddressGuard {
    /// Creates a guard that permits public addresses and these networks.
    pub(crate) fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Checks the address to which a connection would go.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let canonical = address.to_canonical();
        let is_allowed = |network: &IpNet| network.contains(&canonical);
        match refused_kind(canonical) {
            Some(kind) if !self.allowed.iter().any(is_allowed) => {
                Err(RefusedAddress { address, kind })
            }
            _ => Ok(()),
        }
    }

    /// Checks a URL. If the host is a name, its addresses are checked later, at each connection.
    pub(crate) fn check_url(&self, text: &str) -> Result<Url, WebhookUrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(WebhookUrlError::TooLong);
        }
        let url = Url::parse(text)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebhookUrlError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(WebhookUrlError::UserInfo);
        }
        // The parser has already converted every notation of an IPv4 address (decimal, octal, hexadecimal) to an
        // address.
        match url.host() {
            None => return Err(url::ParseError::EmptyHost.into()),
            Some(Host::Ipv4(address)) => self.check_address(address.into())?,
            Some(Host::Ipv6(address)) => self.check_address(address.into())?,
            Some(Host::Domain(name)) if is_localhost(name) => {
                let of_v4 = self.check_address(Ipv4Addr::LOCALHOST.into());
                of_v4.or_else(|refused| {
                    let of_v6 = self.check_address(Ipv6Addr::LOCALHOST.into());
                    of_v6.map_err(|_| refused)
                })?;
            }
            Some(Host::Domain(_)) => {}
        }
        Ok(url)
    }
}

/// Returns the kind of an address that is not public; `None` for a public address.
fn refused_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let in_network = |&&(network, bits, _): &&(Ipv4Addr, u8, _)| {
                let shift = 32 - u32::from(bits);
                u32::from(address) >> shift == u32::from(network) >> shift
            };
            REFUSED_V4.iter().find(in_network).map(|(.., kind)| *kind)
        }
        IpAddr::V6(address) => {
            let starts_with = |network: Ipv6Addr, bits: u8| {
                let shift = 128 - u32::from(bits);
                u128::from(address) >> shift == u128::from(network) >> shift
            };
            if !starts_with(GLOBAL_V6.0, GLOBAL_V6.1) {
                return Some("not global unicast");
            }
            let refused = REFUSED_V6
                .iter()
                .find(|(network, bits, _)| starts_with(*network, *bits));
            refused.map(|(.., kind)| *kind)
        }
    }
}
