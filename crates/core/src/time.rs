//! Wall-clock time for records and receipts. Never compute durations from it: use a monotonic clock.

use std::fmt;

use schemars::JsonSchema;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time of the wall clock, with millisecond precision, written as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String", extend("format" = "date-time"))]
pub struct Timestamp(i64);

/// Suffix of a time beyond the calendar, which a wrong clock can give: it follows the milliseconds since 1970.
const OUTSIDE_THE_CALENDAR: &str = "ms";

impl Timestamp {
    /// Makes a timestamp from milliseconds since 1970.
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
        if let Some(text) = usual::text(self.0) {
            return f.write_str(text.as_str());
        }
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            // Outside the calendar: no panic, and still a value that can be parsed again.
            Err(_) => write!(f, "{}{OUTSIDE_THE_CALENDAR}", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match usual::text(self.0) {
            Some(text) => s.serialize_str(text.as_str()),
            None => s.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct TimestampVisitor;

        impl Visitor<'_> for TimestampVisitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a moment as RFC 3339 has it")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                if let Some(ms) = usual::parse(text) {
                    return Ok(Timestamp(ms));
                }
                let milliseconds = text.strip_suffix(OUTSIDE_THE_CALENDAR);
                if let Some(Ok(ms)) = milliseconds.map(str::parse) {
                    return Ok(Timestamp(ms));
                }
                let at: jiff::Timestamp = text.parse().map_err(E::custom)?;
                Ok(Timestamp(at.as_millisecond()))
            }
        }
        d.deserialize_str(TimestampVisitor)
    }
}

/// Fast path for the usual form of all times from 1970 to 9999, `2026-11-22T14:22:46.440Z`. Every record of a log has
/// a timestamp, and this code takes a tenth of the time of a general calendar library.
mod usual {
    const LEN: usize = 24;
    const DAY_MS: i64 = 86_400_000;
    /// End of jiff's calendar, in the last days of the year 9999.
    const END_MS: i64 = 253_402_207_200_000;
    /// Days from March 1st of the year 0, the start of the calculation, to 1970. Years begin in March here, so that a
    /// leap day is the last day of its year.
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_OF_400_YEARS: i64 = 146_097;

    pub(super) struct UsualText([u8; LEN]);

    impl UsualText {
        pub(super) fn as_str(&self) -> &str {
            std::str::from_utf8(&self.0).expect("digits and signs are text")
        }
    }

    pub(super) fn text(unix_ms: i64) -> Option<UsualText> {
        if !(0..END_MS).contains(&unix_ms) {
            return None;
        }
        let (year, month, day) = date(unix_ms / DAY_MS);
        let of_day = unix_ms % DAY_MS;
        let mut text = *b"0000-00-00T00:00:00.000Z";
        for (at, digits, value) in [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, of_day / 3_600_000),
            (14, 2, of_day / 60_000 % 60),
            (17, 2, of_day / 1_000 % 60),
            (20, 3, of_day % 1_000),
        ] {
            let mut rest = value.unsigned_abs();
            for digit in text.get_mut(at..at + digits)?.iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        Some(UsualText(text))
    }

    /// Parses the usual form; `None` for any other form and for an invalid date.
    pub(super) fn parse(text: &str) -> Option<i64> {
        let bytes: &[u8; LEN] = text.as_bytes().try_into().ok()?;
        let signs = [
            (4, b'-'),
            (7, b'-'),
            (10, b'T'),
            (13, b':'),
            (16, b':'),
            (19, b'.'),
            (23, b'Z'),
        ];
        if signs.iter().any(|(at, sign)| bytes.get(*at) != Some(sign)) {
            return None;
        }
        let number = |at: usize, digits: usize| {
            bytes
                .get(at..at + digits)?
                .iter()
                .try_fold(0, |number, digit| {
                    digit
                        .is_ascii_digit()
                        .then(|| number * 10 + i64::from(digit - b'0'))
                })
        };
        let wanted = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        let days = days(wanted);
        if days < 0 || date(days) != wanted || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        Some(days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000 + number(20, 3)?)
    }

    /// The date of a day since 1970.
    fn date(days: i64) -> (i64, i64, i64) {
        let days = days + DAYS_TO_1970;
        let (era, of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let is_next_year = i64::from(month >= 10);
        (
            era * 400 + year + is_next_year,
            month + 3 - 12 * is_next_year,
            day,
        )
    }

    /// The day of a date since 1970.
    fn days((year, month, day): (i64, i64, i64)) -> i64 {
        let (year, month) = if month > 2 {
            (year, month - 3)
        } else {
            (year - 1, month + 9)
        };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * month + 2) / 5 + day - 1;
        era * DAYS_OF_400_YEARS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_TO_1970
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_outside_the_calendar_round_trip() {
        for ms in [0, 1_763_755_200_001, -1, i64::MAX, i64::MIN] {
            let at = Timestamp::from_unix_ms(ms);
            let written = serde_json::to_string(&at).expect("a text");
            let read: Timestamp = serde_json::from_str(&written).expect("readable");
            assert_eq!(read, at, "{written}");
        }
        assert!(serde_json::from_str::<Timestamp>("\"soon, ms\"").is_err());
    }

    #[test]
    fn usual_form_equals_the_form_of_jiff() {
        let days = (0..2_932_894).step_by(53).map(|day| day * 86_400_000);
        let edges = [
            -1,
            951_782_400_000,
            4_107_542_399_999,
            253_402_207_199_999,
            253_402_207_200_000,
        ];
        for ms in days.chain(edges) {
            let at = jiff::Timestamp::from_millisecond(ms).expect("in the calendar");
            let (ours, theirs) = (Timestamp(ms).to_string(), format!("{at:.3}"));
            assert_eq!(ours, theirs);
            assert_eq!(usual::parse(&theirs), (ms >= 0).then_some(ms), "{theirs}");
        }
    }

    #[test]
    fn invalid_dates_are_refused_and_other_forms_parse() {
        let read = |text: &str| serde_json::from_str::<Timestamp>(&format!("{text:?}"));
        for wrong in [
            "2026-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-00-01T00:00:00.000Z",
            "2026-01-00T00:00:00.000Z",
            "2026-01-01T24:00:00.000Z",
            "2026-01-01T00:60:00.000Z",
            "2026-01-01T00:00:00.0x0Z",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let at = |text| read(text).expect("a moment").unix_ms();
        assert_eq!(at("1970-01-01T01:00:00+01:00"), 0);
        assert_eq!(at("1970-01-01T00:00:00.0015Z"), 1);
        assert_eq!(
            at("2016-12-31T23:59:60.000Z"),
            at("2016-12-31T23:59:59.000Z")
        );
    }
}
