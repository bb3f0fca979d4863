//! Durations as people write them: `500ms`, `2s`, `5m`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration, written `500ms`, `2s` or `5m`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written(pub Duration);

impl Written {
    fn parse(text: &str) -> Option<Self> {
        let unit = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(unit);
        let number: u64 = number.parse().ok()?;
        Some(Self(match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            _ => return None,
        }))
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            ms if ms > 0 && ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms if ms > 0 && ms % 1000 == 0 => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is no duration: write 500ms, 2s or 5m"))
        })
    }
}

impl JsonSchema for Written {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration: `500ms`, `2s`, `5m`.",
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, ms) in [
            ("0ms", 0),
            ("1ms", 1),
            ("1500ms", 1500),
            ("2s", 2000),
            ("5m", 300_000),
        ] {
            let read = Written::parse(text).unwrap();
            assert_eq!(read.0, Duration::from_millis(ms));
            assert_eq!(read.to_string(), text);
        }
        for text in [
            "",
            "5",
            "ms",
            "-1s",
            "1.5s",
            "1h",
            "1 s",
            "99999999999999999999s",
            "s5",
        ] {
            assert_eq!(Written::parse(text), None, "{text:?}");
        }
    }
}
