//! Configuration of a webhook, in the form that a client sends and in the stored form. The `Debug` output of a
//! configuration omits the secrets.

use std::fmt;
use std::sync::Arc;

use a2a::{A2AError, AuthenticationInfo, TaskPushNotificationConfig};
use allstop_core::TaskId;
use axum::http::HeaderValue;
use serde::{Deserialize, Serialize};
use ulid::Ulid;
use url::Url;

use super::guard::AddressGuard;
use crate::from_wire;
use crate::version::ProtocolVersion;

/// Maximum size of a token in bytes. A few hundred bytes are usual.
const TOKEN_BYTES_MAX: usize = 1_024;
/// Maximum size of credentials in bytes. Usual servers accept request heads of up to 8 kB.
const CREDENTIALS_BYTES_MAX: usize = 4_096;
/// Maximum size of an authentication scheme in bytes. The longest registered scheme has 20 bytes.
const SCHEME_BYTES_MAX: usize = 64;

/// Checked configuration of a webhook.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PushConfig {
    pub(crate) id: Arc<str>,
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) authentication: Option<PushAuthentication>,
    /// Version of the protocol in which the client has set the configuration, and in which the webhook gets the events.
    #[serde(default, skip_serializing_if = "ProtocolVersion::is_v1")]
    pub(crate) version: ProtocolVersion,
}

/// Authentication at a webhook.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PushAuthentication {
    pub(crate) scheme: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credentials: Option<String>,
}

impl PushConfig {
    /// Checks the configuration that a client has sent. Creates an id if the client has chosen none.
    ///
    /// # Errors
    /// Returns an error if a field is too long or cannot be a header, or if the address guard refuses the URL.
    pub(crate) fn from_wire(
        config: TaskPushNotificationConfig,
        version: ProtocolVersion,
        guard: &AddressGuard,
    ) -> Result<Self, A2AError> {
        let id = config.id.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| Ulid::generate().to_string());
        from_wire::check_id("id", &id)?;
        guard
            .check_url(&config.url)
            .map_err(|error| A2AError::invalid_params(format!("url: {error}")))?;
        let token = config.token.filter(|token| !token.is_empty());
        if let Some(token) = &token {
            check_header("token", token, TOKEN_BYTES_MAX)?;
        }
        let authentication = config.authentication.map(authentication).transpose()?;
        Ok(Self {
            id: id.into(),
            url: config.url,
            token,
            authentication,
            version,
        })
    }

    /// Returns the configuration for its owner, including the secrets that the owner has sent.
    pub(crate) fn to_wire(&self, task: &TaskId) -> TaskPushNotificationConfig {
        TaskPushNotificationConfig {
            url: self.url.clone(),
            id: Some(self.id.to_string()),
            task_id: task.to_string(),
            token: self.token.clone(),
            authentication: self
                .authentication
                .as_ref()
                .map(|known| AuthenticationInfo {
                    scheme: known.scheme.clone(),
                    credentials: known.credentials.clone(),
                }),
            tenant: None,
        }
    }

    /// Returns host and port of the webhook, for logs and limits. Omits path and query, which may be secrets.
    pub(crate) fn host_and_port(&self) -> String {
        let url = Url::parse(&self.url).ok();
        let parts = url.and_then(|url| {
            let port = url.port_or_known_default()?;
            Some(format!("{}:{port}", url.host_str()?))
        });
        parts.unwrap_or_default()
    }

    /// True if both configurations are equal except for their ids.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let Self {
            id: _,
            url,
            token,
            authentication,
            version,
        } = self;
        let this = (url, token, authentication, version);
        this == (
            &other.url,
            &other.token,
            &other.authentication,
            &other.version,
        )
    }
}

fn authentication(given: AuthenticationInfo) -> Result<PushAuthentication, A2AError> {
    let AuthenticationInfo {
        scheme,
        credentials,
    } = given;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if scheme.is_empty() || scheme.len() > SCHEME_BYTES_MAX || !scheme.bytes().all(is_token) {
        return Err(A2AError::invalid_params(
            "authentication.scheme must be the name of an HTTP authentication scheme",
        ));
    }
    let credentials = credentials.filter(|credentials| !credentials.is_empty());
    if let Some(credentials) = &credentials {
        check_header(
            "authentication.credentials",
            credentials,
            CREDENTIALS_BYTES_MAX,
        )?;
    }
    Ok(PushAuthentication {
        scheme,
        credentials,
    })
}

/// Checks a header value. The error does not contain the value.
fn check_header(field: &str, value: &str, bytes_max: usize) -> Result<(), A2AError> {
    if value.len() > bytes_max || !value.is_ascii() || HeaderValue::from_str(value).is_err() {
        return Err(A2AError::invalid_params(format!(
            "{field} must have at most {bytes_max} bytes of printable ASCII"
        )));
    }
    Ok(())
}

impl fmt::Debug for PushConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushConfig")
            .field("id", &self.id)
            .field("host", &self.host_and_port())
            .finish_non_exhaustive()
    }
}
