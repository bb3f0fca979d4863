//! The list of models that a provider or server offers.

use std::error::Error;

use futures::StreamExt as _;
use serde_json::Value;

use super::ProviderModel;
use super::bounded_json::parse;
use super::client::ClientPool;
use super::protocol::Protocol;
use super::provider_error::ProviderErrorText;
use crate::probe::ConnectionProbe;
use crate::{ModelError, ModelErrorKind};

/// Maximum size of the list, in bytes: the longest public list, with descriptions, has a tenth of it.
const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum length of a model's name, in bytes.
const NAME_LEN_MAX: usize = 200;

impl ProviderModel {
    /// Asks the provider or server of this model for the names of all its models, in the order of the answer. The name of
    /// this model plays no part.
    ///
    /// # Errors
    /// If the provider cannot be reached, refuses the request, or sends no list.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. The future has no time limit for the answer.
    pub async fn offered_models(&self) -> Result<Vec<String>, ModelError> {
        let failed = |message: String| ModelError::new(ModelErrorKind::Protocol, message);
        let access = self.target.access()?;
        let lease = ClientPool::lease(&self.clients, &ConnectionProbe::default())?;
        let url = self.target.protocol().list_url(&access.url);
        let request = lease.client().get(url);
        let request = self
            .target
            .protocol()
            .authorize(request, access.key.as_deref());
        let response = request.send().await.map_err(|error| {
            let error = error.without_url();
            ModelError::new(ModelErrorKind::Connect, root_cause(&error))
        })?;
        let status = response.status();
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| failed(error.without_url().to_string()))?;
            if body.len() + chunk.len() > LIST_BYTES_MAX {
                return Err(failed("the list of models is too long".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        let body = String::from_utf8_lossy(&body);
        if !status.is_success() {
            let reason = ProviderErrorText::of(&body).message.unwrap_or_default();
            let mut reason = format!("HTTP {}: {reason}", status.as_u16());
            for secret in access.secrets.iter().filter(|secret| !secret.is_empty()) {
                reason = reason.replace(secret.as_str(), "…");
            }
            return Err(failed(reason.trim_end_matches(": ").to_owned()));
        }
        let list =
            parse(&body).map_err(|_| failed("the answer is no list of models".to_owned()))?;
        names(&list).ok_or_else(|| failed("the answer is no list of models".to_owned()))
    }
}

/// The innermost error, such as "connection refused".
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

impl Protocol {
    /// URL of the list of models. `url` is the URL of requests.
    fn list_url(self, url: &url::Url) -> url::Url {
        let mut list = url.clone();
        let path = url.path();
        let base = match self {
            Self::ChatCompletions | Self::OpenAiChat => path.strip_suffix("/chat/completions"),
            Self::Responses => path.strip_suffix("/responses"),
            Self::Messages => path.strip_suffix("/messages"),
            Self::GenerateContent => path.rsplit_once("/models/").map(|(base, _)| base),
        };
        list.set_path(&format!("{}/models", base.unwrap_or_default()));
        match self {
            // The default of both is a part of the list.
            Self::Messages => list.set_query(Some("limit=1000")),
            Self::GenerateContent => list.set_query(Some("pageSize=1000")),
            Self::ChatCompletions | Self::OpenAiChat | Self::Responses => {}
        }
        list
    }
}

/// Names in a list: `data[].id`, or `models[].name` without `models/`. Leaves out invalid names.
fn names(list: &Value) -> Option<Vec<String>> {
    let (models, key) = match (list.get("data"), list.get("models")) {
        (Some(models), _) => (models, "id"),
        (None, Some(models)) => (models, "name"),
        (None, None) => (list, "id"),
    };
    let name = |model: &Value| {
        let name = model.get(key)?.as_str()?;
        let name = name.strip_prefix("models/").unwrap_or(name);
        let is_valid = !name.is_empty()
            && name.len() <= NAME_LEN_MAX
            && !name.chars().any(|c| c.is_control() || c.is_whitespace());
        is_valid.then(|| name.to_owned())
    };
    Some(models.as_array()?.iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::known::by_name;
    use super::*;

    #[test]
    fn each_protocol_has_its_list() {
        for (provider, expected) in [
            ("openai", "https://api.openai.com/v1/models"),
            ("openai_resp", "https://api.openai.com/v1/models"),
            (
                "anthropic",
                "https://api.anthropic.com/v1/models?limit=1000",
            ),
            (
                "gemini",
                "https://generativelanguage.googleapis.com/v1beta/models?alt=sse&pageSize=1000",
            ),
            ("ollama", "http://localhost:11434/v1/models"),
        ] {
            let provider = by_name(provider).unwrap();
            let url = provider.protocol.url(provider.base_url, "m").unwrap();
            let expected = expected.replace("alt=sse&", "");
            assert_eq!(provider.protocol.list_url(&url).as_str(), expected);
        }
    }

    #[test]
    fn names_of_each_form_are_read_and_hostile_ones_left_out() {
        let both = Some(vec!["a".to_owned(), "b/c".to_owned()]);
        let list = json!({"data": [{"id": "a"}, {"id": "\u{1b}[2J"}, {"id": ""}, {"x": 1}, {"id": "b/c"}]});
        assert_eq!(names(&list), both);
        let list = json!({"models": [{"name": "models/a"}, {"name": "b/c"}]});
        assert_eq!(names(&list), both);
        assert_eq!(names(&json!([{"id": "a"}, {"id": "b/c"}])), both);
        assert_eq!(names(&json!({"error": "no"})), None);
    }
}
