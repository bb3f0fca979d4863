//! Settings of a session, stored in its log.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the last opening of a session, so that a later process can continue it in the same way. The settings
/// never contain a key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSettings {
    /// The model as a person names it: a provider's name for it, or `script:` and an absolute path. Absent if that name
    /// requires a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// URL of the server that the model belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<Arc<str>>,
    /// Working folder of the tools.
    pub folder: Arc<str>,
}

impl SessionSettings {
    /// Settings with this model. Omits a URL that may contain a password or a key (a URL with `@` or `?`), and then
    /// omits the model too: without the URL, the name would select a model of another server.
    pub fn new(model: Option<&str>, base_url: Option<&str>, folder: &str) -> Self {
        let has_secret = base_url.is_some_and(|url| url.contains(['@', '?']));
        let kept = |text: Option<&str>| text.filter(|_| !has_secret).map(Arc::from);
        Self {
            model: kept(model),
            base_url: kept(base_url),
            folder: folder.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_with_a_secret_is_left_out_with_its_model() {
        let plain = SessionSettings::new(Some("qwen3"), Some("http://x:1/v1"), "/f");
        assert_eq!(plain.model.as_deref(), Some("qwen3"));
        assert_eq!(plain.base_url.as_deref(), Some("http://x:1/v1"));
        for url in ["http://me:key@x/v1", "http://x/v1?key=secret"] {
            let settings = SessionSettings::new(Some("qwen3"), Some(url), "/f");
            let expected = SessionSettings {
                folder: "/f".into(),
                ..SessionSettings::default()
            };
            assert_eq!(settings, expected);
        }
    }
}
