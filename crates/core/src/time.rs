//! Wall-clock time for records and receipts. Durations are measured on a monotonic clock, never by subtracting these.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment of wall-clock time, kept to the millisecond and written as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String", extend("format" = "date-time"))]
pub struct Timestamp(i64);

/// What marks a moment beyond the years that a calendar has, such as a clock that is set wrong gives: milliseconds since
/// 1970, and this.
const OUTSIDE_THE_CALENDAR: &str = "ms";

impl Timestamp {
    /// A moment given in milliseconds since 1970.
    pub fn from_unix_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(self) -> i64 {
        self.0
    }
}

impl From<std::time::SystemTime> for Timestamp {
    fn from(at: std::time::SystemTime) -> Self {
        let since = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            // Outside the calendar: still a value that can be read again, never a panic.
            Err(_) => write!(f, "{}{OUTSIDE_THE_CALENDAR}", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let milliseconds = text.strip_suffix(OUTSIDE_THE_CALENDAR);
        if let Some(Ok(ms)) = milliseconds.map(str::parse) {
            return Ok(Self(ms));
        }
        let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(at.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_can_be_read_again_also_outside_the_calendar() {
        for ms in [0, 1_763_755_200_001, -1, i64::MAX, i64::MIN] {
            let at = Timestamp::from_unix_ms(ms);
            let written = serde_json::to_string(&at).expect("a text");
            let read: Timestamp = serde_json::from_str(&written).expect("readable");
            assert_eq!(read, at, "{written}");
        }
        assert!(serde_json::from_str::<Timestamp>("\"soon, ms\"").is_err());
    }
}
