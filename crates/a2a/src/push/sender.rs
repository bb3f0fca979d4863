//! One attempt to deliver one event over HTTP.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_core::{TaskId, error_chain};
use allstop_log::Version;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::config::PushConfig;
use super::guard::AddressGuard;
use super::options::PushOptions;
use super::resolver::GuardedResolver;
use super::retry::AttemptResult;
use super::signature::PushSecret;
use crate::version::ProtocolVersion;

/// Media type of a delivery (A2A 1.0, section 4.3.3).
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/a2a+json");
/// Media type of a delivery in version 0.3.
const MEDIA_TYPE_OF_V0_3: HeaderValue = HeaderValue::from_static("application/json");

const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");
/// Number of the event in the log of its task, as in the ids of server-sent events.
const EVENT_NUMBER: HeaderName = HeaderName::from_static("x-a2a-event-number");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Maximum idle time of a kept connection. The events of a task often follow each other within seconds.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Event of a task for one webhook.
#[derive(Debug)]
pub(crate) struct WebhookEvent {
    pub(crate) number: Version,
    /// Id of the delivery. The id is equal for all attempts at an event, even after a restart, and differs for each
    /// event and each configuration.
    pub(crate) id: String,
    pub(crate) body: String,
}

impl WebhookEvent {
    pub(crate) fn new(task: &TaskId, config: &PushConfig, number: Version, body: String) -> Self {
        // The text is hashed, because an id that a client has chosen may be invalid in a header.
        let hash = Sha256::digest(format!("{task}\n{}\n{number}", config.id));
        let id = hash
            .iter()
            .take(16)
            .fold(String::from("evt_"), |id, byte| format!("{id}{byte:02x}"));
        Self { number, id, body }
    }
}

/// HTTP client of all webhooks. Connects only to addresses that the guard permits, and follows no redirects.
#[derive(Debug)]
pub(crate) struct WebhookClient {
    http: reqwest::Client,
    guard: AddressGuard,
    secret: Option<PushSecret>,
    attempt_max: Duration,
}

impl WebhookClient {
    pub(crate) fn new(options: &PushOptions) -> Result<Self, reqwest::Error> {
        // If the process has already installed a cryptography provider, that provider is kept.
        let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
        let guard = AddressGuard::new(options.allowed.clone());
        let resolver = GuardedResolver {
            resolver: Arc::clone(&options.resolver),
            guard: guard.clone(),
        };
        let http = reqwest::Client::builder()
            .user_agent(concat!("allstop/", env!("CARGO_PKG_VERSION")))
            // With HTTP/1.1, dropping an attempt closes its connection.
            .http1_only()
            // A redirect could lead to an unchecked address, and would send the credentials there.
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would resolve the host itself, without the address guard.
            .no_proxy()
            .dns_resolver(resolver)
            .connect_timeout(options.attempt_max)
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(options.running_per_host_max)
            .build()?;
        Ok(Self {
            http,
            guard,
            secret: options.secret.clone(),
            attempt_max: options.attempt_max,
        })
    }

    /// Sends an event once. Does not read the body of the response.
    ///
    /// # Cancel safety
    /// The event of a dropped attempt may have been delivered.
    pub(crate) async fn attempt(
        &self,
        config: &PushConfig,
        owner: &str,
        event: &WebhookEvent,
    ) -> AttemptResult {
        // The URL is checked again at each attempt, because the rule may have become stricter since the configuration
        // was created. If the URL contains an IP address, the resolver is not called, so the resolver cannot check the
        // address.
        let url = match self.guard.check_url(&config.url) {
            Ok(url) => url,
            Err(refused) => return AttemptResult::Failed(refused.to_string()),
        };
        let sending = self
            .http
            .post(url)
            .headers(self.headers(config, owner, event))
            .body(event.body.clone())
            .send();
        match timeout(self.attempt_max, sending).await {
            Ok(Ok(response)) => {
                let asked = response.headers().get(RETRY_AFTER);
                let asked = asked.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                AttemptResult::Answered(response.status().as_u16(), asked.map(Duration::from_secs))
            }
            Ok(Err(error)) => AttemptResult::Failed(failure(error)),
            Err(_elapsed) => {
                AttemptResult::Failed(format!("no answer within {:?}", self.attempt_max))
            }
        }
    }

    fn headers(&self, config: &PushConfig, owner: &str, event: &WebhookEvent) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let media_type = match config.version {
            ProtocolVersion::V1 => MEDIA_TYPE,
            ProtocolVersion::V0_3 => MEDIA_TYPE_OF_V0_3,
        };
        headers.insert(CONTENT_TYPE, media_type);
        headers.insert(EVENT_NUMBER, HeaderValue::from(event.number.0));
        let unix_seconds = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(unix_seconds));
        let mut insert = |name, value: &str, is_secret| {
            // The values were checked when the configuration was created.
            if let Ok(mut value) = HeaderValue::from_str(value) {
                value.set_sensitive(is_secret);
                headers.insert(name, value);
            }
        };
        insert(WEBHOOK_ID, &event.id, false);
        if let Some(secret) = &self.secret {
            let signature = secret.sign(owner, &event.id, unix_seconds, event.body.as_bytes());
            insert(WEBHOOK_SIGNATURE, &signature, false);
        }
        if let Some(token) = &config.token {
            insert(TOKEN, token, true);
        }
        if let Some(authentication) = &config.authentication
            && let Some(credentials) = &authentication.credentials
        {
            let value = format!("{} {credentials}", authentication.scheme);
            insert(AUTHORIZATION, &value, true);
        }
        headers
    }
}

/// Describes a failed request, without its URL, which may be a secret.
fn failure(error: reqwest::Error) -> String {
    let error = error.without_url();
    let source: &(dyn Error + 'static) = &error;
    error_chain(source)
}
