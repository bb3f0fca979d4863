//! Model providers that a client names, and the model of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use allstop_model::{Model, ProviderOptions, WireProtocol};
use allstop_runtime::{ModelChoice, System};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::http_url::check_url;
use crate::refusal::{check_text, refusal};
use crate::request_route::RequestRoute;

/// Option of a model provider that supplies a key for each request. The server cannot use it, and without the key the
/// provider would refuse every request.
const KEY_NOT_OFFERED: &str = "apiKeyCommand";

/// Name of the only provider of a session, in requests for a token.
const ONLY_PROVIDER: &str = "default";

/// A provider of models. The text for developers contains no key.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProviderParams {
    #[serde(rename = "type")]
    kind: Option<String>,
    base_url: Option<String>,
    api_key: Option<String>,
    bearer_token: Option<String>,
    wire_api: Option<String>,
    wire_model: Option<String>,
    model_id: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    /// True if a client returns a token for each request.
    #[serde(default)]
    has_bearer_token_provider: bool,
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

impl fmt::Debug for ProviderParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderParams")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A provider in the list of a session.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NamedProviderParams {
    name: String,
    #[serde(flatten)]
    provider: ProviderParams,
}

/// A model in the list of a session. The session selects it as `provider/id`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedModelParams {
    id: String,
    provider: Option<String>,
    /// Name for people.
    name: Option<String>,
    wire_model: Option<String>,
    model_id: Option<String>,
}

/// Providers that the clients of a session have named.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientProviders {
    /// The only provider of the session; `None` for the providers of the list, and the configured provider.
    pub(crate) only: Option<ProviderParams>,
    pub(crate) listed: Vec<NamedProviderParams>,
    pub(crate) models: Vec<ListedModelParams>,
    /// Name of the client's program, for the providers.
    pub(crate) client_name: Option<String>,
    /// Route of the requests and tokens.
    pub(crate) route: RequestRoute,
}

impl ListedModelParams {
    /// Name by which clients select the model; `None` if it names no provider.
    fn selection(&self) -> Option<String> {
        Some(format!("{}/{}", self.provider.as_ref()?, self.id))
    }

    /// True if clients select the model by this name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.selection().as_deref() == Some(name)
    }
}

impl ProviderParams {
    /// Digest of the provider, to recognise it without its key.
    pub(crate) fn digest(&self) -> [u8; 32] {
        // A structure of strings and JSON values always has a form in JSON.
        let mut provider = serde_json::to_value(self).unwrap_or_default();
        provider.sort_all_objects();
        Sha256::digest(provider.to_string()).into()
    }

    /// Protocol of the provider.
    ///
    /// # Errors
    /// Returns an error for a provider that the server cannot use.
    fn protocol(&self) -> Result<WireProtocol, RpcError> {
        let kind = self.kind.as_deref().unwrap_or("openai");
        let wire = self.wire_api.as_deref().unwrap_or("completions");
        match (kind, wire) {
            ("openai" | "azure", "completions") => Ok(WireProtocol::ChatCompletions),
            ("openai" | "azure", "responses") => Ok(WireProtocol::Responses),
            ("anthropic", _) => Ok(WireProtocol::Messages),
            _ => Err(RpcError::invalid_params(format!(
                "a provider of type {kind:?} with the API {wire:?} is not supported: use \"openai\" or \"azure\" with \
                 \"completions\" or \"responses\", or \"anthropic\""
            ))),
        }
    }

    /// Refuses a provider that the server cannot use.
    fn check(&self) -> Result<(), RpcError> {
        self.protocol()?;
        if self.others.get(KEY_NOT_OFFERED).is_some_and(is_set) {
            return Err(RpcError::invalid_params(format!(
                "`provider.{KEY_NOT_OFFERED}` is not supported: pass `apiKey` or `bearerToken`, or a callback for tokens"
            )));
        }
        Ok(())
    }

