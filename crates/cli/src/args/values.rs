//! Parsers of values that several commands accept.

use std::str::FromStr;

use allstop_core::HumanDuration;
use allstop_core::turn::StopPolicy;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

pub(super) fn stop_policies() -> impl TypedValueParser<Value = StopPolicy> {
    let policies = [StopPolicy::Rollback, StopPolicy::Keep];
    let values = policies.map(|policy| {
        PossibleValue::new(policy.as_str()).help(match policy {
            StopPolicy::Rollback => {
                "Nothing: the conversation returns to its state before the turn"
            }
            StopPolicy::Keep => "The message, the completed steps, and a marker for the stop",
        })
    });
    PossibleValuesParser::new(values).map(move |name| {
        let mut policies = policies.into_iter();
        policies
            .find(|policy| policy.as_str() == name)
            .unwrap_or_default()
    })
}

/// Parses a deadline. Zero is an error: such a deadline passes before the command can read anything.
pub(super) fn deadline(text: &str) -> Result<HumanDuration, String> {
    longer_than_zero("a deadline", text)
}

/// Parses an age. Zero is an error: it would cover everything.
pub(super) fn age(text: &str) -> Result<HumanDuration, String> {
    longer_than_zero("an age", text)
}

fn longer_than_zero(name: &str, text: &str) -> Result<HumanDuration, String> {
    let duration: HumanDuration = text.parse().map_err(|error| format!("{error}"))?;
    if duration.0.is_zero() {
        return Err(format!("{name} must be longer than 0"));
    }
    Ok(duration)
}

/// Parses a number that is not 0.
pub(super) fn at_least_one<T: FromStr>(text: &str) -> Result<T, String> {
    let number = text.parse();
    number.map_err(|_| "expected a whole number, 1 or more".to_owned())
}
