//! Usage and cost of a session for people.

use allstop_core::Usage;
use allstop_core::counted::grouped;
use allstop_model::FIGURES_DATE;
use allstop_runtime::{Cost, SessionCost};

/// Text in the place of an unknown cost.
const PRICE_UNKNOWN: &str = "price unknown";

/// The cost, or a note that the price is unknown. The cost of an estimated usage has a mark.
pub(crate) fn describe_cost(cost: Option<&Cost>, usage: Usage) -> String {
    match cost {
        Some(cost) => format!("{}{cost}", estimate_mark(usage)),
        None => PRICE_UNKNOWN.to_owned(),
    }
}

/// Tokens sent, read from and written to the provider's cache, and received.
pub(crate) fn describe_usage(usage: Usage) -> String {
    let parts = [
        (usage.cached_input_tokens, "cached"),
        (usage.cache_write_input_tokens, "written to the cache"),
    ];
    let parts = parts.into_iter().filter(|(tokens, _)| *tokens > 0);
    let parts: Vec<_> = parts
        .map(|(tokens, name)| format!("{} {name}", grouped(tokens)))
        .collect();
    let cached = match parts.as_slice() {
        [] => String::new(),
        parts => format!(" ({})", parts.join(", ")),
    };
    let mark = estimate_mark(usage);
    let (input, output) = (grouped(usage.input_tokens), grouped(usage.output_tokens));
    format!("{mark}{input} tokens in{cached}, {output} out")
}

/// Usage and cost of each model, and the sum.
pub(crate) fn describe_session_cost(session: &SessionCost) -> String {
    let models = session.models();
    if models.is_empty() {
        return "no model was called in this session".to_owned();
    }
    let line = |name: &str, usage: Usage, cost: Option<&Cost>| {
        let (usage, cost) = (describe_usage(usage), describe_cost(cost, usage));
        format!("{name}: {usage}: {cost}\n")
    };
    let mut text: String = models
        .iter()
        .map(|model| line(&model.model, model.usage, model.cost.as_ref()))
        .collect();
    let total = session.total();
    if models.len() > 1 {
        text.push_str(&line("together", session.usage(), total.as_ref()));
    }
    if models.iter().any(|model| model.cost.is_some()) {
        text.push_str("list prices of ");
        text.push_str(FIGURES_DATE);
        text.push_str(", or `price` of the configuration");
    } else {
        text.push_str("to see the cost, set `price` in `[model]` of the configuration");
    }
    text
}

fn estimate_mark(usage: Usage) -> &'static str {
    if usage.estimated { "~" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_names_cached_and_estimated_tokens() {
        let usage = Usage {
            input_tokens: 1_234_567,
            cached_input_tokens: 1_000,
            cache_write_input_tokens: 200,
            output_tokens: 20,
            estimated: true,
        };
        assert_eq!(
            describe_usage(usage),
            "~1,234,567 tokens in (1,000 cached, 200 written to the cache), 20 out"
        );
        assert_eq!(describe_cost(None, usage), "price unknown");
    }
}
