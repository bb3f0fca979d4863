//! Table of known providers: the URL, the protocol, and the environment variable of the API key.

use super::protocol::Protocol;

/// A provider that is known by name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownProvider {
    /// Name before the `::`.
    pub(super) name: &'static str,
    /// Base URL, which ends with a slash.
    pub(super) base_url: &'static str,
    /// Usual environment variable of the key; `None` if the provider needs no key.
    pub(super) key_name: Option<&'static str>,
    pub(super) protocol: Protocol,
}

const fn provider(
    name: &'static str,
    base_url: &'static str,
    key_name: &'static str,
    protocol: Protocol,
) -> KnownProvider {
    KnownProvider {
        name,
        base_url,
        key_name: Some(key_name),
        protocol,
    }
}

use Protocol::{ChatCompletions, GenerateContent, Messages, OpenAiChat, Responses};

#[rustfmt::skip]
pub(super) const PROVIDERS: &[KnownProvider] = &[
    provider("openai", "https://api.openai.com/v1/", "OPENAI_API_KEY", OpenAiChat),
    provider("openai_resp", "https://api.openai.com/v1/", "OPENAI_API_KEY", Responses),
    provider("anthropic", "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY", Messages),
    provider("gemini", "https://generativelanguage.googleapis.com/v1beta/", "GEMINI_API_KEY", GenerateContent),
    provider("aihubmix", "https://aihubmix.com/v1/", "AIHUBMIX_API_KEY", ChatCompletions),
    provider("aliyun", "https://dashscope.aliyuncs.com/compatible-mode/v1/", "ALIYUN_API_KEY", ChatCompletions),
    provider("bigmodel", "https://open.bigmodel.cn/api/paas/v4/", "BIGMODEL_API_KEY", ChatCompletions),
    provider("cohere", "https://api.cohere.ai/compatibility/v1/", "COHERE_API_KEY", ChatCompletions),
    provider("deepseek", "https://api.deepseek.com/v1/", "DEEPSEEK_API_KEY", ChatCompletions),
    provider("fireworks", "https://api.fireworks.ai/inference/v1/", "FIREWORKS_API_KEY", ChatCompletions),
    provider("github_copilot", "https://models.github.ai/inference/", "GITHUB_TOKEN", ChatCompletions),
    provider("groq", "https://api.groq.com/openai/v1/", "GROQ_API_KEY", ChatCompletions),
    provider("kimi", "https://api.moonshot.ai/v1/", "KIMI_API_KEY", ChatCompletions),
    provider("mimo", "https://api.mimo.com/openai/v1/", "MIMO_API_KEY", ChatCompletions),
    provider("minimax", "https://api.minimax.io/anthropic/v1/", "MINIMAX_API_KEY", Messages),
    provider("mistral", "https://api.mistral.ai/v1/", "MISTRAL_API_KEY", ChatCompletions),
    provider("moonshot", "https://api.moonshot.cn/v1/", "MOONSHOT_API_KEY", ChatCompletions),
    provider("nebius", "https://api.studio.nebius.ai/v1/", "NEBIUS_API_KEY", ChatCompletions),
    KnownProvider { name: "ollama", base_url: "http://localhost:11434/v1/", key_name: None, protocol: ChatCompletions },
    provider("ollama_cloud", "https://ollama.com/v1/", "OLLAMA_API_KEY", ChatCompletions),
    provider("open_router", "https://openrouter.ai/api/v1/", "OPEN_ROUTER_API_KEY", ChatCompletions),
    provider("qwen_cloud", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/", "QWEN_CLOUD_API_KEY", ChatCompletions),
    provider("together", "https://api.together.xyz/v1/", "TOGETHER_API_KEY", ChatCompletions),
    provider("xai", "https://api.x.ai/v1/", "XAI_API_KEY", ChatCompletions),
    provider("zai", "https://api.z.ai/api/paas/v4/", "ZAI_API_KEY", ChatCompletions),
];

/// The provider with this name.
pub(super) fn by_name(name: &str) -> Option<&'static KnownProvider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

/// Prefixes of model names, and their providers. If several prefixes match, the first of them counts.
const MODEL_NAMES: &[(&str, &str)] = &[
    ("gpt", "openai"),
    ("chatgpt", "openai"),
    ("codex", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude", "anthropic"),
    ("gemini", "gemini"),
    ("grok", "xai"),
    ("deepseek-", "deepseek"),
    ("command", "cohere"),
    ("glm", "zai"),
    ("kimi-", "kimi"),
    ("moonshot-", "moonshot"),
    ("mimo-", "mimo"),
    ("MiniMax-", "minimax"),
    ("minimax-", "minimax"),
];

/// The provider whose model names have the same prefix as this name; `None` if no prefix matches.
pub(super) fn by_model(model: &str) -> Option<&'static KnownProvider> {
    // `gpt-oss` is an open model with many providers.
    if model.starts_with("gpt-oss") {
        return None;
    }
    // The model names of Fireworks are paths: `accounts/fireworks/models/…`.
    if model.contains("fireworks") {
        return by_name("fireworks");
    }
    let (_, name) = MODEL_NAMES
        .iter()
        .find(|(beginning, _)| model.starts_with(beginning))?;
    by_name(match *name {
        "openai" if needs_responses(model) => "openai_resp",
        name => name,
    })
}

/// The name of the provider and its name for the model. `None` if the provider is not known, or if the URL belongs to
/// another server.
pub(crate) fn provider_of<'a>(
    name: &'a str,
    base_url: Option<&str>,
) -> Option<(&'static str, &'a str)> {
    if let Some(url) = base_url {
        let host = |url: &str| Some(url::Url::parse(url).ok()?.host_str()?.to_owned());
        let server = host(url)?;
        let has_host = |provider: &&KnownProvider| {
            provider.key_name.is_some() && host(provider.base_url).as_ref() == Some(&server)
        };
        return Some((PROVIDERS.iter().find(has_host)?.name, name));
    }
    match name.split_once("::") {
        Some((provider, model)) => Some((by_name(provider)?.name, model)),
        None => Some((by_model(name)?.name, name)),
    }
}

/// True if `OpenAI` recommends or requires its responses API for the model. This is true for GPT-5 and later models,
/// and for some earlier models.
fn needs_responses(model: &str) -> bool {
    let generation: String = model
        .trim_start_matches("gpt-")
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let is_gpt = model.starts_with("gpt") || model.starts_with("codex");
    let is_new = generation.parse::<u32>().is_ok_and(|n| n >= 5);
    is_gpt && (is_new || model.contains("codex") || model.contains("-pro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_end_with_a_slash_and_names_are_unique() {
        for (at, provider) in PROVIDERS.iter().enumerate() {
            let url = provider.protocol.url(provider.base_url, "m").unwrap();
            assert!(
                url.as_str().starts_with(provider.base_url),
                "{provider:?}: {url}"
            );
            assert!(
                PROVIDERS[..at]
                    .iter()
                    .all(|other| other.name != provider.name)
            );
        }
    }

    #[test]
    fn model_names_select_their_providers() {
        let name = |model| by_model(model).map(|provider| provider.name);
        for (model, expected) in [
            ("gpt-4o-mini", Some("openai")),
            ("gpt-5-mini", Some("openai_resp")),
            ("o1-pro", Some("openai")),
            ("codex-mini", Some("openai_resp")),
            ("gpt-oss-20b", None),
            ("claude-sonnet-4-6", Some("anthropic")),
            ("accounts/fireworks/models/x", Some("fireworks")),
            ("llama3", None),
        ] {
            assert_eq!(name(model), expected, "{model}");
        }
    }
}
