//! Options of a model that a provider serves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::address::without_secrets;
use super::carrier::{CarrierError, RequestCarrier, WireProtocol};
use crate::{ModelError, ModelErrorKind};

/// Default time limit for setting up a connection (DNS, TCP, TLS). A server that can be reached answers within one
/// second, or within three seconds if the first packet is lost.
pub const CONNECT_LIMIT_DEFAULT: Duration = Duration::from_secs(10);

/// Limits on the data that a provider sends for one call. A longer answer fails with an error of kind `Protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerLimits {
    /// Maximum length of an answer in bytes: text, reasoning and arguments together.
    pub answer_bytes_max: usize,
    /// Maximum length of a server-sent event in bytes.
    pub event_bytes_max: usize,
}

impl AnswerLimits {
    /// Sets the maximum length of an answer in bytes.
    #[must_use]
    pub fn answer_bytes_max(mut self, answer_bytes_max: usize) -> Self {
        self.answer_bytes_max = answer_bytes_max;
        self
    }

    /// Sets the maximum length of a server-sent event in bytes.
    #[must_use]
    pub fn event_bytes_max(mut self, event_bytes_max: usize) -> Self {
        self.event_bytes_max = event_bytes_max;
        self
    }

    /// Default of [`answer_bytes_max`](Self::answer_bytes_max). The longest outputs of current models have 128,000
    /// tokens, which take about a third of this limit. The limit is low because each stage between the provider and the
    /// log holds a copy of the answer.
    pub const ANSWER_BYTES_DEFAULT: usize = 2 * 1024 * 1024;

    /// Default of [`event_bytes_max`](Self::event_bytes_max). In some protocols the last event repeats the whole answer,
    /// and escape sequences make it longer.
    pub const EVENT_BYTES_DEFAULT: usize = 16 * 1024 * 1024;
}

impl Default for AnswerLimits {
    fn default() -> Self {
        Self {
            answer_bytes_max: Self::ANSWER_BYTES_DEFAULT,
            event_bytes_max: Self::EVENT_BYTES_DEFAULT,
        }
    }
}

/// Returns the API key for the name of an environment variable (`OPENAI_API_KEY`). The model asks this function again
/// for each model call.
pub type KeyLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Fetches a bearer token for one request. The model never keeps a token for another request.
pub type TokenFetch =
    Arc<dyn Fn() -> BoxFuture<'static, Result<String, CarrierError>> + Send + Sync>;

/// Place where a model is served, and the key for it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProviderOptions {
    /// URL of an OpenAI-compatible server. If it is set, the name of the model is sent unchanged.
    pub base_url: Option<String>,
    /// Protocol of the server at `base_url`, which then is the URL of requests. `None` if the protocol and the end of the URL
    /// are derived from `base_url`.
    pub protocol: Option<WireProtocol>,
    /// Key to send. No other key is ever sent to `base_url`.
    pub key: Option<String>,
    /// Function that finds the key of a known provider. `None` if no key is looked up.
    pub key_lookup: Option<KeyLookup>,
    /// Function that fetches a bearer token for each request, in place of any key.
    pub token_fetch: Option<TokenFetch>,
    /// Carrier of the requests; `None` for the HTTP client of this crate. A carrier may add the key, so a missing key is no
    /// error.
    pub carrier: Option<Arc<dyn RequestCarrier>>,
    /// Time limit for setting up a connection; `None` if there is no limit.
    pub connect_limit: Option<Duration>,
    /// Limits on the data of one call.
    pub answer_limits: AnswerLimits,
    /// Further headers of each request. They may contain secrets, so they are never printed.
    pub headers: HeaderMap,
}

impl Default for ProviderOptions {
    fn default() -> Self {
        Self {
            base_url: None,
            protocol: None,
            key: None,
            key_lookup: None,
            token_fetch: None,
            carrier: None,
            connect_limit: Some(CONNECT_LIMIT_DEFAULT),
            answer_limits: AnswerLimits::default(),
            headers: HeaderMap::new(),
        }
    }
}

impl ProviderOptions {
    /// Options with which the model reads its key from the environment: `OPENAI_API_KEY`, `ANTHROPIC_API_KEY` and so on.
    /// The variable is read again for each call. No other function of this crate reads the environment.
    pub fn from_env() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the caller asks for the environment"
        )]
        let lookup = |name: &str| std::env::var(name).ok();
        Self {
            key_lookup: Some(Arc::new(lookup)),
            ..Self::default()
        }
    }

    /// Sets the URL of an OpenAI-compatible server.
    #[must_use]
    pub fn base_url(mut self, base_url: impl Into<Option<String>>) -> Self {
        self.base_url = base_url.into();
        self
    }

    /// Sets the protocol of the server at `base_url`, which then is the URL of requests.
    #[must_use]
    pub fn protocol(mut self, protocol: impl Into<Option<WireProtocol>>) -> Self {
        self.protocol = protocol.into();
        self
    }

    /// Sets the function that fetches a bearer token for each request.
    #[must_use]
    pub fn token_fetch(mut self, token_fetch: impl Into<Option<TokenFetch>>) -> Self {
        self.token_fetch = token_fetch.into();
        self
    }

    /// Sets the carrier of the requests.
    #[must_use]
    pub fn carrier(mut self, carrier: impl Into<Option<Arc<dyn RequestCarrier>>>) -> Self {
        self.carrier = carrier.into();
        self
    }

    /// Sets the key to send.
    #[must_use]
    pub fn key(mut self, key: impl Into<Option<String>>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets the function that finds the key of a known provider.
    #[must_use]
    pub fn key_lookup(mut self, key_lookup: KeyLookup) -> Self {
        self.key_lookup = Some(key_lookup);
        self
    }

    /// Sets the time limit for setting up a connection.
    #[must_use]
    pub fn connect_limit(mut self, connect_limit: impl Into<Option<Duration>>) -> Self {
        self.connect_limit = connect_limit.into();
        self
    }

    /// Sets the limits on the data of one call.
    #[must_use]
    pub fn answer_limits(mut self, answer_limits: AnswerLimits) -> Self {
        self.answer_limits = answer_limits;
        self
    }

    /// Adds headers, which each request contains in addition to its own headers.
    ///
    /// # Errors
    /// Returns an error that names the first header with an invalid name or value.
    pub fn with_headers<'a>(
        mut self,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ModelError> {
        for (name, value) in headers {
            let parsed = HeaderName::try_from(name)
                .ok()
                .zip(HeaderValue::try_from(value).ok());
            let (name, mut value) = parsed.ok_or_else(|| {
                ModelError::new(ModelErrorKind::Invalid, format!("invalid header {name:?}"))
            })?;
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        Ok(self)
    }
}

impl fmt::Debug for ProviderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderOptions")
            .field("base_url", &self.base_url.as_deref().map(without_secrets))
            .field("connect_limit", &self.connect_limit)
            .field("answer_limits", &self.answer_limits)
            .finish_non_exhaustive()
    }
}
