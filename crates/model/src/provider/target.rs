//! Finds the URL and the key of a request from a model name and options.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use url::Url;

use super::address::{completions_url, request_url, without_secrets};
use super::carrier::{RequestCarrier, WireProtocol};
use super::known::{KnownProvider, PROVIDERS, by_model, by_name, provider_of};
use super::options::{AnswerLimits, KeyLookup, ProviderOptions, TokenFetch};
use super::protocol::Protocol;
use crate::{ModelError, ModelErrorKind, ModelRequest};

/// A model and the place where it is served.
#[derive(Clone)]
pub(super) struct ModelTarget {
    name: Arc<str>,
    endpoint: Endpoint,
    key: Option<String>,
    key_lookup: Option<KeyLookup>,
    token_fetch: Option<TokenFetch>,
    carrier: Option<Arc<dyn RequestCarrier>>,
    answer_limits: AnswerLimits,
    headers: HeaderMap,
}

#[derive(Clone)]
enum Endpoint {
    Known {
        provider: &'static KnownProvider,
        url: Url,
        /// True if the name matches no known provider. In this case a local Ollama server is assumed.
        guessed: bool,
    },
    /// A server with this URL of requests.
    Server {
        url: Url,
        /// `None` for chat completions.
        protocol: Option<Protocol>,
    },
}

/// URL and key for one call.
pub(super) struct RequestAccess {
    pub(super) url: Url,
    pub(super) key: Option<String>,
    /// Value of the header `authorization` with a token, which is sent in place of a key.
    pub(super) bearer: Option<HeaderValue>,
    pub(super) key_source: KeySource,
    /// Texts that must never be printed.
    pub(super) secrets: Vec<String>,
}

