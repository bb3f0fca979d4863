//! Context windows and prices of common models, which the configuration overrides, and the models that accept only
//! text.
//!
//! Source of all figures: the provider data of the project models.dev, as of 2 July 2026. The prices of OpenAI, Anthropic
//! and Google were compared with the list of the project llm-prices, as of 5 August 2026: 36 models agree, 7 are only in
//! the first source, and `o3` differs (10 and 40 dollars in the second source). `claude-sonnet-5` has the price
//! that the second source lists from 1 September 2026, with the cached price of the other models at this price. Providers
//! change their prices: the configuration has the last word.

use crate::price::TokenPrice;
use crate::provider::provider_of;

/// Date of the figures.
pub const FIGURES_DATE: &str = "2026-07-02";

/// A model whose context window and price are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownModel {
    /// Maximum tokens of a request. If the provider limits only request and answer together, this limit.
    pub context_window: u64,
    /// Price in US dollars. `None` if it depends on the server, as for open models at a gateway.
    pub price: Option<TokenPrice>,
    /// True if the model certainly accepts only text, and no images.
    pub is_text_only: bool,
}

/// Price of a token that Anthropic writes to its cache for five minutes, in relation to the price of another input token
/// (Anthropic's documentation, page "Prompt caching", section "Pricing": 1.25 for all models). A write for one hour costs
/// 2.0; Allstop's cache markers request no such writes, so a request that does, by `provider_options`, costs more than
/// displayed. The table has no price of cache writes for other providers.
const CACHE_WRITE_FACTOR: f64 = 1.25;

/// A row of the table.
struct ModelRow {
    /// Name of the provider before the `::`.
    provider: &'static str,
    /// Name of the model, as the provider spells it.
    model: &'static str,
    known: KnownModel,
}

const fn row(
    provider: &'static str,
    model: &'static str,
    context_window: u64,
    [input, output]: [f64; 2],
    cached_input: Option<f64>,
    call_tokens_max: Option<u64>,
) -> ModelRow {
    let price = TokenPrice {
        input,
        cached_input,
        cache_write: None,
        output,
        call_tokens_max,
    };
    ModelRow {
        provider,
        model,
        known: KnownModel {
            context_window,
            price: Some(price),
            is_text_only: false,
        },
    }
}

