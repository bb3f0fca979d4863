//! The access token of a request over HTTP, and the reason of a refusal.

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::call_answer::{CallAnswer, RefusedCall};
use super::given_tokens::{HeldToken, TokenRefusal};
use super::http_client::{HttpClient, HttpResult};
use super::login::McpLoginError;
use super::token_origin::TokenOrigin;

impl HttpClient {
    /// Sends a request with the access token, if there is one. A refused token of a login is renewed once.
    pub(super) async fn send(&self, request: RequestBuilder) -> HttpResult<Response> {
        let failed = |error: McpLoginError| {
            StreamableHttpError::UnexpectedServerResponse(error.to_string().into())
        };
        let sent = async |request: RequestBuilder, token: Option<&str>| {
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            request.send().await.map_err(StreamableHttpError::Client)
        };
        let access = match &self.access {
            TokenOrigin::Configured => return sent(request, None).await,
            TokenOrigin::Given(tokens) => return sent(request, tokens.held().secret()).await,
            TokenOrigin::Login(access) => access,
        };
        let again = request.try_clone();
        let token = access.current().await.map_err(failed)?;
        let response = sent(request, token.as_deref()).await?;
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
            TokenOrigin::Login(access) => access.current().await.ok().flatten(),
            TokenOrigin::Given(tokens) => tokens.held().secret().map(str::to_owned),
            TokenOrigin::Configured => token,
        }
    }

    /// The given token of the next request; `None` if no source gives tokens.
    pub(super) fn given_token(&self) -> Option<HeldToken> {
        match &self.access {
            TokenOrigin::Given(tokens) => Some(tokens.held()),
            TokenOrigin::Configured | TokenOrigin::Login(_) => None,
        }
    }

    /// Ends a call whose request lacks a valid token. The call asks for another token, and the connection continues.
    /// Returns the reason of the refusal.
    pub(super) fn refused_call(
        &self,
        message: &ClientJsonRpcMessage,
        response: &Response,
        sent: Option<HeldToken>,
    ) -> Option<String> {
        let (JsonRpcMessage::Request(request), Some(sent)) = (message, sent) else {
            return None;
        };
        let refusal = Refusal::of(response)?;
        let why = self.remedy(&refusal);
        let refused = CallAnswer::NeedsToken(Box::new(RefusedCall {
            refusal: TokenRefusal::new(response, sent),
            why: why.clone(),
        }));
        let is_call = self.calls.answer(&request.id, refused).is_ok();
        is_call.then_some(why)
    }

    /// Reason of a refusal, with its remedy. The body is not shown, because it may contain the credentials.
    pub(super) fn refusal(&self, response: &Response) -> Option<String> {
        let refusal = Refusal::of(response)?;
        match &self.access {
            TokenOrigin::Login(access) => {
                if let Some(challenge) = refusal.challenge {
                    access.login.challenged(challenge);
                }
            }
            TokenOrigin::Given(tokens) => {
                let refusal = TokenRefusal::new(response, tokens.held());
                tokens.set_refused(Some(refusal));
            }
            TokenOrigin::Configured => {}
        }
        Some(self.remedy(&refusal))
    }

    fn remedy(&self, refusal: &Refusal<'_>) -> String {
        let (server, status) = (&self.server, refusal.status);
        let scopes = refusal.challenge.and_then(wanted_scopes);
        match (&self.access, refusal.challenge) {
            (TokenOrigin::Login(_), Some(_)) => match scopes.filter(|_| refusal.lacks_rights) {
                Some(scopes) => {
                    let flags = scopes.split(' ').map(|scope| format!(" --scope {scope}"));
                    let flags: String = flags.collect();
                    format!("it needs more rights; run `allstop mcp login {server}{flags}`")
                }
                None => format!(
                    "it refused access with HTTP {status}; run `allstop mcp login {server}`"
                ),
            },
            (TokenOrigin::Given(tokens), _) if tokens.has_handler() => format!(
                "it refused access with HTTP {status}; the program of the session has to return a valid token"
            ),
            _ => format!(
                "it refused access with HTTP {status}; set `bearer_token_env` or `headers` to valid credentials in the section `[mcp.servers.{server}]`"
            ),
        }
    }
}

/// A response that refuses the credentials.
struct Refusal<'a> {
    status: StatusCode,
    challenge: Option<&'a str>,
    lacks_rights: bool,
}

impl<'a> Refusal<'a> {
    fn of(response: &'a Response) -> Option<Self> {
        let status = response.status();
        let challenge = challenge_of(response);
        let lacks_rights =
            challenge.is_some_and(|challenge| challenge.contains("insufficient_scope"));
        let is_refusal =
            status == StatusCode::UNAUTHORIZED || (status == StatusCode::FORBIDDEN && lacks_rights);
        is_refusal.then_some(Self {
            status,
            challenge,
            lacks_rights,
        })
    }
}

/// Header of a refusal that names the necessary credentials.
fn challenge_of(response: &Response) -> Option<&str> {
    response.headers().get(WWW_AUTHENTICATE)?.to_str().ok()
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