/// Source of the key of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySource {
    /// The configured key.
    Configured,
    /// The provider's environment variable.
    Variable(&'static str),
    /// User name and password in the URL.
    Url,
    /// No key is sent. If the provider has an environment variable for its key, this is the name of the variable.
    Missing(Option<&'static str>),
}

impl KeySource {
    /// Hint for the case that the server refused the key, or refused a request without a key.
    pub(super) fn hint(self) -> String {
        match self {
            Self::Configured => {
                "check the key in the environment variable that `api_key_env` names".into()
            }
            Self::Variable(name) => format!("check the key in {name}"),
            Self::Url => "check the user and the password in the base URL".into(),
            Self::Missing(Some(name)) => format!("no key was sent: set {name}"),
            Self::Missing(None) => {
                "no key was sent: set `api_key_env` in the section `[model]` to the environment variable with the key"
                    .into()
            }
        }
    }
}

impl ModelTarget {
    pub(super) fn new(model: &str, options: ProviderOptions) -> Result<Self, ModelError> {
        if model.trim().is_empty() {
            return Err(ModelError::new(
                ModelErrorKind::NotFound,
                "the model's name is empty",
            ));
        }
        let ProviderOptions {
            base_url,
            protocol,
            key,
            key_lookup,
            token_fetch,
            carrier,
            connect_limit: _,
            answer_limits,
            headers,
        } = options;
        let (name, endpoint) = match base_url {
            Some(url) => (
                model.into(),
                Endpoint::Server {
                    url: match protocol {
                        Some(_) => request_url(&url)?,
                        None => completions_url(&url)?,
                    },
                    protocol: protocol.map(WireProtocol::protocol),
                },
            ),
            None => known(model)?,
        };
        let target = Self {
            name,
            endpoint,
            key,
            key_lookup,
            token_fetch,
            carrier,
            answer_limits,
            headers,
        };
        target.access()?;
        Ok(target)
    }

    /// Name of the model in receipts of stops and in log records.
    pub(super) fn answer_limits(&self) -> AnswerLimits {
        self.answer_limits
    }

    /// Carrier of the requests; `None` for the HTTP client.
    pub(super) fn carrier(&self) -> Option<&Arc<dyn RequestCarrier>> {
        self.carrier.as_ref()
    }

    /// Further headers of each request.
    pub(super) fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name that the provider uses for the model.
    pub(super) fn model(&self) -> &str {
        match (&self.endpoint, self.name.split_once("::")) {
            (Endpoint::Known { .. }, Some((_, model))) => model,
            _ => &self.name,
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        match &self.endpoint {
            Endpoint::Known { provider, .. } => provider.protocol,
            Endpoint::Server {
                protocol: Some(protocol),
                ..
            } => *protocol,
            Endpoint::Server { url, .. } => match provider_of(&self.name, Some(url.as_str())) {
                Some(("openai", _)) => Protocol::OpenAiChat,
                _ => Protocol::ChatCompletions,
            },
        }
    }

    /// The request as JSON.
    ///
    /// # Errors
    /// If the request has a setting that the provider lacks, or an invalid setting.
    pub(super) fn body(&self, request: &ModelRequest) -> Result<Value, ModelError> {
        let body = self.protocol().body(self.model(), request);
        body.map_err(|error| error.of_call(&self.name))
    }

    fn url(&self) -> &Url {
        match &self.endpoint {
            Endpoint::Known { url, .. } | Endpoint::Server { url, .. } => url,
        }
    }

    /// URL of requests as it appears in messages: without credentials and query.
    pub(super) fn shown_url(&self) -> String {
        without_secrets(self.url().as_str())
    }

    /// True if the name matches no known provider. In this case a local Ollama server is assumed.
    pub(super) fn is_guessed(&self) -> bool {
        matches!(&self.endpoint, Endpoint::Known { guessed: true, .. })
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(&self.endpoint, Endpoint::Server { .. })
    }

    pub(super) fn is_loopback(&self) -> bool {
        match self.url().host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        }
    }

    pub(super) fn is_https(&self) -> bool {
        self.url().scheme() == "https"
    }

    /// Returns a target with the same provider but another URL.
    #[cfg(test)]
    pub(super) fn moved_to(mut self, base: &str) -> Self {
        let model = self.model().to_owned();
        if let Endpoint::Known { provider, url, .. } = &mut self.endpoint {
            *url = provider.protocol.url(base, &model).unwrap();
        }
        self
    }

    /// URL and key for a call, with a fresh token if the target has a function that fetches tokens.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request for a token.
    pub(super) async fn access_for_call(&self) -> Result<RequestAccess, ModelError> {
        let mut access = self.access()?;
        if let Some(fetch) = &self.token_fetch {
            let failed = |message| ModelError::new(ModelErrorKind::Unauthorized, message);
            let token = fetch().await.map_err(|error| failed(error.0))?;
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| {
                failed("the token has characters that a header cannot contain".to_owned())
            })?;
            bearer.set_sensitive(true);
            access.secrets.push(token);
            (access.key, access.bearer) = (None, Some(bearer));
        }
        Ok(access)
    }

    /// URL and key for a call. The key is looked up again for each call.
    pub(super) fn access(&self) -> Result<RequestAccess, ModelError> {
        let key = match &self.endpoint {
            Endpoint::Known { provider, .. } => {
                let found = self
                    .key
                    .clone()
                    .or_else(|| (self.key_lookup.as_ref()?)(provider.key_name?));
                let key = found
                    .map(|key| key.trim().to_owned())
                    .filter(|key| !key.is_empty());
                match provider.key_name {
                    Some(name)
                        if key.is_none()
                            && !self.is_loopback()
                            && self.carrier.is_none()
                            && self.token_fetch.is_none() =>
                    {
                        return Err(self.no_key(name));
                    }
                    _ => key,
                }
            }
            Endpoint::Server { .. } => self.key.clone(),
        };
        let url = self.url().clone();
        let key_name = match &self.endpoint {
            Endpoint::Known { provider, .. } => provider.key_name,
            Endpoint::Server { .. } => None,
        };
        let key_source = match (&key, key_name) {
            (Some(_), _) if self.key.is_some() => KeySource::Configured,
            (Some(_), Some(name)) => KeySource::Variable(name),
            _ if url.password().is_some() => KeySource::Url,
            _ => KeySource::Missing(key_name),
        };
        let secrets = key
            .iter()
            .map(String::as_str)
            .chain(url.password())
            .map(str::to_owned)
            .collect();
        Ok(RequestAccess {
            url,
            key,
            bearer: None,
            key_source,
            secrets,
        })
    }

    fn no_key(&self, key_name: &str) -> ModelError {
        let unauthorized = |message| ModelError::new(ModelErrorKind::Unauthorized, message);
        if self.key_lookup.is_none() {
            let message = format!(
                "no key for {}: no key and no key lookup was passed",
                self.name
            );
            return unauthorized(message).with_hint(format!(
                "pass the key, or read it from {key_name} with `ProviderOptions::from_env`"
            ));
        }
        unauthorized(format!("{key_name} is not set (needed for {})", self.name)).with_hint(
            format!("set {key_name}, or use the base URL of your own server"),
        )
    }
}

