//! The access token of a request over HTTP, and the reason of a refusal.

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use reqwest::{RequestBuilder, Response};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::http_client::{HttpClient, HttpResult};
use super::login::McpLoginError;

impl HttpClient {
    /// Sends a request with the access token, if there is one. A refused token is renewed once.
    pub(super) async fn send(&self, request: RequestBuilder) -> HttpResult<Response> {
        let failed = |error: McpLoginError| {
            StreamableHttpError::UnexpectedServerResponse(error.to_string().into())
        };
        let sent = async |request: RequestBuilder, token: Option<&String>| {
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            request.send().await.map_err(StreamableHttpError::Client)
        };
        let Some(access) = &self.access else {
            return sent(request, None).await;
        };
        let again = request.try_clone();
        let token = access.current().await.map_err(failed)?;
        let response = sent(request, token.as_ref()).await?;
        match (token, again) {
            (Some(token), Some(again)) if response.status() == StatusCode::UNAUTHORIZED => {
                match access.renewed(&token).await.map_err(failed)? {
                    Some(new) if new != token => sent(again, Some(&new)).await,
                    _ => Ok(response),
                }
            }
            _ => Ok(response),
        }
    }

    /// Token for a request that is not repeated if the server refuses the token.
    pub(super) async fn token(&self, token: Option<String>) -> Option<String> {
        match &self.access {
            Some(access) => access.current().await.ok().flatten(),
            None => token,
        }
    }

    /// Reason of a refusal, with its remedy. The body is not shown, because it may contain the credentials.
    pub(super) fn refusal(&self, response: &Response) -> Option<String> {
        let status = response.status();
        let challenge = response.headers().get(WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|challenge| challenge.to_str().ok());
        let scopes = challenge.and_then(wanted_scopes);
        let lacks_rights =
            challenge.is_some_and(|challenge| challenge.contains("insufficient_scope"));
        let is_refusal =
            status == StatusCode::UNAUTHORIZED || (status == StatusCode::FORBIDDEN && lacks_rights);
        if !is_refusal {
            return None;
        }
        let server = &self.server;
        let login = self.access.as_ref().zip(challenge);
        Some(match login {
            Some((access, challenge)) => {
                access.login.challenged(challenge);
                match scopes.filter(|_| lacks_rights) {
                    Some(scopes) => {
                        let flags = scopes.split(' ').map(|scope| format!(" --scope {scope}"));
                        let flags: String = flags.collect();
                        format!("it needs more rights; run `allstop mcp login {server}{flags}`")
                    }
                    None => format!(
                        "it refused access with HTTP {status}; run `allstop mcp login {server}`"
                    ),
                }
            }
            None => format!(
                "it refused access with HTTP {status}; set `bearer_token_env` or `headers` to valid credentials in the section `[mcp.servers.{server}]`"
            ),
        })
    }
}

/// Rights that a refusal names, separated by blanks. Characters that no right contains end the list, so the result can be
/// shown.
pub(super) fn wanted_scopes(challenge: &str) -> Option<String> {
    let (_, after) = challenge.split_once("scope=")?;
    let is_scope = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '`' | ',');
    let listed = match after.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default(),
        None => after.split([',', ' ']).next().unwrap_or_default(),
    };
    let scopes = listed.split(' ').filter(|scope| !scope.is_empty());
    let scopes: Vec<_> = scopes
        .take_while(|scope| scope.chars().all(is_scope))
        .collect();
    (!scopes.is_empty()).then(|| scopes.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_scopes_are_plain_words() {
        for (challenge, scopes) in [
            (
                r#"Bearer error="insufficient_scope", scope="a:read b", x="y""#,
                Some("a:read b"),
            ),
            ("Bearer scope=a, x=y", Some("a")),
            (r#"Bearer scope="a `rm`""#, Some("a")),
            ("Bearer", None),
            (r#"Bearer scope="""#, None),
        ] {
            assert_eq!(wanted_scopes(challenge).as_deref(), scopes, "{challenge}");
        }
    }
}
