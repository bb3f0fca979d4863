//! The access token that a source ([`McpTokenSource`]) has given to one server, and its replacement.
//!
//! A refused call asks for a token and is sent again, because a refused request has no effect. The other calls of the
//! connection continue. A refused connection asks between two attempts. In both cases the waiting future owns the
//! request, so a stop of the call or the end of the server withdraws it.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{Response, StatusCode, Url};
use rmcp::transport::auth::WWWAuthenticateParams;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::limits::{ERROR_BODY_BYTES_MAX, METADATA_WAIT, TOKEN_WAIT_MAX};
use super::token_source::{
    McpChallenge, McpToken, McpTokenReason, McpTokenRequest, McpTokenSource,
};
use super::web_client::web_client;

#[derive(Debug)]
pub(super) struct GivenTokens {
    server: Arc<str>,
    url: Arc<str>,
    source: Arc<dyn McpTokenSource>,
    held: Mutex<HeldToken>,
    /// The last refusal of a request that is no call. `None` while the server is ready.
    refused: Mutex<Option<TokenRefusal>>,
    /// The server has one open request for a token. Other refused calls wait, and use its token.
    asking: Semaphore,
}

/// The current token, with the number of answers so far.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldToken {
    token: Option<McpToken>,
    given: u64,
    declined: u64,
}

impl HeldToken {
    pub(super) fn secret(&self) -> Option<&str> {
        self.token.as_ref().map(McpToken::secret)
    }
}

/// Refusal of a request by the server.
#[derive(Debug, Clone)]
pub(super) struct TokenRefusal {
    challenge: McpChallenge,
    lacks_rights: bool,
    /// The token of the refused request.
    sent: HeldToken,
}

/// Reasons of the earlier requests for a call, or for a connection. A reason is not repeated, so a server that refuses all
/// tokens cannot cause endless requests.
pub(super) type AskedReasons = BTreeSet<McpTokenReason>;

impl TokenRefusal {
    pub(super) fn new(response: &Response, sent: HeldToken) -> Self {
        let challenge = response.headers().get(WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|challenge| challenge.to_str().ok());
        let challenge = challenge.unwrap_or_default();
        let params = WWWAuthenticateParams::parse(challenge, response.url());
        Self {
            lacks_rights: response.status() == StatusCode::FORBIDDEN,
            challenge: McpChallenge {
                resource_metadata_url: params.resource_metadata_url.map(Into::into),
                scope: params.scope,
                error: params.error,
            },
            sent,
        }
    }

    /// Reason of the next request; `None` if no other reason is left.
    fn next_reason(&self, asked: &mut AskedReasons) -> Option<McpTokenReason> {
        let reason = if self.sent.token.is_none() {
            McpTokenReason::Initial
        } else if self.lacks_rights {
            McpTokenReason::Upscope
        } else if asked.contains(&McpTokenReason::Refresh) {
            McpTokenReason::Reauth
        } else {
            McpTokenReason::Refresh
        };
        asked.insert(reason).then_some(reason)
    }
}

impl GivenTokens {
    pub(super) fn new(server: &Arc<str>, url: &Arc<str>, source: Arc<dyn McpTokenSource>) -> Self {
        Self {
            server: Arc::clone(server),
            url: Arc::clone(url),
            source,
            held: Mutex::default(),
            refused: Mutex::default(),
            asking: Semaphore::new(1),
        }
    }

    pub(super) fn held(&self) -> HeldToken {
        self.held.lock().clone()
    }

    pub(super) fn arrivals(&self) -> watch::Receiver<u64> {
        self.source.arrivals()
    }

    pub(super) fn has_handler(&self) -> bool {
        self.source.has_handler()
    }

    /// Stores the refusal of a request that is no call. `None` after the server has become ready.
    pub(super) fn set_refused(&self, refusal: Option<TokenRefusal>) {
        *self.refused.lock() = refusal;
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.lock().is_some()
    }

    /// Like [`GivenTokens::replace`], after the last refusal of the connection.
    pub(super) async fn replace_refused(&self, asked: &mut AskedReasons) -> bool {
        let refusal = self.refused.lock().clone();
        match refusal {
            Some(refusal) => self.replace(&refusal, asked).await,
            None => false,
        }
    }

    /// Replaces a refused token. Returns true if another token can be used.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub(super) async fn replace(&self, refusal: &TokenRefusal, asked: &mut AskedReasons) -> bool {
        let Ok(_asking) = self.asking.acquire().await else {
            return false;
        };
        let held = self.held();
        if held.given > refusal.sent.given {
            return true;
        }
        if held.declined > refusal.sent.declined {
            return false;
        }
        let mut metadata = None;
        while self.has_handler()
            && let Some(reason) = refusal.next_reason(asked)
        {
            if metadata.is_none() {
                metadata = self.metadata(&refusal.challenge).await;
            }
            let request = McpTokenRequest {
                server: Arc::clone(&self.server),
                url: Arc::clone(&self.url),
                reason,
                challenge: refusal.challenge.clone(),
                resource_metadata: metadata.clone(),
            };
            let token = timeout(TOKEN_WAIT_MAX, self.source.token(request)).await;
            let mut held = self.held.lock();
            if let Ok(Some(token)) = token {
                held.token = Some(token);
                held.given += 1;
                return true;
            }
            if reason != McpTokenReason::Refresh {
                held.declined += 1;
                return false;
            }
        }
        false
    }

    /// Reads the document about the server. Only the host of the server is asked, because the refusal could name any
    /// address.
    async fn metadata(&self, challenge: &McpChallenge) -> Option<String> {
        let named = Url::parse(challenge.resource_metadata_url.as_ref()?).ok()?;
        let is_of_server = named.origin() == Url::parse(&self.url).ok()?.origin();
        let client = is_of_server.then(|| web_client(named.as_str()).ok())??;
        let read = async {
            let mut response = client.get(named).send().await.ok()?;
            let mut body = Vec::new();
            if !response.status().is_success() {
                return None;
            }
            while let Some(chunk) = response.chunk().await.ok()? {
                body.extend_from_slice(&chunk);
                if body.len() > ERROR_BODY_BYTES_MAX {
                    return None;
                }
            }
            String::from_utf8(body).ok()
        };
        timeout(METADATA_WAIT, read).await.ok().flatten()
    }
}
