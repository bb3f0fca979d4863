//! Model providers that a client names, and the model of a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use allstop_model::{Model, ProviderOptions};
use allstop_runtime::{ModelChoice, StartError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::open::is_set;
use crate::server::CopilotServer;

/// Options of a model provider that supply a key for each request. The server cannot use them, and without the key the
/// provider would refuse every request.
const KEYS_NOT_OFFERED: [&str; 2] = ["apiKeyCommand", "hasBearerTokenProvider"];

/// A provider of models.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProviderParams {
    #[serde(rename = "type")]
    kind: Option<String>,
    base_url: Option<String>,
    api_key: Option<String>,
    bearer_token: Option<String>,
    wire_api: Option<String>,
    wire_model: Option<String>,
    model_id: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

/// A provider in the list of a session.
#[derive(Deserialize)]
pub(super) struct NamedProviderParams {
    name: String,
    #[serde(flatten)]
    provider: ProviderParams,
}

/// A model in the list of a session. The session selects it as `provider/id`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListedModelParams {
    id: String,
    provider: Option<String>,
    wire_model: Option<String>,
    model_id: Option<String>,
}

/// Providers and the name of the model that a client requests.
#[derive(Default)]
pub(super) struct RequestedModel<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) provider: Option<&'a ProviderParams>,
    pub(super) providers: &'a [NamedProviderParams],
    pub(super) models: &'a [ListedModelParams],
}

impl ProviderParams {
    /// Digest of the provider, to recognise it without its key.
    pub(super) fn digest(&self) -> [u8; 32] {
        // A structure of strings and JSON values always has a form in JSON.
        Sha256::digest(serde_json::to_vec(self).unwrap_or_default()).into()
    }

    /// Refuses a provider that the server cannot use.
    fn check(&self) -> Result<(), RpcError> {
        let kind = self.kind.as_deref().unwrap_or("openai");
        let wire = self.wire_api.as_deref().unwrap_or("completions");
        if !matches!(kind, "openai" | "azure") || wire != "completions" {
            return Err(RpcError::invalid_params(format!(
                "a provider of type {kind:?} with the API {wire:?} is not supported: use \"openai\" or \"azure\" with \
                 \"completions\""
            )));
        }
        let refused = KEYS_NOT_OFFERED
            .iter()
            .find(|name| self.others.get(**name).is_some_and(is_set));
        match refused {
            Some(name) => Err(RpcError::invalid_params(format!(
                "`provider.{name}` is not supported: pass `apiKey` or `bearerToken`"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the URL of requests. The base URL is taken literally, as in the official runtime: no `/v1` is added.
    fn url(&self) -> Option<String> {
        let base = self.base_url.as_deref()?.trim().trim_end_matches('/');
        let host = base.split_once("://").map_or(base, |(_, host)| host);
        let is_azure = self.kind.as_deref() == Some("azure") && !host.contains('/');
        let version = if is_azure { "/openai/v1" } else { "" };
        Some(format!("{base}{version}/chat/completions"))
    }

    fn model(&self, server: &CopilotServer, name: &str) -> Result<Arc<dyn Model>, RpcError> {
        self.check()?;
        let options = ProviderOptions::default()
            .base_url(self.url())
            .key(self.api_key.clone().or_else(|| self.bearer_token.clone()));
        let headers = self.headers.iter().flatten();
        let options = options
            .with_headers(headers.map(|(name, value)| (name.as_str(), value.as_str())))
            .map_err(|error| RpcError::invalid_params(error.to_string()))?;
        let model = server.system().provider_model(name, options);
        model.map_err(|error| refusal(&error))
    }
}

fn refusal(error: &StartError) -> RpcError {
    super::open::refusal(error)
}

/// Returns the model of the client's provider, or else the configured model. The client may choose another name for the
/// configured model.
pub(super) fn model_of(
    server: &CopilotServer,
    requested: &RequestedModel<'_>,
) -> Result<Option<Arc<dyn Model>>, RpcError> {
    let system = server.system();
    if let Some(provider) = requested.provider {
        let named = provider.wire_model.as_ref().or(provider.model_id.as_ref());
        let name = named.map(String::as_str).or(requested.name);
        let configured = Some(system.model_name()).filter(|_| system.has_model());
        let name = name.or(configured);
        let name = name.ok_or_else(|| RpcError::invalid_params("`model` is missing"))?;
        return provider.model(server, name).map(Some);
    }
    if let Some((provider, name)) = listed(requested) {
        return provider.model(server, name).map(Some);
    }
    let at = |base_url| ProviderOptions::default().base_url(base_url);
    let model = match (requested.name, ModelChoice::of(&system.config().model)) {
        (
            Some(name),
            Some(ModelChoice::Named {
                base_url,
                name: known,
            }),
        ) if *name != *known => system.provider_model(name, at(base_url)),
        (Some(name), None) if !system.has_model() => system.provider_model(name, at(None)),
        _ => return Ok(None),
    };
    model.map(Some).map_err(|error| refusal(&error))
}

/// Returns the provider and the name of a requested model that is in the list of the session.
fn listed<'a>(requested: &RequestedModel<'a>) -> Option<(&'a ProviderParams, &'a str)> {
    let (provider, id) = requested.name?.split_once('/')?;
    let mut models = requested.models.iter();
    let model =
        models.find(|model| model.id == id && model.provider.as_deref() == Some(provider))?;
    let mut providers = requested.providers.iter();
    let named = providers.find(|named| named.name == provider)?;
    let name = model.wire_model.as_ref().or(model.model_id.as_ref());
    Some((&named.provider, name.unwrap_or(&model.id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn provider(value: Value) -> ProviderParams {
        serde_json::from_value(value).expect("a provider")
    }

    #[test]
    fn base_url_is_literal() {
        let url = |kind: &str, base: &str| provider(json!({ "type": kind, "baseUrl": base })).url();
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
        assert_eq!(provider(json!({})).url(), None);
    }

    #[test]
    fn model_of_a_list_has_a_provider() {
        let providers: Vec<NamedProviderParams> =
            serde_json::from_value(json!([{ "name": "a", "baseUrl": "http://a" }]))
                .expect("providers");
        let models: Vec<ListedModelParams> =
            serde_json::from_value(json!([{ "id": "m", "provider": "a", "wireModel": "w" }]))
                .expect("models");
        let name = |name: &'static str| {
            let requested = RequestedModel {
                name: Some(name),
                providers: &providers,
                models: &models,
                ..RequestedModel::default()
            };
            listed(&requested).map(|(_, name)| name.to_owned())
        };
        assert_eq!(name("a/m").as_deref(), Some("w"));
        assert_eq!(name("b/m"), None);
        assert_eq!(name("m"), None);
    }
}