    /// Refuses a base URL that no request can reach. `field` is the name of the provider in the parameters.
    fn check_base_url(&self, field: &str) -> Result<(), RpcError> {
        let Some(url) = &self.base_url else {
            return Ok(());
        };
        check_url(&format!("{field}.baseUrl"), url).map_err(RpcError::invalid_params)
    }

    /// Returns the URL of requests. The base URL is taken literally, as in the official runtime: `/v1` is added only for
    /// Anthropic.
    fn url(&self, protocol: WireProtocol) -> Option<String> {
        let base = self.base_url.as_deref()?.trim().trim_end_matches('/');
        let host = base.split_once("://").map_or(base, |(_, host)| host);
        let is_azure = self.kind.as_deref() == Some("azure") && !host.contains('/');
        let version = if is_azure { "/openai/v1" } else { "" };
        Some(match protocol {
            WireProtocol::Responses => format!("{base}{version}/responses"),
            WireProtocol::Messages if base.ends_with("/v1") => format!("{base}/messages"),
            WireProtocol::Messages => format!("{base}/v1/messages"),
            _ => format!("{base}{version}/chat/completions"),
        })
    }

    /// Describes the provider for the clients of the session, with the key and the headers that a client has named.
    fn endpoint(&self) -> Value {
        let mut endpoint = json!({
            "type": self.kind.as_deref().unwrap_or("openai"),
            "baseUrl": self.base_url.as_deref().unwrap_or_default(),
            "headers": self.headers.clone().unwrap_or_default(),
        });
        if endpoint["type"] != "anthropic" {
            endpoint["wireApi"] = self.wire_api.as_deref().unwrap_or("completions").into();
        }
        if let Some(key) = self.api_key.as_ref().or(self.bearer_token.as_ref()) {
            endpoint["apiKey"] = key.as_str().into();
        }
        endpoint
    }

    /// Opens a model of the provider. `provider` is the name of the provider in requests for tokens.
    fn model(&self, opener: &ModelOpener<'_>, provider: &str, name: &str) -> ModelResult {
        self.check()?;
        let protocol = self.protocol()?;
        let is_anthropic = protocol == WireProtocol::Messages;
        // Anthropic has different headers for keys and for tokens.
        let token = self.bearer_token.as_ref();
        let authorization = token.map(|token| format!("Bearer {token}"));
        let authorization = authorization.as_deref().filter(|_| is_anthropic);
        let key = self.api_key.as_ref();
        let key = key.or(token.filter(|_| !is_anthropic)).cloned();
        let fetch = self
            .has_bearer_token_provider
            .then(|| opener.route.token_fetch(provider));
        let options = ProviderOptions::default()
            .base_url(self.url(protocol))
            // The model finds the protocol of chat completions itself, because it knows some of the servers.
            .protocol(Some(protocol).filter(|known| *known != WireProtocol::ChatCompletions))
            .key(key)
            .token_fetch(fetch);
        let headers = self.headers.iter().flatten();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = authorization
            .map(|value| ("authorization", value))
            .into_iter()
            .chain(headers);
        opener.open(name, options, headers)
    }
}

type ModelResult = Result<Arc<dyn Model>, RpcError>;

/// Parts that all models of a session share.
struct ModelOpener<'a> {
    system: &'a System,
    /// Name of the client's program.
    client: Option<&'a str>,
    route: &'a RequestRoute,
}

impl ModelOpener<'_> {
    fn open<'a>(
        &self,
        name: &str,
        options: ProviderOptions,
        headers: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> ModelResult {
        let agent = self.client;
        let agent = agent.map(|client| format!("allstop/{} {client}", env!("CARGO_PKG_VERSION")));
        let agent = agent.as_deref().map(|agent| ("user-agent", agent));
        let options = options
            .carrier(self.route.carrier())
            .with_headers(agent)
            .and_then(|options| options.with_headers(headers))
            .map_err(|error| RpcError::invalid_params(error.to_string()))?;
        let model = self.system.provider_model(name, options);
        model.map_err(|error| refusal(&error))
    }
}

