//! Default model of a command without a model: if the environment contains the API key of exactly one provider, a model
//! of this provider.

/// A provider and its default model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProviderDefault {
    /// Environment variable of the provider's API key.
    pub(crate) key: &'static str,
    /// A current model with tool support at a moderate price.
    pub(crate) model: &'static str,
}

const fn of(key: &'static str, model: &'static str) -> ProviderDefault {
    ProviderDefault { key, model }
}

/// Default model for each API key. Variables that have other common purposes, such as `GITHUB_TOKEN`, select no model.
pub(crate) const DEFAULT_MODELS: [ProviderDefault; 9] = [
    of("OPENAI_API_KEY", "gpt-5-mini"),
    of("ANTHROPIC_API_KEY", "claude-sonnet-4-5"),
    of("GEMINI_API_KEY", "gemini-2.5-flash"),
    of("XAI_API_KEY", "grok-4"),
    of("DEEPSEEK_API_KEY", "deepseek-chat"),
    of("MISTRAL_API_KEY", "mistral::mistral-medium-latest"),
    of("GROQ_API_KEY", "groq::openai/gpt-oss-120b"),
    of("OPEN_ROUTER_API_KEY", "open_router::openai/gpt-5-mini"),
    of("ZAI_API_KEY", "glm-4.6"),
];

/// Environment variable of the `OpenAI` libraries that contains the URL of another server.
pub(crate) const OTHER_SERVER: &str = "OPENAI_BASE_URL";

/// Choice of a model by the environment variables.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DefaultModel {
    /// One key is set.
    One(ProviderDefault),
    /// Several keys are set.
    Several(Vec<ProviderDefault>),
    /// [`OTHER_SERVER`] is set. A key may then belong to that server, whose models are unknown.
    OtherServer,
    /// No key is set.
    Missing,
}

impl DefaultModel {
    /// Chooses a model. `is_set` returns true if a variable is set.
    pub(crate) fn choose(is_set: impl Fn(&str) -> bool) -> Self {
        if is_set(OTHER_SERVER) {
            return Self::OtherServer;
        }
        let set = DEFAULT_MODELS.into_iter().filter(|known| is_set(known.key));
        let set: Vec<_> = set.collect();
        match set.as_slice() {
            [] => Self::Missing,
            [one] => Self::One(*one),
            _ => Self::Several(set),
        }
    }
}

#[cfg(test)]
mod tests {
    use allstop_model::provider::{ProviderModel, ProviderOptions};

    use super::*;

    fn chosen(set: &[&str]) -> DefaultModel {
        DefaultModel::choose(|name| set.contains(&name))
    }

    #[test]
    fn one_key_chooses_its_model_and_two_choose_none() {
        let [openai, anthropic, ..] = DEFAULT_MODELS;
        assert_eq!(chosen(&[]), DefaultModel::Missing);
        assert_eq!(chosen(&["GITHUB_TOKEN"]), DefaultModel::Missing);
        assert_eq!(chosen(&[openai.key]), DefaultModel::One(openai));
        assert_eq!(
            chosen(&[anthropic.key, openai.key]),
            DefaultModel::Several(vec![openai, anthropic])
        );
    }

    #[test]
    fn key_for_another_server_is_not_sent_to_the_provider() {
        assert_eq!(
            chosen(&[OTHER_SERVER, "OPENAI_API_KEY"]),
            DefaultModel::OtherServer
        );
    }

    /// The provider of each default model reads its key from exactly this variable.
    #[test]
    fn each_default_model_uses_its_key() {
        for known in DEFAULT_MODELS {
            let with = |name: &'static str| {
                ProviderOptions::default().key_lookup(std::sync::Arc::new(move |asked| {
                    (asked == name).then(|| "a-key".to_owned())
                }))
            };
            assert!(
                ProviderModel::new(known.model, with(known.key)).is_ok(),
                "{known:?}"
            );
            assert!(
                ProviderModel::new(known.model, with("ANOTHER_KEY")).is_err(),
                "{known:?}"
            );
        }
    }
}