/// Provider, model, context window, price of a million input and output tokens in US dollars, price of cached input, and
/// the maximum input tokens of a call at these prices.
#[rustfmt::skip]
const MODELS: &[ModelRow] = &[
    row("openai", "gpt-5.5-pro", 922_000, [30.0, 180.0], None, Some(272_000)),
    row("openai", "gpt-5.5", 922_000, [5.0, 30.0], Some(0.5), Some(272_000)),
    row("openai", "gpt-5.4-pro", 922_000, [30.0, 180.0], None, Some(272_000)),
    row("openai", "gpt-5.4", 922_000, [2.5, 15.0], Some(0.25), Some(272_000)),
    row("openai", "gpt-5.4-mini", 272_000, [0.75, 4.5], Some(0.075), None),
    row("openai", "gpt-5.4-nano", 272_000, [0.2, 1.25], Some(0.02), None),
    row("openai", "gpt-5.3-codex", 272_000, [1.75, 14.0], Some(0.175), None),
    row("openai", "gpt-5.2", 272_000, [1.75, 14.0], Some(0.175), None),
    row("openai", "gpt-5.2-pro", 272_000, [21.0, 168.0], None, None),
    row("openai", "gpt-5.2-codex", 272_000, [1.75, 14.0], Some(0.175), None),
    row("openai", "gpt-5.1", 272_000, [1.25, 10.0], Some(0.125), None),
    row("openai", "gpt-5.1-codex", 272_000, [1.25, 10.0], Some(0.125), None),
    row("openai", "gpt-5.1-codex-max", 272_000, [1.25, 10.0], Some(0.125), None),
    row("openai", "gpt-5.1-codex-mini", 272_000, [0.25, 2.0], Some(0.025), None),
    row("openai", "gpt-5", 272_000, [1.25, 10.0], Some(0.125), None),
    row("openai", "gpt-5-mini", 272_000, [0.25, 2.0], Some(0.025), None),
    row("openai", "gpt-5-nano", 272_000, [0.05, 0.4], Some(0.005), None),
    row("openai", "gpt-5-pro", 272_000, [15.0, 120.0], None, None),
    row("openai", "gpt-5-codex", 272_000, [1.25, 10.0], Some(0.125), None),
    row("openai", "gpt-4.1", 1_047_576, [2.0, 8.0], Some(0.5), None),
    row("openai", "gpt-4.1-mini", 1_047_576, [0.4, 1.6], Some(0.1), None),
    row("openai", "gpt-4.1-nano", 1_047_576, [0.1, 0.4], Some(0.025), None),
    row("openai", "gpt-4o-2024-05-13", 128_000, [5.0, 15.0], None, None),
    row("openai", "gpt-4o", 128_000, [2.5, 10.0], Some(1.25), None),
    row("openai", "gpt-4o-mini", 128_000, [0.15, 0.6], Some(0.075), None),
    row("openai", "o3", 200_000, [2.0, 8.0], Some(0.5), None),
    row("openai", "o3-mini", 200_000, [1.1, 4.4], Some(0.55), None),
    row("openai", "o4-mini", 200_000, [1.1, 4.4], Some(0.275), None),
    row("anthropic", "claude-fable-5", 1_000_000, [10.0, 50.0], Some(1.0), None),
    row("anthropic", "claude-opus-4-8", 1_000_000, [5.0, 25.0], Some(0.5), None),
    row("anthropic", "claude-opus-4-7", 1_000_000, [5.0, 25.0], Some(0.5), None),
    row("anthropic", "claude-opus-4-6", 1_000_000, [5.0, 25.0], Some(0.5), None),
    row("anthropic", "claude-opus-4-5", 200_000, [5.0, 25.0], Some(0.5), None),
    row("anthropic", "claude-opus-4-1", 200_000, [15.0, 75.0], Some(1.5), None),
    row("anthropic", "claude-sonnet-5", 1_000_000, [3.0, 15.0], Some(0.3), None),
    row("anthropic", "claude-sonnet-4-6", 1_000_000, [3.0, 15.0], Some(0.3), None),
    row("anthropic", "claude-sonnet-4-5", 200_000, [3.0, 15.0], Some(0.3), None),
    row("anthropic", "claude-haiku-4-5", 200_000, [1.0, 5.0], Some(0.1), None),
    row("gemini", "gemini-3.5-flash", 1_048_576, [1.5, 9.0], Some(0.15), None),
    row("gemini", "gemini-3.1-pro-preview", 1_048_576, [2.0, 12.0], Some(0.2), Some(200_000)),
    row("gemini", "gemini-3.1-flash-lite", 1_048_576, [0.25, 1.5], Some(0.025), None),
    row("gemini", "gemini-3-flash-preview", 1_048_576, [0.5, 3.0], Some(0.05), None),
    row("gemini", "gemini-2.5-pro", 1_048_576, [1.25, 10.0], Some(0.125), Some(200_000)),
    row("gemini", "gemini-2.5-flash", 1_048_576, [0.3, 2.5], Some(0.03), None),
    row("gemini", "gemini-2.5-flash-lite", 1_048_576, [0.1, 0.4], Some(0.01), None),
    row("deepseek", "deepseek-v4-pro", 1_000_000, [0.435, 0.87], Some(0.003_625), None),
    row("deepseek", "deepseek-v4-flash", 1_000_000, [0.14, 0.28], Some(0.0028), None),
    row("deepseek", "deepseek-chat", 1_000_000, [0.14, 0.28], Some(0.0028), None),
    row("deepseek", "deepseek-reasoner", 1_000_000, [0.14, 0.28], Some(0.0028), None),
    row("xai", "grok-4.3", 1_000_000, [1.25, 2.5], Some(0.2), Some(200_000)),
    row("xai", "grok-build-0.1", 256_000, [1.0, 2.0], Some(0.2), Some(200_000)),
    row("kimi", "kimi-k2.6", 262_144, [0.95, 4.0], Some(0.16), None),
    row("kimi", "kimi-k2.5", 262_144, [0.6, 3.0], Some(0.1), None),
    row("zai", "glm-5.2", 1_000_000, [1.4, 4.4], Some(0.26), None),
    row("zai", "glm-5.1", 200_000, [1.4, 4.4], Some(0.26), None),
    row("zai", "glm-5", 204_800, [1.0, 3.2], Some(0.2), None),
    row("zai", "glm-4.7", 204_800, [0.6, 2.2], Some(0.11), None),
    row("mistral", "mistral-large-2512", 262_144, [0.5, 1.5], None, None),
    row("mistral", "mistral-medium-2604", 262_144, [1.5, 7.5], None, None),
    row("mistral", "mistral-small-2603", 256_000, [0.15, 0.6], None, None),
    row("minimax", "MiniMax-M3", 1_000_000, [0.3, 1.2], Some(0.06), Some(512_000)),
    row("minimax", "MiniMax-M2.7", 204_800, [0.3, 1.2], Some(0.06), None),
    row("groq", "openai/gpt-oss-120b", 131_072, [0.15, 0.6], Some(0.075), None),
    row("groq", "openai/gpt-oss-20b", 131_072, [0.075, 0.3], Some(0.0375), None),
    row("groq", "llama-3.3-70b-versatile", 131_072, [0.59, 0.79], None, None),
];

