//! One login of a person, from the address for the browser to the stored tokens.

use std::time::Duration;

use rmcp::transport::auth::{
    AuthorizationCallback, AuthorizationManager, AuthorizationMetadata, CredentialStore as _,
    InMemoryCredentialStore, OAuthClientConfig,
};
use tokio::time::timeout;

use super::ServerLogin;
use super::error::McpLoginError;
use super::loopback::Loopback;
use super::token_file::StoredLogin;
use crate::mcp::server::McpServer;
use crate::mcp::url_query::without_queries;

/// Maximum time of the requests before the person logs in, and of those after it.
const REQUESTS_MAX: Duration = Duration::from_mins(1);

/// Maximum wait for the person. Authorization servers keep a login for about ten minutes.
const PERSON_WAIT_MAX: Duration = Duration::from_mins(10);

/// Name of the client at authorization servers.
const CLIENT_NAME: &str = "Allstop";

/// Identity of this client at the authorization server. `Debug` hides the secret.
#[derive(Clone, Default)]
pub enum LoginClient {
    /// The client registers itself for each login.
    #[default]
    Dynamic,
    /// A client that is registered at the authorization server, or the HTTPS address of a document that describes the
    /// client.
    Registered {
        /// Id of the client.
        id: String,
        /// Secret of the client, if it has one.
        secret: Option<String>,
    },
}

impl std::fmt::Debug for LoginClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dynamic => f.write_str("Dynamic"),
            Self::Registered { id, .. } => f.debug_tuple("Registered").field(id).finish(),
        }
    }
}

/// Options of a login.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LoginOptions {
    /// The client.
    pub client: LoginClient,
    /// Rights to request. If empty, the client requests the rights that the server names.
    pub scopes: Vec<String>,
    /// Port of this machine to which the browser returns; 0 means any free port.
    pub port: u16,
}

impl LoginOptions {
    /// Sets the client.
    #[must_use]
    pub fn client(mut self, client: LoginClient) -> Self {
        self.client = client;
        self
    }

    /// Sets the rights to request.
    #[must_use]
    pub fn scopes(mut self, scopes: Vec<String>) -> Self {
        self.scopes = scopes;
        self
    }

    /// Sets the port of this machine to which the browser returns.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
}

/// A login that waits for the person.
pub struct McpLogin<'a> {
    login: &'a ServerLogin,
    manager: Box<AuthorizationManager>,
    memory: InMemoryCredentialStore,
    loopback: Loopback,
    client_secret: Option<String>,
    revocation_endpoint: Option<String>,
    address: String,
}

impl std::fmt::Debug for McpLogin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("McpLogin").field(&self.login.server).finish()
    }
}

impl<'a> McpLogin<'a> {
    /// Finds the authorization server, and registers the client if necessary.
    ///
    /// # Errors
    /// If the server offers no login, or the login cannot begin.
    ///
    /// # Cancel safety
    /// Dropping the future may leave an unused registration at the authorization server.
    pub async fn begin(
        server: &'a McpServer,
        options: LoginOptions,
    ) -> Result<Self, McpLoginError> {
        let login = server.login.as_deref().ok_or(McpLoginError::NotPossible(
            "a login needs a server with a `url`, and neither `bearer_token_env` nor the header `authorization`",
        ))?;
        let begun = Box::pin(timeout(REQUESTS_MAX, Self::prepare(login, options))).await;
        begun.unwrap_or(Err(too_long()))
    }

