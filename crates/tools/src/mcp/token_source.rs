//! Source of access tokens outside this process, such as a program that has opened a session.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::watch;

/// Source of access tokens for the servers of a session.
pub trait McpTokenSource: fmt::Debug + Send + Sync {
    /// True if a request reaches a handler now.
    fn has_handler(&self) -> bool;

    /// Number of handlers that have arrived so far. A refused server asks again after each arrival.
    fn arrivals(&self) -> watch::Receiver<u64>;

    /// Requests a token. `None` if the request is declined, or if its last handler leaves.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    fn token(&self, request: McpTokenRequest) -> BoxFuture<'_, Option<McpToken>>;
}

/// A request for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpTokenRequest {
    /// Name of the server.
    pub server: Arc<str>,
    /// URL of the server.
    pub url: Arc<str>,
    /// Reason of the request.
    pub reason: McpTokenReason,
    /// Parameters of the server's refusal.
    pub challenge: McpChallenge,
    /// JSON document about the server (RFC 9728), if the refusal names it and the host of the server returns it.
    pub resource_metadata: Option<String>,
}

/// Reason of a request for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum McpTokenReason {
    /// The server has no token yet.
    Initial,
    /// The server refused its token, for example because the token has expired.
    Refresh,
    /// A refresh was declined, or did not help.
    Reauth,
    /// The token lacks rights.
    Upscope,
}

/// Parameters of a refusal: the header `WWW-Authenticate`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpChallenge {
    /// URL of the document about the server.
    pub resource_metadata_url: Option<String>,
    /// Rights that the server wants, separated by blanks.
    pub scope: Option<String>,
    /// Code of the error.
    pub error: Option<String>,
}

/// An access token, in memory only. `Debug` hides it.
#[derive(Clone)]
pub struct McpToken(Arc<str>);

impl McpToken {
    /// Creates a token of the type `Bearer`. `None` if a header cannot contain the token.
    pub fn bearer(token: &str) -> Option<Self> {
        let fits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(token.into()))
    }

    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for McpToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpToken")
    }
}
