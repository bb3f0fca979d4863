//! Wall-clock time for records of the log and for receipts of stops. Use a monotonic clock to measure durations.

use std::fmt;

use schemars::JsonSchema;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time of the wall clock, with millisecond precision, written as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String", extend("format" = "date-time"))]
pub struct Timestamp(i64);

/// Suffix of a time outside the calendar's range, which a wrong clock can produce. The text is the milliseconds since
/// 1970, then this suffix.
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
        match calendar::text(self.0) {
            Some(text) => f.write_str(text.as_str()),
            // Such a time must not cause a panic, and the parser accepts this text.
            None => write!(f, "{}{OUTSIDE_THE_CALENDAR}", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match calendar::text(self.0) {
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
                let outside = || text.strip_suffix(OUTSIDE_THE_CALENDAR)?.parse().ok();
                let ms = calendar::parse(text).or_else(outside);
                ms.map(Timestamp)
                    .ok_or_else(|| E::custom("it is no moment as RFC 3339 has it"))
            }
        }
        d.deserialize_str(TimestampVisitor)
    }
}

/// Times in RFC 3339, written as `2026-11-22T14:22:46.440Z`. Every record of a log has a timestamp, so speed matters:
/// this code needs a tenth of the time that a general calendar library needs.
mod calendar {
    use std::ops::Range;

    const LEN: usize = 24;
    const DAY_MS: i64 = 86_400_000;
    /// Times from the year 1 to the last days of the year 9999. Older versions can read this range.
    const WRITTEN_MS: Range<i64> = -62_135_596_800_000..253_402_207_200_000;
    /// Number of days from March 1st of the year 0 to the start of 1970. The years of the calculation begin on March
    /// 1st, so that a leap day is the last day of a year.
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_OF_400_YEARS: i64 = 146_097;

    pub(super) struct CalendarText([u8; LEN]);

    impl CalendarText {
        pub(super) fn as_str(&self) -> &str {
            std::str::from_utf8(&self.0).expect("digits and signs are text")
        }
    }

    pub(super) fn text(unix_ms: i64) -> Option<CalendarText> {
        if !WRITTEN_MS.contains(&unix_ms) {
            return None;
        }
        let (year, month, day) = date(unix_ms.div_euclid(DAY_MS));
        let of_day = unix_ms.rem_euclid(DAY_MS);
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
        Some(CalendarText(text))
    }

    /// Parses any form of RFC 3339. `None` for any other text and for an invalid date. A leap second becomes the
    /// previous second.
    pub(super) fn parse(text: &str) -> Option<i64> {
        let bytes = text.as_bytes();
        let signs = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
        if signs.iter().any(|(at, sign)| bytes.get(*at) != Some(sign))
            || !matches!(bytes.get(10)?, b'T' | b't' | b' ')
        {
            return None;
        }
        let wanted = (
            number(bytes, 0, 4)?,
            number(bytes, 5, 2)?,
            number(bytes, 8, 2)?,
        );
        let days = days(wanted);
        if date(days) != wanted {
            return None;
        }
        let minutes = minutes(number(bytes, 11, 2)?, number(bytes, 14, 2)?)?;
        let second = number(bytes, 17, 2).filter(|second| *second <= 60)?.min(59);
        let (ms, zone) = fraction(bytes.get(19..)?)?;
        let offset = match zone {
            b"Z" | b"z" => 0,
            [b'+', ..] => offset(zone)?,
            [b'-', ..] => -offset(zone)?,
            _ => return None,
        };
        Some(days * DAY_MS + ((minutes - offset) * 60 + second) * 1_000 + ms)
    }

    fn number(bytes: &[u8], at: usize, digits: usize) -> Option<i64> {
        let mut digits = bytes.get(at..at + digits)?.iter();
        digits.try_fold(0, |number, digit| {
            let is_digit = digit.is_ascii_digit();
            is_digit.then(|| number * 10 + i64::from(digit.wrapping_sub(b'0')))
        })
    }

    fn minutes(hour: i64, minute: i64) -> Option<i64> {
        (hour <= 23 && minute <= 59).then_some(hour * 60 + minute)
    }

    /// Minutes of an offset, such as `+01:30`.
    fn offset(zone: &[u8]) -> Option<i64> {
        if zone.len() != 6 || zone.get(3) != Some(&b':') {
            return None;
        }
        minutes(number(zone, 1, 2)?, number(zone, 4, 2)?)
    }

    /// The milliseconds at the beginning of the text, if there are any, and the bytes after the digits.
    fn fraction(bytes: &[u8]) -> Option<(i64, &[u8])> {
        let Some(digits) = bytes.strip_prefix(b".") else {
            return Some((0, bytes));
        };
        let len = digits
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = digits.split_at_checked(len).filter(|_| len > 0)?;
        let three = digits.iter().chain(b"00").take(3);
        let ms = three.fold(0, |ms, digit| ms * 10 + i64::from(digit - b'0'));
        Some((ms, rest))
    }

    /// Calendar date of a day. The day is given as a number of days since 1970.
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

    /// Number of days from 1970 to this date.
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
    fn known_moments_are_written_and_every_day_is_read() {
        for (ms, text) in [
            (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_763_755_200_001, "2025-11-21T20:00:00.001Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_207_199_999, "9999-12-30T21:59:59.999Z"),
            (253_402_207_200_000, "253402207200000ms"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), text);
        }
        let mut before = String::new();
        for ms in (-719_162..2_932_894).step_by(5).map(|day| day * 86_400_000) {
            let text = Timestamp(ms).to_string();
            assert!(before < text, "{before} {text}");
            assert_eq!(calendar::parse(&text), Some(ms), "{text}");
            before = text;
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
            "2026-01-01T00:00:61.000Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+1:000",
            "2026-01-01T00:00:00Zulu",
            "2026-01-01",
            "",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let at = |text| read(text).expect("a moment").unix_ms();
        assert_eq!(at("1970-01-01T01:00:00+01:00"), 0);
        assert_eq!(at("1969-12-31t22:30:00.5-01:30"), 500);
        assert_eq!(at("1970-01-01 00:00:01z"), 1_000);
        assert_eq!(at("1970-01-01T00:00:00.0015Z"), 1);
        assert_eq!(
            at("2016-12-31T23:59:60.000Z"),
            at("2016-12-31T23:59:59.000Z")
        );
    }
}