/// A model of a session.
#[derive(Debug, Clone)]
pub(crate) struct ChosenModel {
    /// `None` for the configured model.
    pub(crate) model: Option<Arc<dyn Model>>,
    /// Name by which clients select the model.
    pub(crate) name: Arc<str>,
}

impl ClientProviders {
    /// Checks the values that a client has sent when it opens a session.
    ///
    /// # Errors
    /// Returns an error for an empty name, a duplicate provider or an unusable base URL.
    pub(crate) fn check(&self) -> Result<(), RpcError> {
        if let Some(only) = &self.only {
            only.check_base_url("provider")?;
        }
        let mut names = BTreeSet::new();
        for (index, named) in self.listed.iter().enumerate() {
            let name = named.name.as_str();
            check_text(&format!("providers[{index}].name"), name)?;
            if !names.insert(name) {
                return Err(RpcError::invalid_params(format!(
                    "`providers` has two providers {name:?}: use different names"
                )));
            }
            named
                .provider
                .check_base_url(&format!("providers[{name}]"))?;
        }
        for (index, model) in self.models.iter().enumerate() {
            check_text(&format!("models[{index}].id"), &model.id)?;
        }
        Ok(())
    }

    /// Returns the model with this name: the model of the client's only provider, or of a provider in its list, or else of
    /// the configured provider. The client may choose another name for the configured model.
    pub(crate) fn model(
        &self,
        system: &System,
        name: Option<&str>,
    ) -> Result<ChosenModel, RpcError> {
        let opened = self.opened(system, name)?;
        let own = opened
            .as_ref()
            .map_or(system.model_name(), |model| model.name());
        let listed = name.filter(|name| self.find(name).is_some());
        Ok(ChosenModel {
            name: listed.unwrap_or(own).into(),
            model: opened,
        })
    }

    /// Returns the model of a sub-agent, or the reason why it cannot be used. `None` for the configured model, which is
    /// the model of the agent that starts the sub-agent.
    pub(crate) fn model_of_agent(
        &self,
        system: &System,
        name: &str,
    ) -> Option<Result<Arc<dyn Model>, Arc<str>>> {
        match self.model(system, Some(name)) {
            Ok(chosen) => chosen.model.map(Ok),
            Err(error) => Some(Err(error.message.as_str().into())),
        }
    }