/// Vendors in the model names of the gateway `open_router`, their provider, and if the gateway charges the provider's
/// prices. Open models have several servers with different prices.
const OPENROUTER_VENDORS: &[(&str, &str, bool)] = &[
    ("openai", "openai", true),
    ("anthropic", "anthropic", true),
    ("google", "gemini", true),
    ("x-ai", "xai", true),
    ("deepseek", "deepseek", false),
    ("moonshotai", "kimi", false),
    ("z-ai", "zai", false),
    ("minimax", "minimax", false),
    ("mistralai", "mistral", false),
];

/// Models of the table that accept only text. All other models get the images.
const TEXT_ONLY: &[(&str, &str)] = &[
    ("openai", "o3-mini"),
    ("deepseek", "deepseek-chat"),
    ("deepseek", "deepseek-reasoner"),
    ("zai", "glm-4.7"),
    ("groq", "openai/gpt-oss-120b"),
    ("groq", "openai/gpt-oss-20b"),
    ("groq", "llama-3.3-70b-versatile"),
];

/// The context window and the price of the model with this name, as a person names it. With the URL of an unknown server,
/// neither is known: the server decides.
pub fn known_model(name: &str, base_url: Option<&str>) -> Option<KnownModel> {
    let (provider, model) = provider_of(name, base_url)?;
    match provider {
        "open_router" => {
            let (vendor, model) = model.split_once('/')?;
            let (_, provider, has_price) = *OPENROUTER_VENDORS
                .iter()
                .find(|(known, ..)| *known == vendor)?;
            let known = find(provider, model)?;
            let price = known.price.filter(|_| has_price);
            Some(KnownModel { price, ..known })
        }
        "openai_resp" => find("openai", model),
        "moonshot" => find("kimi", model),
        provider => find(provider, model),
    }
}

/// Finds the row with this name, or with this name without the date of a snapshot. A name with any other addition is
/// another model.
fn find(provider: &str, model: &str) -> Option<KnownModel> {
    let spelled = spelling(provider, model);
    let named = |name: &str| {
        let is_it = |row: &&ModelRow| {
            row.provider == provider && spelling(provider, row.model).eq_ignore_ascii_case(name)
        };
        MODELS.iter().find(is_it).map(|row| KnownModel {
            is_text_only: TEXT_ONLY.contains(&(row.provider, row.model)),
            price: row.known.price.map(|price| TokenPrice {
                cache_write: (provider == "anthropic").then_some(price.input * CACHE_WRITE_FACTOR),
                ..price
            }),
            ..row.known
        })
    };
    named(&spelled).or_else(|| named(without_date(&spelled)?))
}

/// The name in one spelling: gateways write the versions of Anthropic's models with a dot.
fn spelling(provider: &str, model: &str) -> String {
    let model = model.strip_prefix("models/").unwrap_or(model);
    match provider {
        "anthropic" => model.replace('.', "-"),
        _ => model.to_owned(),
    }
}

/// The name without the date of a snapshot at its end: `-2025-08-07` or `-20251001`. `None` without a date.
fn without_date(model: &str) -> Option<&str> {
    let at = model
        .rmatch_indices('-')
        .map(|(at, _)| at)
        .find(|at| is_date(&model[at + 1..]))?;
    Some(&model[..at])
}

