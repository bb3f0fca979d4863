//! Settings of requests: sampling, reasoning, the choice of tools, cache markers, and further fields of the provider.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ToolDeclaration;

/// Settings of the requests to a model. A value that is not set is the provider's default.
///
/// Each protocol translates the settings. If a provider lacks a setting, the call fails with an error of kind `Invalid`
/// that names the setting, before anything is sent. A model
/// that is a function finds the settings in its request, and decides about them itself. Scripted models ignore them.
///
/// ```
/// use allstop_model::{ReasoningEffort, RequestSettings};
///
/// let settings = RequestSettings::default()
///     .temperature(0.2)
///     .reasoning_effort(ReasoningEffort::Low)
///     .provider_option("service_tier", "flex");
/// assert_eq!(settings.temperature, Some(0.2));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RequestSettings {
    /// Randomness of the answer: 0 for the most probable answer, up to 1 or 2, depending on the provider.
    pub temperature: Option<f64>,
    /// Probability mass from which each token is sampled, from 0 to 1.
    pub top_p: Option<f64>,
    /// Texts that end the answer. The answer does not contain them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop_sequences: Vec<String>,
    /// Seed of the sampling, for answers that are easier to repeat.
    pub seed: Option<i64>,
    /// Penalty for tokens that the text already contains, from -2 to 2.
    pub presence_penalty: Option<f64>,
    /// Penalty for tokens in proportion to their frequency in the text, from -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Effort that the model spends on reasoning.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Choice between tools and an answer.
    pub tool_choice: ToolChoice,
    /// False omits the cache markers from requests to Anthropic. Other providers cache without markers, or never. True by
    /// default.
    pub prompt_cache: Option<bool>,
    /// Further fields of the request, in the provider's own format. Objects are merged, other values replace the field,
    /// and `null` removes the field.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub provider_options: Map<String, Value>,
}

/// Effort of reasoning. A provider may know only some of the levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// No reasoning.
    None,
    /// The least reasoning.
    Minimal,
    /// Little reasoning.
    Low,
    /// Moderate reasoning.
    Medium,
    /// Much reasoning.
    High,
    /// More reasoning than `high`.
    Xhigh,
    /// The most reasoning of the model.
    Max,
}

impl ReasoningEffort {
    /// All levels, from the least to the most reasoning.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::Xhigh,
        Self::Max,
    ];

    /// Name of the level in the configuration and in requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

impl fmt::Display for ReasoningEffort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Choice of the model between tools and an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model calls no tool.
    None,
    /// The model calls at least one tool. An agent sends this choice only with the first step of a turn, because the turn
    /// could not end otherwise.
    Required,
    /// The model calls the tool with this name. An agent sends this choice only with the first step of a turn.
    Tool(String),
}

impl ToolChoice {
    /// True if the model decides.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl RequestSettings {
    /// The first value that no request with these tools can contain, such as a temperature that is no number, or the choice
    /// of an unknown tool; for people.
    pub fn problem(&self, tools: &[ToolDeclaration]) -> Option<String> {
        if let ToolChoice::Tool(name) = &self.tool_choice
            && !tools.iter().any(|tool| *tool.name == **name)
        {
            return Some(format!(
                "the setting `tool_choice` names the unknown tool `{name}`"
            ));
        }
        let numbers = [
            ("temperature", self.temperature),
            ("top_p", self.top_p),
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ];
        numbers.into_iter().find_map(|(name, value)| {
            let value = value.filter(|value| !value.is_finite())?;
            Some(format!(
                "the setting `{name}` is {value}, which is no finite number"
            ))
        })
    }

    /// Sets the temperature.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Sets the probability mass from which each token is sampled.
    #[must_use]
    pub fn top_p(mut self, top_p: f64) -> Self {
        self.top_p = Some(top_p);
        self
    }

    /// Adds a text that ends the answer.
    #[must_use]
    pub fn stop_sequence(mut self, text: impl Into<String>) -> Self {
        self.stop_sequences.push(text.into());
        self
    }

    /// Sets the seed of the sampling.
    #[must_use]
    pub fn seed(mut self, seed: i64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the penalty for tokens that the text already contains.
    #[must_use]
    pub fn presence_penalty(mut self, penalty: f64) -> Self {
        self.presence_penalty = Some(penalty);
        self
    }

    /// Sets the penalty for frequent tokens.
    #[must_use]
    pub fn frequency_penalty(mut self, penalty: f64) -> Self {
        self.frequency_penalty = Some(penalty);
        self
    }

    /// Sets the effort of reasoning.
    #[must_use]
    pub fn reasoning_effort(mut self, effort: ReasoningEffort) -> Self {
        self.reasoning_effort = Some(effort);
        self
    }

    /// Sets the choice between tools and an answer.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// Sends or omits cache markers.
    #[must_use]
    pub fn prompt_cache(mut self, is_sent: bool) -> Self {
        self.prompt_cache = Some(is_sent);
        self
    }

    /// Adds a field to the request, in the provider's own format.
    #[must_use]
    pub fn provider_option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.provider_options.insert(name.into(), value.into());
        self
    }
}