    fn opened(
        &self,
        system: &System,
        name: Option<&str>,
    ) -> Result<Option<Arc<dyn Model>>, RpcError> {
        let client = self.client_name.as_deref();
        let opener = ModelOpener {
            system,
            client,
            route: &self.route,
        };
        if let Some(provider) = &self.only {
            let named = provider.wire_model.as_ref().or(provider.model_id.as_ref());
            let name = named.map(String::as_str).or(name);
            let configured = Some(system.model_name()).filter(|_| system.has_model());
            let name = name.or(configured);
            let name = name.ok_or_else(|| RpcError::invalid_params("`model` is missing"))?;
            return provider.model(&opener, ONLY_PROVIDER, name).map(Some);
        }
        if let Some((named, name)) = name.and_then(|name| self.find(name)) {
            let provider = &named.provider;
            return provider.model(&opener, &named.name, name).map(Some);
        }
        let at = |base_url| ProviderOptions::default().base_url(base_url);
        let none = || std::iter::empty();
        match (name, ModelChoice::of(&system.config().model)) {
            (
                name,
                Some(ModelChoice::Named {
                    base_url,
                    name: known,
                }),
            ) if client.is_some()
                || self.route.carrier().is_some()
                || name.is_some_and(|name| *name != *known) =>
            {
                let name = name.unwrap_or(&known);
                opener.open(name, at(base_url), none()).map(Some)
            }
            (Some(name), None) if !system.has_model() => {
                opener.open(name, at(None), none()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns the provider and the name of a model that is in the list of the session.
    fn find(&self, name: &str) -> Option<(&NamedProviderParams, &str)> {
        let model = self.models.iter().find(|model| model.is_called(name))?;
        let provider = model.provider.as_deref()?;
        let named = self.listed.iter().find(|named| named.name == provider)?;
        let name = model.wire_model.as_ref().or(model.model_id.as_ref());
        Some((named, name.unwrap_or(&model.id)))
    }

    /// URL of the server of the session's model; `None` for the usual server of its provider.
    pub(crate) fn base_url(&self, system: &System, model: Option<&str>) -> Option<String> {
        let listed = || Some(&self.find(model?)?.0.provider);
        match self.only.as_ref().or_else(listed) {
            Some(provider) => provider.base_url.clone(),
            None => system.config().model.base_url.clone(),
        }
    }

    /// Describes the provider of a model, or of the session's model; `None` if no client has named the provider.
    pub(crate) fn endpoint(&self, model: Option<&str>) -> Option<Value> {
        let listed = || Some(&self.find(model?)?.0.provider);
        let provider = self.only.as_ref().or_else(listed)?;
        Some(provider.endpoint())
    }

    /// Returns the names of the listed models, by which clients select them, and their names for people.
    pub(crate) fn listed_models(&self) -> impl Iterator<Item = (String, &str)> {
        self.models.iter().filter_map(|model| {
            let name = model.name.as_deref().unwrap_or(&model.id);
            Some((model.selection()?, name))
        })
    }

    /// Adds providers and models. An entry with the name of an earlier entry replaces it.
    ///
    /// # Errors
    /// Returns an error if the server cannot use a provider, or a model names an unknown provider.
    pub(crate) fn add(
        &mut self,
        listed: Vec<NamedProviderParams>,
        models: Vec<ListedModelParams>,
    ) -> Result<(), RpcError> {
        for named in listed {
            named.provider.check()?;
            let field = format!("providers[{}]", named.name);
            named.provider.check_base_url(&field)?;
            self.listed.retain(|known| known.name != named.name);
            self.listed.push(named);
        }
        for model in models {
            let provider = model.provider.as_deref().unwrap_or_default();
            if !self.listed.iter().any(|known| known.name == provider) {
                let message = format!(
                    "the provider {provider:?} of model {:?} is unknown",
                    model.id
                );
                return Err(RpcError::invalid_params(message));
            }
            self.models
                .retain(|known| known.id != model.id || known.provider != model.provider);
            self.models.push(model);
        }
        Ok(())
    }
}

/// True if a value requests a feature.
pub(crate) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(value: Value) -> ProviderParams {
        serde_json::from_value(value).expect("a provider")
    }

    #[test]
    fn base_url_is_literal() {
        let url = |kind: &str, base: &str| {
            let provider = provider(json!({ "type": kind, "baseUrl": base }));
            provider.url(provider.protocol().expect("a known provider"))
        };
        let check =
            |kind, base, expected: &str| assert_eq!(url(kind, base).as_deref(), Some(expected));
        check("openai", "http://h:1", "http://h:1/chat/completions");
        check("openai", "http://h/v1/", "http://h/v1/chat/completions");
        check(
            "azure",
            "https://r.azure.com",
            "https://r.azure.com/openai/v1/chat/completions",
        );
        check(
            "azure",
            "https://r.azure.com/x",
            "https://r.azure.com/x/chat/completions",
        );
        check("anthropic", "https://a", "https://a/v1/messages");
        check("anthropic", "https://a/v1", "https://a/v1/messages");
        assert_eq!(provider(json!({})).url(WireProtocol::Responses), None);
    }

    #[test]
    fn model_of_a_list_has_a_provider() {
        let providers: Vec<NamedProviderParams> =
            serde_json::from_value(json!([{ "name": "a", "baseUrl": "http://a" }]))
                .expect("providers");
        let models: Vec<ListedModelParams> =
            serde_json::from_value(json!([{ "id": "m", "provider": "a", "wireModel": "w" }]))
                .expect("models");
        let providers = ClientProviders {
            listed: providers,
            models,
            ..ClientProviders::default()
        };
        let name = |name: &str| providers.find(name).map(|(_, name)| name.to_owned());
        assert_eq!(name("a/m").as_deref(), Some("w"));
        assert_eq!(name("b/m"), None);
        assert_eq!(name("m"), None);
    }
}
