//! Reads text directly into an `Arc<str>`. Serde's own implementation first allocates a `String` for each id and each
//! message of a session.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error, Visitor};

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<str>, D::Error> {
    struct SharedText;

    impl Visitor<'_> for SharedText {
        type Value = Arc<str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
            Ok(Arc::from(text))
        }
    }
    d.deserialize_str(SharedText)
}

pub(crate) fn deserialize_some<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Arc<str>>, D::Error> {
    deserialize(d).map(Some)
}
