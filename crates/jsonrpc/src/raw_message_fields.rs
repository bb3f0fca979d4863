//! Fields of a message as raw JSON, so that one field of a wrong type does not prevent reading the other fields.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The known fields of one object. `null` is a value here, not an absent field.
#[derive(Debug, Default)]
pub(crate) struct RawMessageFields<'a> {
    pub(crate) jsonrpc: Option<&'a RawValue>,
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<&'a RawValue>,
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) result: Option<&'a RawValue>,
    pub(crate) error: Option<&'a RawValue>,
    /// A field that occurs more than once. If several fields occur more than once and `id` is one of them, the value is
    /// `id`.
    pub(crate) repeated: Option<&'static str>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum FieldName {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Unknown,
}

impl<'de> Deserialize<'de> for RawMessageFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = RawMessageFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = RawMessageFields::default();
        while let Some(name) = map.next_key::<FieldName>()? {
            let (field, name) = match name {
                FieldName::Jsonrpc => (&mut fields.jsonrpc, "jsonrpc"),
                FieldName::Id => (&mut fields.id, "id"),
                FieldName::Method => (&mut fields.method, "method"),
                FieldName::Params => (&mut fields.params, "params"),
                FieldName::Result => (&mut fields.result, "result"),
                FieldName::Error => (&mut fields.error, "error"),
                FieldName::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if field.replace(map.next_value()?).is_some() && fields.repeated != Some("id") {
                fields.repeated = Some(name);
            }
        }
        Ok(fields)
    }
}
