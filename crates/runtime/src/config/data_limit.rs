//! Limits on the data of a provider, in bytes.

use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, Error};

/// Permitted limits: 1 KiB holds a short answer. Beyond 16 MiB, the limits on parsed data would apply first.
const RANGE: RangeInclusive<u32> = 1_024..=16_777_216;

pub(super) fn answer_bytes_max<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u32>, D::Error> {
    limit(from, "answer_bytes_max")
}

pub(super) fn event_bytes_max<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    limit(from, "event_bytes_max")
}

fn limit<'de, D: Deserializer<'de>>(from: D, key: &str) -> Result<Option<u32>, D::Error> {
    let limit = Option::<u32>::deserialize(from)?;
    if let Some(limit) = limit.filter(|limit| !RANGE.contains(limit)) {
        let (min, max) = (RANGE.start(), RANGE.end());
        return Err(D::Error::custom(format!(
            "`{key}` is {limit} bytes, expected {min} to {max}"
        )));
    }
    Ok(limit)
}
