//! Options of a provider's model.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::address::without_secrets;

/// Default time limit of a connection (DNS, TCP, TLS): a reachable server answers within one second, or within three
/// if its first packet is lost.
pub const CONNECT_LIMIT_DEFAULT: Duration = Duration::from_secs(10);

/// Finds a key by its environment variable (`OPENAI_API_KEY`). Called for each call.
pub type KeyLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Location of a model, and access to it.
#[derive(Clone)]
pub struct ProviderOptions {
    /// URL of an OpenAI-compatible server. With it, the model's name is sent unchanged.
    pub base_url: Option<String>,
    /// Key to send. Only this key is ever sent to `base_url`.
    pub key: Option<String>,
    /// Look-up of the key of a known provider.
    pub key_lookup: KeyLookup,
    /// Time limit of a connection; `None` if there is no limit.
    pub connect_limit: Option<Duration>,
}

impl Default for ProviderOptions {
    fn default() -> Self {
        Self {
            base_url: None,
            key: None,
            key_lookup: Arc::new(|_| None),
            connect_limit: Some(CONNECT_LIMIT_DEFAULT),
        }
    }
}

impl fmt::Debug for ProviderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderOptions")
            .field("base_url", &self.base_url.as_deref().map(without_secrets))
            .field("connect_limit", &self.connect_limit)
            .finish_non_exhaustive()
    }
}
