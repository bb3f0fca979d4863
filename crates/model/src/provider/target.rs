//! Resolves a model name and options to the URL and key of a request.

use std::sync::Arc;

use url::Url;

use super::address::{completions_url, without_secrets};
use super::known::{KnownProvider, PROVIDERS, by_model, by_name};
use super::options::{KeyLookup, ProviderOptions};
use super::protocol::Protocol;
use crate::{ModelError, ModelErrorKind};

/// A model and its location.
#[derive(Clone)]
pub(super) struct Target {
    name: Arc<str>,
    place: Place,
    key: Option<String>,
    key_lookup: KeyLookup,
}

#[derive(Clone)]
enum Place {
    Known {
        provider: &'static KnownProvider,
        url: Url,
        /// True if the name is unknown, so that a local Ollama is assumed.
        guessed: bool,
    },
    /// An OpenAI-compatible server.
    Server { url: Url },
}

/// URL and key for one call.
pub(super) struct Access {
    pub(super) url: Url,
    pub(super) key: Option<String>,
    /// Texts that must never be printed.
    pub(super) secrets: Vec<String>,
}

impl Target {
    pub(super) fn new(model: &str, options: ProviderOptions) -> Result<Self, ModelError> {
        if model.trim().is_empty() {
            return Err(ModelError::new(
                ModelErrorKind::NotFound,
                "the model's name is empty",
            ));
        }
        let ProviderOptions {
            base_url,
            key,
            key_lookup,
            connect_limit: _,
        } = options;
        let (name, place) = match base_url {
            Some(url) => (
                model.into(),
                Place::Server {
                    url: completions_url(&url)?,
                },
            ),
            None => known(model)?,
        };
        let target = Self {
            name,
            place,
            key,
            key_lookup,
        };
        target.access()?;
        Ok(target)
    }

    /// Name for receipts and records.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The provider's name for the model.
    pub(super) fn model(&self) -> &str {
        match (&self.place, self.name.split_once("::")) {
            (Place::Known { .. }, Some((_, model))) => model,
            _ => &self.name,
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        match &self.place {
            Place::Known { provider, .. } => provider.protocol,
            Place::Server { .. } => Protocol::ChatCompletions,
        }
    }

    fn url(&self) -> &Url {
        match &self.place {
            Place::Known { url, .. } | Place::Server { url } => url,
        }
    }

    /// URL of requests, for messages: without credentials and query.
    pub(super) fn shown_url(&self) -> String {
        without_secrets(self.url().as_str())
    }

    /// Environment variable for the look-up of the key.
    pub(super) fn key_name(&self) -> Option<&'static str> {
        match &self.place {
            Place::Known { provider, .. } => provider.key_name,
            Place::Server { .. } => None,
        }
    }

    /// True if the name is unknown, so that a local Ollama is assumed.
    pub(super) fn is_guessed(&self) -> bool {
        matches!(&self.place, Place::Known { guessed: true, .. })
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(&self.place, Place::Server { .. })
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

    /// The same provider at another URL.
    #[cfg(test)]
    pub(super) fn moved_to(mut self, base: &str) -> Self {
        let model = self.model().to_owned();
        if let Place::Known { provider, url, .. } = &mut self.place {
            *url = provider.protocol.url(base, &model).unwrap();
        }
        self
    }

    /// URL and key for a call, with the present key.
    pub(super) fn access(&self) -> Result<Access, ModelError> {
        let key = match &self.place {
            Place::Known { provider, .. } => {
                let found = self
                    .key
                    .clone()
                    .or_else(|| (self.key_lookup)(provider.key_name?));
                let key = found
                    .map(|key| key.trim().to_owned())
                    .filter(|key| !key.is_empty());
                match provider.key_name {
                    Some(name) if key.is_none() && !self.is_loopback() => {
                        return Err(self.no_key(name));
                    }
                    _ => key,
                }
            }
            Place::Server { .. } => self.key.clone(),
        };
        let url = self.url().clone();
        let secrets = key
            .iter()
            .map(String::as_str)
            .chain(url.password())
            .map(str::to_owned)
            .collect();
        Ok(Access { url, key, secrets })
    }

    fn no_key(&self, key_name: &str) -> ModelError {
        ModelError::new(
            ModelErrorKind::Unauthorized,
            format!("there is no key for {}", self.name),
        )
        .with_hint(format!(
            "set {key_name}, or use --base-url with a server of your own"
        ))
    }
}

/// Finds the provider of a model by its namespace (`groq::…`), or else by the prefix of its name.
fn known(model: &str) -> Result<(Arc<str>, Place), ModelError> {
    let (provider, bare, guessed) = match model.split_once("::") {
        Some((namespace, bare)) => {
            let provider = by_name(namespace).ok_or_else(|| {
                let names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name).collect();
                ModelError::new(
                    ModelErrorKind::NotFound,
                    format!("no provider is called {namespace:?}"),
                )
                .with_hint(format!("use one of {}, or --base-url", names.join(", ")))
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
                format!("{model:?} does not name a model: {error}"),
            )
        })?;
    let name = format!("{}::{bare}", provider.name).into();
    Ok((
        name,
        Place::Known {
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
            Target::new(model, options).map(|target| target.name().to_owned())
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
        let error = Target::new("gpt-4o-mini", ProviderOptions::default())
            .err()
            .unwrap();
        assert_eq!(error.kind, ModelErrorKind::Unauthorized);
        assert!(error.hint.unwrap().contains("OPENAI_API_KEY"));
    }

    #[test]
    fn base_url_never_gets_a_looked_up_key() {
        let options = ProviderOptions {
            base_url: Some("http://elsewhere".into()),
            key_lookup: Arc::new(|_| Some("sk-mine".into())),
            ..ProviderOptions::default()
        };
        let access = Target::new("gpt-4o-mini", options)
            .unwrap()
            .access()
            .unwrap();
        assert!(access.key.is_none() && access.secrets.is_empty());
    }
}
