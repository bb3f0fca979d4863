//! Durations as people write them: `500ms`, `1.5s`, `5m`, `1h30m`, `30d`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration as it is written in the configuration, in flags and in scripts: `500ms`, `1.5s`, `5m`, `1h30m` or `30d`.
/// Several parts have descending units. Only whole milliseconds remain of a fraction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanDuration(pub Duration);

/// Error of a text that is not a valid duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The duration is negative.
    #[error("the duration {0:?} is negative; write 500ms, 1.5s, 5m, 1h30m or 30d")]
    Negative(String),
    /// The unit is missing, so the number could mean seconds or minutes.
    #[error("the duration {0:?} has no unit; write {0}ms, {0}s, {0}m, {0}h or {0}d")]
    NoUnit(String),
    /// The unit is unknown.
    #[error("the duration {0:?} has an unknown unit; write 500ms, 1.5s, 5m, 1h30m or 30d")]
    Unit(String),
    /// No number precedes a unit, or the units do not descend.
    #[error("{0:?} is not a duration; write 500ms, 1.5s, 5m, 1h30m or 30d")]
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
        if trimmed.is_empty() {
            return Err(DurationError::Number(given()));
        }
        let (mut rest, mut total_ms, mut last_unit_ms) = (trimmed, 0_u64, u64::MAX);
        while !rest.is_empty() {
            let is_number = |c: char| c.is_ascii_digit() || c == '.';
            let Some(unit_at) = rest.find(|c| !is_number(c)) else {
                let is_part = rest.contains('.') || rest != trimmed;
                return Err(if is_part {
                    DurationError::Number(given())
                } else {
                    DurationError::NoUnit(given())
                });
            };
            let (number, tail) = rest.split_at(unit_at);
            let unit_len = tail.find(is_number).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            if number.is_empty() {
                return Err(DurationError::Number(given()));
            }
            let unit_ms = unit_ms(unit).ok_or_else(|| DurationError::Unit(given()))?;
            if unit_ms >= last_unit_ms {
                return Err(DurationError::Number(given()));
            }
            let part_ms = part_ms(number, unit_ms).map_err(|why| match why {
                PartError::Number => DurationError::Number(given()),
                PartError::TooLong => DurationError::TooLong(given()),
            })?;
            total_ms = total_ms
                .checked_add(part_ms)
                .ok_or_else(|| DurationError::TooLong(given()))?;
            (rest, last_unit_ms) = (tail, unit_ms);
        }
        if total_ms > DURATION_MS_MAX {
            return Err(DurationError::TooLong(given()));
        }
        Ok(Self(Duration::from_millis(total_ms)))
    }
}

/// Milliseconds of a unit; `None` if the unit is unknown.
fn unit_ms(unit: &str) -> Option<u64> {
    Some(match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    })
}

/// Problem of one part of a duration.
enum PartError {
    Number,
    TooLong,
}

/// Maximum digits after the point. Every unit then stays exact in 64 bits, and no limit needs finer steps.
const FRACTION_DIGITS_MAX: usize = 6;

/// Milliseconds of a number with this unit.
fn part_ms(number: &str, unit_ms: u64) -> Result<u64, PartError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > FRACTION_DIGITS_MAX {
        return Err(PartError::Number);
    }
    let scale = 10_u64.pow(u32::try_from(fraction.len()).unwrap_or_default());
    let parts = fraction.parse::<u64>().map_err(|_| PartError::Number)?;
    let fraction_ms = parts * unit_ms / scale;
    // A fraction below one millisecond would silently become zero.
    if parts > 0 && fraction_ms == 0 {
        return Err(PartError::Number);
    }
    let whole: u64 = whole.parse().map_err(|_| PartError::TooLong)?;
    whole
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add(fraction_ms))
        .ok_or(PartError::TooLong)
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
            "description": "A duration: `500ms`, `1.5s`, `5m`, `1h30m`, `30d`.",
            "type": "string",
            "pattern": "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$",
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
        for (text, ms) in [
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0.25h", 900_000),
        ] {
            let read: HumanDuration = text.parse().unwrap();
            assert_eq!(read.0, Duration::from_millis(ms), "{text}");
            assert_eq!(read.to_string().parse(), Ok(read), "{text}");
        }
        let days: HumanDuration = "30d".parse().unwrap();
        assert_eq!(days.to_string(), "720h");
    }

    #[test]
    fn invalid_durations_are_refused_with_a_reason() {
        use DurationError::{Negative, NoUnit, Number, TooLong, Unit};
        type Make = fn(String) -> DurationError;
        let cases: [(&str, Make); 18] = [
            ("", Number),
            ("ms", Number),
            (".5s", Number),
            ("1.s", Number),
            ("1.5.5s", Number),
            ("0.5ms", Number),
            ("1s30m", Number),
            ("1m1m", Number),
            ("1m30", Number),
            ("1.5", Number),
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
