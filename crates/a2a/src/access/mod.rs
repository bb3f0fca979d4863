//! Access control of the operations. Each request is authenticated. Then the request counts for the rate limit of its
//! principal, who is the authenticated sender.

mod jwks;
mod jwks_file;
mod jwks_url;
mod jwt;
mod principal;
mod rate_limit;
mod ring_verifier;
mod token_file;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use a2a::A2AError;
use axum::http::{HeaderMap, HeaderValue};
use futures::future::BoxFuture;

use crate::overload::Overload;

pub use jwks::{JwksError, JwtKeySet};
pub use jwks_file::JwksFile;
pub use jwks_url::{JwksRefreshTimes, JwksUrl, refresh_keys};
pub use jwt::{JWT_PRINCIPAL_PREFIX, JwtAuthenticator};
pub use principal::{
    ANONYMOUS, Authenticator, InvalidPrincipal, NoAuthentication, Principal, Unauthenticated,
    principal_of_headers,
};
pub(crate) use principal::{authenticate, principal_of};
use rate_limit::RateLimiter;
pub use token_file::{TokenFile, TokenFileError};

/// Value of `WWW-Authenticate` in refusals (RFC 6750, section 3).
pub(crate) const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer");

/// Admission of requests, shared by all bindings. Clones share the counts of the rate limit.
#[derive(Clone)]
pub struct AccessControl {
    authenticator: Arc<dyn Authenticator>,
    rate_limit: Option<Arc<RateLimiter>>,
}

/// Reason why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessRefusal {
    /// The request has no valid credentials. The text names the required credentials for the client.
    Unauthenticated(&'static str),
    /// The principal has sent too many requests.
    TooManyRequests { retry_after: Duration },
}

impl AccessControl {
    /// Creates an access control that admits the requests that this authenticator accepts.
    pub fn new(authenticator: Arc<dyn Authenticator>) -> Self {
        Self {
            authenticator,
            rate_limit: None,
        }
    }

    /// Sets the rate limit of each principal: `per_second` requests per second, in bursts of at most `per_second`
    /// requests.
    #[must_use]
    pub fn rate_limit(mut self, per_second: NonZeroU32) -> Self {
        self.rate_limit = Some(Arc::new(RateLimiter::new(per_second)));
        self
    }

    /// Replaces the principal in the headers by the result of the authenticator, and counts the request.
    pub(crate) fn admit(&self, headers: &mut HeaderMap, now: Instant) -> Result<(), AccessRefusal> {
        let principal = authenticate(&*self.authenticator, headers).map_err(|Unauthenticated| {
            AccessRefusal::Unauthenticated(self.authenticator.requirement())
        })?;
        if let Some(limit) = &self.rate_limit {
            limit
                .take(&principal, now)
                .map_err(|retry_after| AccessRefusal::TooManyRequests { retry_after })?;
        }
        Ok(())
    }
}

impl AccessControl {
    /// Resolves when the credentials of an admitted request are revoked.
    pub(crate) fn revoked(&self, headers: &HeaderMap) -> BoxFuture<'static, ()> {
        self.authenticator.revoked(headers)
    }
}

impl AccessRefusal {
    /// Response header with the remedy: the required authentication, or the time to wait.
    pub(crate) fn header(self) -> (axum::http::HeaderName, HeaderValue) {
        match self {
            Self::Unauthenticated(_) => (axum::http::header::WWW_AUTHENTICATE, CHALLENGE),
            Self::TooManyRequests { retry_after } => {
                let value = HeaderValue::from(whole_seconds(retry_after));
                (axum::http::header::RETRY_AFTER, value)
            }
        }
    }

    /// The refusal as an error of the protocol, like that of a server that takes no more tasks. `None` for a client
    /// without credentials, whose error has no code.
    pub(crate) fn overload_error(self) -> Option<A2AError> {
        match self {
            Self::Unauthenticated(_) => None,
            Self::TooManyRequests { retry_after } => {
                let seconds = whole_seconds(retry_after).to_string();
                Some(Overload::Full.error_after(self.to_string(), &seconds))
            }
        }
    }
}

/// The time rounded up to whole seconds, so that a client that waits for this time is admitted.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

impl fmt::Display for AccessRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unauthenticated(requirement) => requirement,
            Self::TooManyRequests { .. } => "too many requests: wait for the time in Retry-After",
        })
    }
}

impl fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessControl")
            .field("rate_limit", &self.rate_limit)
            .finish_non_exhaustive()
    }
}
