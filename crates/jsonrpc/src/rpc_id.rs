//! Identifiers of requests, kept as they were written.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Identifier of a request: the JSON text of a string or of a number, kept verbatim.
///
/// An answer repeats the text byte for byte, so integers beyond 64 bits, fractions and escapes stay unchanged. Two ids
/// are equal if their texts are equal: `1` is neither `1.0` nor `"1"`, and `"a"` is not `"\u0061"`. A clone shares the
/// text.
///
/// JSON-RPC 2.0 also defines the id `null`, for answers to a request whose id could not be read. This type has no such
/// value: such an answer has no id.
#[derive(Clone)]
pub struct RpcId(Arc<RawValue>);

impl RpcId {
    /// Reads an id; `None` if the value is neither a string nor a number.
    pub fn from_raw(value: &RawValue) -> Option<Self> {
        let first = value.get().bytes().next()?;
        let is_id = first == b'"' || first == b'-' || first.is_ascii_digit();
        is_id.then(|| Self(Arc::from(value.to_owned())))
    }

    /// The JSON text; a string includes its quotes.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

impl From<u64> for RpcId {
    fn from(number: u64) -> Self {
        let text = RawValue::from_string(number.to_string());
        Self(Arc::from(text.expect("an integer is JSON")))
    }
}

impl PartialEq for RpcId {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

impl Eq for RpcId {}

impl Hash for RpcId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_json().hash(state);
    }
}

impl fmt::Debug for RpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RpcId({})", self.as_json())
    }
}

/// Writes the JSON text.
impl fmt::Display for RpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl Serialize for RpcId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Reads ids in parameters, such as the parameters of the LSP notification `$/cancelRequest`.
impl<'de> Deserialize<'de> for RpcId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_raw(&value)
            .ok_or_else(|| D::Error::custom("invalid request id: must be a string or a number"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn id(text: &str) -> RpcId {
        serde_json::from_str(text).expect("an id")
    }

    #[test]
    fn ids_are_kept_verbatim() {
        for text in [
            "0",
            "-7",
            "1.0",
            "1e3",
            "18446744073709551616",
            "0.10000000000000000000000001",
            "\"\"",
            "\"a\\u0062\"",
            "\"\\ud800\"",
            "\"ü\"",
        ] {
            assert_eq!(id(text).as_json(), text);
            assert_eq!(serde_json::to_string(&id(text)).expect("JSON"), text);
        }
    }

    #[test]
    fn ids_are_compared_as_text() {
        let texts = ["1", "1.0", "\"1\"", "1e0", "\"\\u0031\""];
        let ids: HashSet<RpcId> = texts.into_iter().map(id).collect();
        assert_eq!(ids.len(), texts.len());
        assert_eq!(id(" 1 "), RpcId::from(1));
    }

    #[test]
    fn other_values_are_no_ids() {
        for text in ["null", "true", "false", "[]", "[1]", "{}"] {
            let read = serde_json::from_str::<RpcId>(text);
            assert!(read.is_err(), "{text}");
        }
    }
}
