//! Limits on data, in bytes: of a provider, and of files with long output.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, Error};

/// Permitted limits on the data of a provider: 1 KiB holds a short answer. Beyond 16 MiB, the limits on parsed data
/// would apply first.
const OF_PROVIDER: RangeInclusive<u32> = 1_024..=16_777_216;

/// Permitted limits on files: 1 MiB holds the output of some commands, and 1 TiB is the size of a disk.
const OF_FILES: RangeInclusive<u64> = 1_048_576..=1_099_511_627_776;

pub(super) fn answer_bytes_max<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u32>, D::Error> {
    limit(from, "answer_bytes_max", &OF_PROVIDER)
}

pub(super) fn event_bytes_max<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    limit(from, "event_bytes_max", &OF_PROVIDER)
}

pub(super) fn session_output_bytes_max<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    limit(from, "session_output_bytes_max", &OF_FILES)
}

pub(super) fn output_bytes_max<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    limit(from, "output_bytes_max", &OF_FILES)
}

fn limit<'de, D, N>(from: D, key: &str, range: &RangeInclusive<N>) -> Result<Option<N>, D::Error>
where
    D: Deserializer<'de>,
    N: Deserialize<'de> + PartialOrd + Display,
{
    let limit = Option::<N>::deserialize(from)?;
    if let Some(limit) = limit.as_ref().filter(|limit| !range.contains(limit)) {
        let (min, max) = (range.start(), range.end());
        return Err(D::Error::custom(format!(
            "`{key}` is {limit} bytes, expected {min} to {max}"
        )));
    }
    Ok(limit)
}
