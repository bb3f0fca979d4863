//! Durations as people write them: `500ms`, `2s`, `5m`, `8h`, `30d`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration as it is written in the configuration, in flags and in scripts: `500ms`, `2s`, `5m`, `8h` or `30d`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanDuration(pub Duration);

/// Error of a text that is not a valid duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The duration is negative.
    #[error("the duration {0:?} is negative; write 500ms, 2s, 5m, 8h or 30d")]
    Negative(String),
    /// The unit is missing, so the number could mean seconds or minutes.
    #[error("the duration {0:?} has no unit; write {0}ms, {0}s, {0}m, {0}h or {0}d")]
    NoUnit(String),
    /// The unit is unknown.
    #[error("the duration {0:?} has an unknown unit; write 500ms, 2s, 5m, 8h or 30d")]
    Unit(String),
    /// No whole number precedes the unit.
    #[error("{0:?} is not a duration; write 500ms, 2s, 5m, 8h or 30d")]
    Number(String),
    /// The duration is longer than 100 years.
    #[error("the duration {0:?} is too long")]
    TooLong(String),
}

/// Longest duration in milliseconds: 100 years. This duration can still be added to the present time without an
/// overflow.
const DURATION_MS_MAX: u64 = 100 * 365 * 24 * 60 * 60 * 1000;

impl FromStr for HumanDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let given = || text.to_owned();
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(DurationError::Negative(given()));
        }
        let Some(unit_at) = trimmed.find(|c: char| !c.is_ascii_digit()) else {
            return Err(match trimmed {
                "" => DurationError::Number(given()),
                _ => DurationError::NoUnit(given()),
            });
        };
        let (number, unit) = trimmed.split_at(unit_at);
        let ms_per_unit = match unit {
            _ if number.is_empty() => return Err(DurationError::Number(given())),
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ if unit.starts_with(['.', ',']) => return Err(DurationError::Number(given())),
            _ => return Err(DurationError::Unit(given())),
        };
        let number: Option<u64> = number.parse().ok();
        number
            .and_then(|number| number.checked_mul(ms_per_unit))
            .filter(|ms| *ms <= DURATION_MS_MAX)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(|| DurationError::TooLong(given()))
    }
}

impl TryFrom<String> for HumanDuration {
    type Error = DurationError;

    fn try_from(text: String) -> Result<Self, DurationError> {
        text.parse()
    }
}

impl From<HumanDuration> for String {
    fn from(duration: HumanDuration) -> Self {
        duration.to_string()
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            ms if ms > 0 && ms.is_multiple_of(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            ms if ms > 0 && ms.is_multiple_of(60_000) => write!(f, "{}m", ms / 60_000),
            ms if ms > 0 && ms.is_multiple_of(1_000) => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration: `500ms`, `2s`, `5m`, `8h`, `30d`.",
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h|d)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for (text, ms) in [
            ("0ms", 0),
            ("1ms", 1),
            ("1500ms", 1_500),
            ("2s", 2_000),
            ("5m", 300_000),
            ("8h", 28_800_000),
        ] {
            let read: HumanDuration = text.parse().unwrap();
            assert_eq!(read.0, Duration::from_millis(ms), "{text}");
            assert_eq!(read.to_string(), text);
        }
        let days: HumanDuration = "30d".parse().unwrap();
        assert_eq!(days.to_string(), "720h");
    }

    #[test]
    fn invalid_durations_are_refused_with_a_reason() {
        use DurationError::{Negative, NoUnit, Number, TooLong, Unit};
        type Make = fn(String) -> DurationError;
        let cases: [(&str, Make); 11] = [
            ("", Number),
            ("ms", Number),
            ("1.5s", Number),
            ("-1", Negative),
            ("-1s", Negative),
            ("5", NoUnit),
            ("1w", Unit),
            ("1 s", Unit),
            ("2S", Unit),
            ("99999999999999999999s", TooLong),
            ("9999999999999m", TooLong),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<HumanDuration>(), Err(error(text.to_owned())));
        }
    }
}
