//! The access token for the requests of a connection, and its renewal.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore as _, InMemoryCredentialStore,
    OAuthClientConfig,
};
use tokio::time::timeout;

use super::ServerLogin;
use super::error::McpLoginError;
use super::token_file::{StoredLogin, TokenLock};

/// Maximum time of a renewal: the discovery of the authorization server, and one request for tokens.
const RENEWAL_MAX: Duration = Duration::from_mins(1);

/// Access tokens of one connection.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct AccessTokens {
    pub(in crate::mcp) login: Arc<ServerLogin>,
    /// Scope of the connection, which owns the renewals.
    pub(in crate::mcp) scope: Scope,
}

impl AccessTokens {
    /// Token for a request. `None` without a usable login.
    ///
    /// # Cancel safety
    /// Dropping the future does not end a renewal.
    pub(in crate::mcp) async fn current(&self) -> Result<Option<String>, McpLoginError> {
        let Some(login) = self.login.file.read(&self.login.url)? else {
            return Ok(None);
        };
        match login.access_token() {
            Some((token, false)) => Ok(Some(token)),
            Some((token, true)) if login.is_renewable() => self.renewed(&token).await,
            _ => Ok(None),
        }
    }

    /// Token that replaces a refused or old one. `None` if the person has to log in.
    ///
    /// # Cancel safety
    /// Dropping the future does not end a renewal.
    pub(in crate::mcp) async fn renewed(&self, old: &str) -> Result<Option<String>, McpLoginError> {
        let (login, old) = (Arc::clone(&self.login), old.to_owned());
        let work = WorkSpec::new(ItemKind::Future, "mcp login renewal");
        let renewal = self.scope.spawn(work, |_| async move {
            let renewed = timeout(RENEWAL_MAX, renew(&login, &old)).await;
            renewed.unwrap_or_else(|_elapsed| {
                let why = format!("the renewal took longer than {RENEWAL_MAX:?}");
                Err(McpLoginError::Failed(why))
            })
        });
        let ending = || McpLoginError::Failed("the connection is ending".to_owned());
        let renewed = renewal.map_err(|_refused| ending())?.await;
        renewed.map_err(|_lost| ending())?
    }
}

/// Renews the tokens, unless another process has renewed them.
async fn renew(login: &ServerLogin, old: &str) -> Result<Option<String>, McpLoginError> {
    let lock = login.file.lock().await?;
    let Some(stored) = login.file.read(&login.url)? else {
        return Ok(None);
    };
    match stored.access_token() {
        Some((token, false)) if token != old => return Ok(Some(token)),
        _ if !stored.is_renewable() => return Ok(None),
        _ => {}
    }
    match request_renewal(login, stored, &lock).await {
        Ok(renewed) => Ok(renewed.access_token().map(|(token, _)| token)),
        Err(RenewalFailed::NeedsLogin) => Ok(None),
        Err(RenewalFailed::Other(error)) => Err(error),
    }
}

enum RenewalFailed {
    NeedsLogin,
    Other(McpLoginError),
}

impl From<AuthError> for RenewalFailed {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => {
                Self::NeedsLogin
            }
            other => Self::Other(McpLoginError::failed(&other)),
        }
    }
}

async fn request_renewal(
    login: &ServerLogin,
    mut stored: StoredLogin,
    lock: &TokenLock,
) -> Result<StoredLogin, RenewalFailed> {
    super::super::tls_provider::choose_tls_provider();
    let mut manager = AuthorizationManager::new(&*login.url).await?;
    let found = manager.resolve_metadata().await?;
    // Tokens of one authorization server are never sent to another one.
    let is_other = match (&stored.credentials.issuer, &found.metadata.issuer) {
        (Some(before), Some(now)) => before != now,
        _ => false,
    };
    if is_other {
        return Err(RenewalFailed::NeedsLogin);
    }
    manager.set_metadata(found.metadata);
    let client_id = stored.credentials.client_id.clone();
    let mut client = OAuthClientConfig::new(client_id, stored.redirect_uri.clone());
    if let Some(secret) = &stored.client_secret {
        client = client.with_client_secret(secret.clone());
    }
    manager.configure_client(client)?;
    let memory = InMemoryCredentialStore::new();
    memory.save(stored.credentials.clone()).await?;
    manager.set_credential_store(memory.clone());
    manager.refresh_token().await?;
    let renewed = memory.load().await?;
    stored.credentials = renewed.ok_or(RenewalFailed::NeedsLogin)?;
    let written = login.file.write(&stored, lock);
    written.map_err(RenewalFailed::Other)?;
    Ok(stored)
}
