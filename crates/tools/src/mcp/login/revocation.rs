//! The end of a login: the authorization server revokes the tokens (RFC 7009), and their file is removed.

use std::path::Path;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::error::McpLoginError;
use super::token_file::{LoginTokenFile, StoredLogin};
use crate::mcp::config::is_server_name;
use crate::mcp::web_client::web_client;

/// Time limit of a revocation. The tokens are removed from this machine in any case.
const REVOCATION_MAX: Duration = Duration::from_secs(10);

/// Result of the end of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenLogin {
    /// `None` if the authorization server has revoked the tokens, or names no endpoint for this. Otherwise the reason why
    /// the tokens may still be valid.
    pub not_revoked: Option<String>,
}

/// Ends the login at a server: revokes the tokens if the authorization server allows this, and removes them from this
/// machine. `folder` is [`McpOptions::login_folder`](crate::mcp::McpOptions). `None` if there were none. Without a `url`,
/// this ends the logins at all servers with this name.
///
/// # Errors
/// If the name of the server is invalid, or the file with the tokens cannot be removed.
///
/// # Cancel safety
/// Dropping the future may leave the tokens on this machine.
pub async fn forget_login(
    folder: &Path,
    server: &str,
    url: Option<&str>,
) -> Result<Option<ForgottenLogin>, McpLoginError> {
    if !is_server_name(server) {
        return Err(McpLoginError::NotPossible("no server has such a name"));
    }
    let files = match url {
        Some(url) => vec![LoginTokenFile::new(folder, server, url)],
        None => LoginTokenFile::all(folder, server),
    };
    let mut forgotten = None;
    for file in files {
        if file.version().is_none() {
            continue;
        }
        let lock = file.lock().await?;
        // A file that cannot be read is removed, too.
        let not_revoked = match file.read_any() {
            Ok(Some(login)) => revoke(&login).await.err(),
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        };
        if file.remove(&lock)? {
            let before = forgotten
                .take()
                .and_then(|before: ForgottenLogin| before.not_revoked);
            let not_revoked = before.or(not_revoked);
            forgotten = Some(ForgottenLogin { not_revoked });
        }
    }
    Ok(forgotten)
}

/// Revokes the refresh token, which also ends its access tokens, or the only token. The error is a reason for people.
async fn revoke(login: &StoredLogin) -> Result<(), String> {
    let Some(endpoint) = &login.revocation_endpoint else {
        return Ok(());
    };
    let response = login.credentials.token_response.as_ref();
    let response = response.and_then(|response| serde_json::to_value(response).ok());
    let token = |kind: &str| Some(response.as_ref()?.get(kind)?.as_str()?.to_owned());
    let kinds = ["refresh_token", "access_token"];
    let Some((kind, token)) = kinds
        .into_iter()
        .find_map(|kind| Some((kind, token(kind)?)))
    else {
        return Ok(());
    };
    let client = web_client(endpoint)?;
    let mut form = vec![
        ("token", token.as_str()),
        ("token_type_hint", kind),
        ("client_id", &login.credentials.client_id),
    ];
    if let Some(secret) = &login.client_secret {
        form.push(("client_secret", secret));
    }
    // The query of a URL has the encoding of a form.
    let form = reqwest::Url::parse_with_params("http://form.invalid/", &form);
    let form = form.map_err(|error| error.to_string())?;
    let request = client
        .post(endpoint)
        .timeout(REVOCATION_MAX)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form.query().unwrap_or_default().to_owned());
    let answer = request.send().await.map_err(|error| {
        format!(
            "the authorization server cannot be reached: {}",
            error.without_url()
        )
    })?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let body = answer.bytes().await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let error = body
        .get("error")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let error: String = error.chars().filter(plain).take(64).collect();
    Err(
        format!("the authorization server answered with HTTP {status} {error}")
            .trim_end()
            .to_owned(),
    )
}