    async fn prepare(login: &'a ServerLogin, options: LoginOptions) -> Result<Self, McpLoginError> {
        let loopback = Loopback::listen(options.port).await?;
        let failed = |error| McpLoginError::failed(&error);
        super::super::tls_provider::choose_tls_provider();
        let mut manager = AuthorizationManager::new(&*login.url)
            .await
            .map_err(failed)?;
        let memory = InMemoryCredentialStore::new();
        manager.set_credential_store(memory.clone());
        let challenge = login.challenge();
        let found = manager
            .resolve_metadata_from_challenge(challenge.as_deref())
            .await;
        let found = found.map_err(failed)?;
        let is_discovered = found.source.is_discovered();
        if is_discovered {
            check_pkce(&found.metadata)?;
        }
        let revocation = found.metadata.additional_fields.get("revocation_endpoint");
        let revocation_endpoint = revocation.and_then(|url| Some(url.as_str()?.to_owned()));
        manager.set_metadata(found.metadata);
        let mut scopes = options.scopes;
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        // A new login keeps the rights that the person has granted before.
        let before = login.file.read(&login.url).ok().flatten();
        for scope in before
            .into_iter()
            .flat_map(|before| before.credentials.granted_scopes)
        {
            if !scopes.is_empty() && !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
        let client_secret = match options.client {
            LoginClient::Registered { id, secret } => {
                let mut client = OAuthClientConfig::new(id, loopback.redirect());
                if let Some(secret) = &secret {
                    client = client.with_client_secret(secret.clone());
                }
                manager.configure_client(client).map_err(failed)?;
                secret
            }
            LoginClient::Dynamic => {
                let registered = manager.register_client(CLIENT_NAME, loopback.redirect(), &scopes);
                let registered = registered.await.map_err(|error| {
                    let error = McpLoginError::failed(&error);
                    if is_discovered {
                        error
                    } else {
                        McpLoginError::Failed(format!("the server offers no login ({error})"))
                    }
                });
                registered?.client_secret
            }
        };
        let address = manager
            .get_authorization_url(&scopes)
            .await
            .map_err(failed)?;
        // A browser must not get an address that is no page, such as that of a file or a script.
        if !address.starts_with("https://") && !address.starts_with("http://") {
            let why = "the page of the authorization server has no web address";
            return Err(McpLoginError::Failed(why.to_owned()));
        }
        Ok(Self {
            login,
            manager: Box::new(manager),
            memory,
            loopback,
            client_secret,
            revocation_endpoint,
            address,
        })
    }

    /// Address that the person opens in a browser on this machine.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Waits until the person has logged in, and stores the tokens.
    ///
    /// # Errors
    /// If the person refuses or does not come back within ten minutes, or if the tokens cannot be stored.
    ///
    /// # Cancel safety
    /// Dropping the future ends the login. Tokens that were granted at this moment are not stored.
    pub async fn finish(self) -> Result<(), McpLoginError> {
        let state = query_value(&self.address, "state");
        let returned = timeout(PERSON_WAIT_MAX, self.loopback.returned(state)).await;
        let returned = returned.map_err(|_elapsed| McpLoginError::Expired(PERSON_WAIT_MAX))??;
        let callback = AuthorizationCallback::from_redirect_url(&returned)
            .map_err(|_error| McpLoginError::Refused(refusal(&returned)))?;
        let stored = Box::pin(timeout(REQUESTS_MAX, self.store(callback))).await;
        stored.unwrap_or(Err(too_long()))
    }

    async fn store(self, callback: AuthorizationCallback) -> Result<(), McpLoginError> {
        let failed = |error| McpLoginError::failed(&error);
        let exchanged = self.manager.exchange_code_for_token_with_issuer(
            &callback.code,
            &callback.csrf_token,
            callback.issuer.as_deref(),
        );
        exchanged.await.map_err(failed)?;
        let credentials = self.memory.load().await.map_err(failed)?;
        let stored = StoredLogin {
            url: self.login.url.to_string(),
            client_secret: self.client_secret,
            redirect_uri: self.loopback.redirect().to_owned(),
            revocation_endpoint: self.revocation_endpoint,
            credentials: credentials
                .ok_or_else(|| McpLoginError::Failed("it got no token".to_owned()))?,
        };
        let lock = self.login.file.lock().await?;
        self.login.file.write(&stored, &lock)
    }
}

/// Refuses an authorization server whose metadata names no PKCE methods (MCP 2025-11-25, section "Authorization Code
/// Protection"). Without PKCE, another program can use the code of the login. Assumed endpoints have no metadata.
fn check_pkce(metadata: &AuthorizationMetadata) -> Result<(), McpLoginError> {
    if metadata.code_challenge_methods_supported.is_some() {
        return Ok(());
    }
    let issuer = metadata.issuer.as_deref();
    let name = without_queries(issuer.unwrap_or(&metadata.authorization_endpoint));
    Err(McpLoginError::Failed(format!(
        "the metadata of the authorization server {name} lacks `code_challenge_methods_supported`, so it offers no \
         PKCE; ask its operator to add the field with `S256`"
    )))
}

fn too_long() -> McpLoginError {
    McpLoginError::Failed(format!("it took longer than {REQUESTS_MAX:?}"))
}

/// Value of a parameter in the query of an address, as it is written there. Empty if the query has no such parameter.
fn query_value<'a>(address: &'a str, name: &str) -> &'a str {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(key, _)| *key == name);
    found.map_or("", |(_, value)| value)
}

/// Reason in a redirect without a code, such as `access_denied`.
fn refusal(returned: &str) -> String {
    let error = query_value(returned, "error");
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let error: String = error.chars().filter(plain).take(64).collect();
    if error.is_empty() {
        "the browser returned without a reason".to_owned()
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_a_refusal_is_a_word() {
        let at = |query: &str| refusal(&format!("http://127.0.0.1:1/callback?{query}"));
        assert_eq!(at("error=access_denied&state=SECRET"), "access_denied");
        assert_eq!(at("error=%1b[2Ja"), "1b2Ja");
        assert_eq!(at("state=SECRET"), "the browser returned without a reason");
    }
}
