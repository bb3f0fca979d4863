//! Principal of a request: the authenticated sender. Only an authenticator sets the principal, never the client.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use a2a_server::ServiceParams;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use futures::future::BoxFuture;

use crate::localhost::is_localhost;

/// Header in which the authentication passes the principal to the service. [`authenticate`] first removes this header
/// from each request, so a client cannot set it.
pub(crate) const PRINCIPAL_HEADER: HeaderName = HeaderName::from_static("x-allstop-principal");

/// Principal of requests without authentication.
pub const ANONYMOUS: &str = "anonymous";

/// Determines the sender of a request.
pub trait Authenticator: Send + Sync {
    /// Returns the principal of a request with these headers.
    ///
    /// # Errors
    /// Returns an error if the request has no valid credentials.
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Unauthenticated>;

    /// Describes the credentials that a refused request needs, for the client.
    fn requirement(&self) -> &'static str {
        "authentication is required: send a valid bearer token"
    }

    /// Resolves when the accepted credentials in these headers are revoked or expire. Open streams then end. The default
    /// never resolves, for credentials that stay valid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn revoked(&self, headers: &HeaderMap) -> BoxFuture<'static, ()> {
        let _ = headers;
        Box::pin(std::future::pending())
    }
}

/// Name of the sender of a request, who owns the tasks of the request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(HeaderValue);

/// Reason why a name cannot be a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidPrincipal;

impl fmt::Display for InvalidPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a principal has 1 or more printable ASCII characters")
    }
}

impl std::error::Error for InvalidPrincipal {}

/// The request has no valid credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unauthenticated;

impl Principal {
    /// Creates a principal with this name.
    ///
    /// # Errors
    /// Returns an error if the name is empty or contains other characters than printable ASCII.
    pub fn new(name: &str) -> Result<Self, InvalidPrincipal> {
        if name.is_empty() || !name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(InvalidPrincipal);
        }
        HeaderValue::from_str(name)
            .map(Self)
            .map_err(|_| InvalidPrincipal)
    }

    /// The principal of requests without authentication.
    pub fn anonymous() -> Self {
        Self(HeaderValue::from_static(ANONYMOUS))
    }
}

/// Accepts every request as [`ANONYMOUS`] if its `Host` header contains a local name or address of this machine. Use
/// this authenticator only for servers on loopback addresses.
///
/// A web page of another site can resolve its own name to a loopback address (DNS rebinding) and send requests from the
/// user's browser. These requests contain that name as `Host`, and are refused.
#[derive(Debug, Clone, Copy)]
pub struct NoAuthentication;

impl Authenticator for NoAuthentication {
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Unauthenticated> {
        if headers.get_all(HOST).iter().all(is_of_loopback) {
            return Ok(Principal::anonymous());
        }
        Err(Unauthenticated)
    }

    fn requirement(&self) -> &'static str {
        "authentication is required (a server without tokens answers requests for localhost only)"
    }
}

/// True if a `Host` header contains a loopback address or a `localhost` name.
fn is_of_loopback(host: &HeaderValue) -> bool {
    let Ok(authority) = Authority::try_from(host.as_bytes()) else {
        return false;
    };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match address.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => is_localhost(host),
    }
}

/// Tries one authenticator after another. The first authenticator that accepts the credentials determines the
/// principal.
impl Authenticator for Vec<Arc<dyn Authenticator>> {
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Unauthenticated> {
        let mut named = self.iter().map(|one| one.authenticate(headers));
        named.find_map(Result::ok).ok_or(Unauthenticated)
    }

    fn revoked(&self, headers: &HeaderMap) -> BoxFuture<'static, ()> {
        let mut all = self.iter();
        match all.find(|one| one.authenticate(headers).is_ok()) {
            Some(accepting) => accepting.revoked(headers),
            // The credentials were revoked since they were accepted.
            None => Box::pin(std::future::ready(())),
        }
    }
}

/// Returns the bearer token of a request (RFC 6750, section 2.1). `None` for a request with several `Authorization`
/// headers, because a proxy may have checked a different one of these headers.
///
/// Also `None` for an empty token. If an operator hashed an unset variable by mistake, the token file contains the hash
/// of the empty text. This hash must not grant access.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let value = value.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Replaces the principal in the headers by the result of the authenticator.
pub(crate) fn authenticate(
    authenticator: &dyn Authenticator,
    headers: &mut HeaderMap,
) -> Result<Principal, Unauthenticated> {
    headers.remove(&PRINCIPAL_HEADER);
    let principal = authenticator.authenticate(headers)?;
    headers.insert(PRINCIPAL_HEADER, principal.0.clone());
    Ok(principal)
}

/// Returns the principal of an authenticated request.
pub(crate) fn principal_of(params: &ServiceParams) -> Arc<str> {
    let name = params
        .get(PRINCIPAL_HEADER.as_str())
        .and_then(|names| names.first());
    name.map_or(ANONYMOUS, String::as_str).into()
}

/// Returns the principal of a request that the access control has admitted, for servers of other protocols.
pub fn principal_of_headers(headers: &HeaderMap) -> Arc<str> {
    let name = headers.get(&PRINCIPAL_HEADER);
    let name = name.and_then(|name| name.to_str().ok());
    name.unwrap_or(ANONYMOUS).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authentication_only_names_of_this_machine_are_served() {
        let asked = |hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_static(host));
            }
            NoAuthentication.authenticate(&headers).is_ok()
        };
        assert!(asked(&[]), "HTTP/2, and gRPC");
        for host in [
            "localhost",
            "LOCALHOST:8090",
            "a.localhost.:1",
            "127.0.0.1:8090",
            "127.3.2.1",
            "[::1]:8090",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(asked(&[host]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[fe80::1]",
            "",
            "user@localhost@evil.example",
        ] {
            assert!(!asked(&[host]), "{host}");
            assert!(!asked(&["localhost", host]), "{host}");
        }
    }

    #[test]
    fn request_with_two_tokens_has_none() {
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("bearer one"));
        assert_eq!(bearer_token(&headers), Some("one"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer two"));
        assert_eq!(bearer_token(&headers), None);
    }
}