fn is_date(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let has_year = text.starts_with("20");
    match text.len() {
        8 => has_year && digits == 8,
        10 => {
            let bytes = text.as_bytes();
            has_year && digits == 8 && bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(name: &str) -> Option<u64> {
        known_model(name, None).map(|known| known.context_window)
    }

    #[test]
    fn names_of_providers_are_found() {
        for (name, expected) in [
            ("gpt-5-mini", 272_000),
            ("gpt-5-mini-2025-08-07", 272_000),
            ("openai::gpt-4o", 128_000),
            ("openai_resp::gpt-5.5", 922_000),
            ("claude-haiku-4-5-20251001", 200_000),
            ("anthropic::claude-sonnet-4-6", 1_000_000),
            ("gemini-2.5-pro", 1_048_576),
            ("gemini::models/gemini-2.5-flash", 1_048_576),
            ("open_router::anthropic/claude-sonnet-4.5", 200_000),
            ("open_router::openai/gpt-4o", 128_000),
            ("groq::openai/gpt-oss-120b", 131_072),
            ("deepseek-chat", 1_000_000),
            ("MiniMax-M3", 1_000_000),
            ("glm-5", 204_800),
        ] {
            assert_eq!(window(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn similar_names_are_other_models() {
        for name in [
            "gpt-5-mini-preview",
            "gpt-5-minimal",
            "gpt-55",
            "gpt-5-chat-latest",
            "openai::ft:gpt-4o:me::id",
            "gpt-4o-2024",
            "gpt-4o-audio-preview-2024-12-17",
            "claude-haiku",
            "open_router::openai/gpt-4o:free",
            "open_router::gpt-4o",
            "open_router::nobody/gpt-4o",
            "gpt-oss-120b",
            "qwen3:8b",
            "script:demo",
            "",
        ] {
            assert_eq!(window(name), None, "{name}");
        }
    }

    #[test]
    fn server_of_ones_own_has_its_own_window_and_price() {
        assert_eq!(
            known_model("gpt-4o", Some("http://127.0.0.1:8080/v1")),
            None
        );
        assert_eq!(known_model("gpt-4o", Some("not a URL")), None);
        let at_openai = known_model("gpt-4o", Some("https://api.openai.com/v1"));
        assert_eq!(at_openai, known_model("gpt-4o", None));
        let url = Some("https://openrouter.ai/api/v1");
        let known = known_model("openai/gpt-5-mini", url).unwrap();
        assert!(known.price.is_some());
        let known = known_model("deepseek/deepseek-v4-pro", url).unwrap();
        assert_eq!(
            known.price, None,
            "servers of open models have different prices"
        );
    }

    #[test]
    fn snapshot_with_another_price_has_its_own_row() {
        let price = |name| known_model(name, None).unwrap().price.unwrap().input;
        assert!(price("gpt-4o-2024-05-13") > price("gpt-4o"));
        assert!((price("gpt-4o-2024-11-20") - price("gpt-4o")).abs() < f64::EPSILON);
    }

    #[test]
    fn models_without_images_are_in_the_table() {
        for (provider, model) in TEXT_ONLY {
            let known = find(provider, model).unwrap();
            assert!(known.is_text_only, "{model}");
        }
        let is_text_only = |name| known_model(name, None).map(|known| known.is_text_only);
        assert_eq!(is_text_only("o3-mini-2025-01-31"), Some(true));
        assert_eq!(is_text_only("gpt-5-mini"), Some(false));
        assert_eq!(is_text_only("llama3"), None);
        let url = Some("http://127.0.0.1:8080/v1");
        assert_eq!(known_model("o3-mini", url), None);
    }

    #[test]
    fn rows_are_unique_and_plausible() {
        for (at, row) in MODELS.iter().enumerate() {
            let name = (row.provider, row.model);
            let is_same = |other: &&ModelRow| (other.provider, other.model) == name;
            assert_eq!(MODELS.iter().filter(is_same).count(), 1, "{name:?} {at}");
            assert!(row.known.context_window >= 100_000, "{name:?}");
            let price = row.known.price.unwrap();
            assert!(price.input > 0.0 && price.output >= price.input, "{name:?}");
            assert!(price.cached_input.is_none_or(|cached| cached < price.input));
        }
    }
}