/// Finds the provider of a model by the namespace of its name (`groq::…`). Without a namespace, finds the provider by
/// the prefix of the name.
fn known(model: &str) -> Result<(Arc<str>, Endpoint), ModelError> {
    let (provider, bare, guessed) = match model.split_once("::") {
        Some((namespace, bare)) => {
            let provider = by_name(namespace).ok_or_else(|| {
                let names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name).collect();
                ModelError::new(
                    ModelErrorKind::NotFound,
                    format!("unknown provider {namespace:?}"),
                )
                .with_hint(format!(
                    "use one of {}, or the base URL of your own server",
                    names.join(", ")
                ))
            })?;
            (provider, bare, false)
        }
        None => match by_model(model) {
            Some(provider) => (provider, model, false),
            None => (
                by_name("ollama").expect("ollama is in the table"),
                model,
                true,
            ),
        },
    };
    let url = provider
        .protocol
        .url(provider.base_url, bare)
        .map_err(|error| {
            ModelError::new(
                ModelErrorKind::NotFound,
                format!("invalid model name {model:?}: {error}"),
            )
        })?;
    let name = format!("{}::{bare}", provider.name).into();
    Ok((
        name,
        Endpoint::Known {
            provider,
            url,
            guessed,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_providers() {
        let named = |model: &str| {
            let options = ProviderOptions {
                key: Some("k".into()),
                ..ProviderOptions::default()
            };
            ModelTarget::new(model, options).map(|target| target.name().to_owned())
        };
        assert_eq!(named("gpt-4o-mini").unwrap(), "openai::gpt-4o-mini");
        assert_eq!(
            named("claude-sonnet-4-6").unwrap(),
            "anthropic::claude-sonnet-4-6"
        );
        assert_eq!(named("groq::x").unwrap(), "groq::x");
        assert_eq!(named("llama3").unwrap(), "ollama::llama3");
        for unknown in ["nonsense::x", "genai_1::x", " "] {
            assert_eq!(
                named(unknown).unwrap_err().kind,
                ModelErrorKind::NotFound,
                "{unknown}"
            );
        }
    }

    #[test]
    fn missing_key_is_reported_before_a_request() {
        for key_lookup in [None, Some(Arc::new(|_: &str| None) as KeyLookup)] {
            let is_looked_up = key_lookup.is_some();
            let options = ProviderOptions {
                key_lookup,
                ..ProviderOptions::default()
            };
            let error = ModelTarget::new("gpt-4o-mini", options).err().unwrap();
            assert_eq!(error.kind, ModelErrorKind::Unauthorized);
            // Without a lookup, the variable may be set.
            assert_eq!(
                error.message.contains("is not set"),
                is_looked_up,
                "{error}"
            );
            let hint = error.hint.unwrap();
            assert!(
                hint.contains("OPENAI_API_KEY") && !hint.contains("--"),
                "{hint}"
            );
        }
    }

    #[test]
    fn base_url_of_openai_is_openai_itself() {
        for (url, protocol) in [
            ("https://api.openai.com/v1", Protocol::OpenAiChat),
            ("https://example.com/v1", Protocol::ChatCompletions),
        ] {
            let options = ProviderOptions {
                base_url: Some(url.into()),
                ..ProviderOptions::default()
            };
            let target = ModelTarget::new("o3", options).unwrap();
            assert_eq!(target.protocol(), protocol, "{url}");
        }
    }

    #[test]
    fn base_url_never_gets_a_looked_up_key() {
        let options = ProviderOptions {
            base_url: Some("http://elsewhere".into()),
            key_lookup: Some(Arc::new(|_| Some("sk-mine".into()))),
            ..ProviderOptions::default()
        };
        let access = ModelTarget::new("gpt-4o-mini", options)
            .unwrap()
            .access()
            .unwrap();
        assert!(access.key.is_none() && access.secrets.is_empty());
    }
}
