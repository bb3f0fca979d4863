//! From a name and options to where a request goes, and with which key.

use std::sync::Arc;

use futures::FutureExt;
use genai::adapter::AdapterKind;
use genai::chat::{ChatOptions, FnSink};
use genai::resolver::{AuthData, Endpoint};
use genai::{ClientConfig, Headers, ModelIden, ServiceTarget};
use serde_json::json;
use url::Url;

use super::address::{completions_url, without_secrets};
use super::events::FrameWatch;
use super::{KeyLookup, ProviderOptions};
use crate::{ModelError, ModelErrorKind, ModelRequest};

/// What genai is told instead of the model's name at a base URL, because it reads meaning into names (`a::b`, `…-high`).
/// The name itself is put into the body, literally.
const LITERAL: &str = "literal";

/// A model at a place.
#[derive(Clone)]
pub(super) struct Target {
    name: Arc<str>,
    place: Place,
    key: Option<String>,
    key_lookup: KeyLookup,
}

#[derive(Clone)]
enum Place {
    /// A provider that genai knows. The authentication in it is a placeholder.
    Known {
        target: ServiceTarget,
        key_name: Option<&'static str>,
        guessed: bool,
    },
    /// An OpenAI-compatible server.
    Server { url: Url },
}

/// What one call needs to get in.
pub(super) struct Access {
    target: ServiceTarget,
    secrets: Vec<String>,
}

impl Access {
    pub(super) fn into_target(self) -> ServiceTarget {
        self.target
    }

    /// What must not be printed.
    pub(super) fn secrets(&self) -> &[String] {
        &self.secrets
    }
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

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where requests go, for messages: without credentials and query.
    pub(super) fn shown_url(&self) -> String {
        without_secrets(match &self.place {
            Place::Known { target, .. } => target.endpoint.base_url(),
            Place::Server { url } => url.as_str(),
        })
    }

    /// The name of the environment variable that the key is looked up by.
    pub(super) fn key_name(&self) -> Option<&'static str> {
        match &self.place {
            Place::Known { key_name, .. } => *key_name,
            Place::Server { .. } => None,
        }
    }

    /// Whether the name meant nothing to genai, which then assumes a local Ollama.
    pub(super) fn is_guessed(&self) -> bool {
        matches!(&self.place, Place::Known { guessed: true, .. })
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(&self.place, Place::Server { .. })
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.url().is_some_and(|url| match url.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        })
    }

    pub(super) fn is_https(&self) -> bool {
        self.url().is_none_or(|url| url.scheme() == "https")
    }

    fn url(&self) -> Option<Url> {
        match &self.place {
            Place::Known { target, .. } => Url::parse(target.endpoint.base_url()).ok(),
            Place::Server { url } => Some(url.clone()),
        }
    }

    /// The same provider somewhere else.
    #[cfg(test)]
    pub(super) fn moved_to(mut self, url: &str) -> Self {
        if let Place::Known { target, .. } = &mut self.place {
            target.endpoint = Endpoint::from_owned(url);
        }
        self
    }

    /// The way in, with the key as it is now.
    pub(super) fn access(&self) -> Result<Access, ModelError> {
        let mut secrets: Vec<String> = Vec::new();
        let target = match &self.place {
            Place::Known {
                target, key_name, ..
            } => {
                let found = self.key.clone().or_else(|| (self.key_lookup)((*key_name)?));
                let key = found
                    .map(|key| key.trim().to_owned())
                    .filter(|key| !key.is_empty());
                let auth = match (key, key_name) {
                    (Some(key), _) => {
                        secrets.push(key.clone());
                        AuthData::Key(key)
                    }
                    (None, Some(_)) if self.is_loopback() => AuthData::None,
                    (None, Some(key_name)) => return Err(self.no_key(key_name)),
                    // It wants none; the adapters ask for something all the same.
                    (None, None) => AuthData::Key("none".into()),
                };
                ServiceTarget {
                    auth,
                    ..target.clone()
                }
            }
            Place::Server { url } => {
                let mut headers = Headers::default();
                if let Some(key) = &self.key {
                    secrets.push(key.clone());
                    headers.merge(("Authorization", format!("Bearer {key}")));
                }
                secrets.extend(url.password().map(str::to_owned));
                ServiceTarget {
                    endpoint: Endpoint::from_owned(url.as_str()),
                    auth: AuthData::RequestOverride {
                        url: url.to_string(),
                        headers,
                    },
                    model: ModelIden::from_static(AdapterKind::OpenAI, LITERAL),
                }
            }
        };
        Ok(Access { target, secrets })
    }

    /// What genai is told about one call.
    pub(super) fn chat_options(
        &self,
        request: &ModelRequest,
        frames: Arc<FrameWatch>,
    ) -> ChatOptions {
        let mut options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_tool_calls(true);
        options.raw_frame_sink = Some(Arc::new(FnSink::new(
            move |_: &_, frame: genai::chat::RawFrameRef<'_>| {
                frames.saw(frame.data);
            },
        )));
        if let Some(limit) = request.max_output_tokens {
            options.max_tokens = Some(u32::try_from(limit).unwrap_or(u32::MAX));
        }
        if self.is_server() {
            options.extra_body = Some(json!({"model": &*self.name}));
        }
        options
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

fn known(model: &str) -> Result<(Arc<str>, Place), ModelError> {
    let kind = AdapterKind::from_model(model)
        .map_err(|error| ModelError::new(ModelErrorKind::NotFound, error.to_string()))?;
    let namespace = model.split_once("::").map(|(namespace, _)| namespace);
    let is_fallback = kind == AdapterKind::Ollama && namespace != Some("ollama");
    if let Some(namespace) = namespace
        && (is_fallback || matches!(kind, AdapterKind::Custom(_)))
    {
        let names: Vec<_> = AdapterKind::all()
            .iter()
            .map(AdapterKind::as_lower_str)
            .collect();
        return Err(ModelError::new(
            ModelErrorKind::NotFound,
            format!("no provider is called {namespace:?}"),
        )
        .with_hint(format!("use one of {}, or --base-url", names.join(", "))));
    }
    let iden = ModelIden::new(kind, model);
    let config = ClientConfig::default();
    let target = config
        .resolve_model_spec(iden.into())
        .now_or_never()
        .expect("without resolvers nothing in it waits")
        .map_err(|error| ModelError::new(ModelErrorKind::NotFound, error.to_string()))?;
    let name = match namespace {
        Some(_) => model.into(),
        None => format!("{}::{model}", kind.as_lower_str()).into(),
    };
    let key_name = kind.default_key_env_name();
    Ok((
        name,
        Place::Known {
            target,
            key_name,
            guessed: is_fallback,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_providers() {
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
    fn a_missing_key_is_named_before_anything_is_sent() {
        let error = Target::new("gpt-4o-mini", ProviderOptions::default())
            .err()
            .unwrap();
        assert_eq!(error.kind, ModelErrorKind::Unauthorized);
        assert!(error.hint.unwrap().contains("OPENAI_API_KEY"));
    }

    #[test]
    fn a_base_url_never_gets_a_key_that_was_looked_up() {
        let options = ProviderOptions {
            base_url: Some("http://elsewhere".into()),
            key_lookup: Arc::new(|_| Some("sk-mine".into())),
            ..ProviderOptions::default()
        };
        let access = Target::new("gpt-4o-mini", options)
            .unwrap()
            .access()
            .unwrap();
        assert!(access.secrets().is_empty());
    }
}
