//! Parses a provider's JSON into a value, with a limit for the memory of the value.
//!
//! A value takes far more memory than its text: each `0` of an array takes 32 bytes, and each `{"a":0}` takes about 700
//! bytes. So before a long text is parsed, this module computes its weight: an estimate of the memory in bytes.

use std::fmt;

use allstop_core::json_text::has_reserved_key;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Maximum weight of a value. A single text weighs as much as its length, so an event of the maximum length fits.
pub(super) const VALUE_BYTES_MAX: usize = 24 * 1024 * 1024;

/// Maximum weight for each byte of text. The worst case is `{"":0},`: it has seven bytes, and is an object with one
/// field.
const WEIGHT_PER_BYTE_MAX: usize = 128;
/// Weight of an array item. The vector of the array may have grown to twice the length of the array.
const ITEM_BYTES: usize = 2 * size_of::<Value>();
/// Weight of an object with fields: the first node of the object's tree, with space for eleven fields.
const OBJECT_BYTES: usize = 640;
/// Weight of a field without the name of the field. The nodes of the tree may be half empty.
const FIELD_BYTES: usize = 128;

/// Reason why a text cannot be parsed.
#[derive(Debug)]
pub(super) enum JsonError {
    Syntax(serde_json::Error),
    /// The value would weigh more than [`VALUE_BYTES_MAX`].
    TooLarge,
}

pub(super) fn parse(text: &str) -> Result<Value, JsonError> {
    let mut room = VALUE_BYTES_MAX;
    if text.len() > room / WEIGHT_PER_BYTE_MAX {
        return parse_within(text, &mut room);
    }
    value_of(text)
}

/// Parses a text as JSON, and subtracts the weight of the value from `room`.
pub(super) fn parse_within(text: &str, room: &mut usize) -> Result<Value, JsonError> {
    let mut left = Some(*room);
    let mut json = serde_json::Deserializer::from_str(text);
    let weighed = ValueScale { left: &mut left }.deserialize(&mut json);
    *room = left.ok_or(JsonError::TooLarge)?;
    weighed.map_err(JsonError::Syntax)?;
    value_of(text)
}

fn value_of(text: &str) -> Result<Value, JsonError> {
    if has_reserved_key(text.as_bytes()) {
        let error = serde_json::Error::custom("an object has a key that is reserved");
        return Err(JsonError::Syntax(error));
    }
    serde_json::from_str(text).map_err(JsonError::Syntax)
}

/// Computes the weight of a value without storing the value, and subtracts the weight from `left`. If the value is too
/// heavy, `left` becomes `None`.
struct ValueScale<'a> {
    left: &'a mut Option<usize>,
}

impl ValueScale<'_> {
    fn add<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        *self.left = self.left.and_then(|left| left.checked_sub(bytes));
        match self.left {
            Some(_) => Ok(()),
            None => Err(E::custom("too large")),
        }
    }

    fn again(&mut self) -> ValueScale<'_> {
        ValueScale { left: self.left }
    }
}

impl<'de> DeserializeSeed<'de> for ValueScale<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueScale<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(mut self, text: &str) -> Result<(), E> {
        self.add(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.again())?.is_some() {
            self.add(ITEM_BYTES)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        // The weight of the object itself is added with its first field, because an empty object allocates no memory.
        let mut own = OBJECT_BYTES;
        while fields.next_key_seed(self.again())?.is_some() {
            self.add(FIELD_BYTES + std::mem::take(&mut own))?;
            fields.next_value_seed(self.again())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_parsed_and_heavy_values_are_refused() {
        let megabytes = |count: usize| count * 1024 * 1024;
        let long = serde_json::to_string(&"x".repeat(megabytes(16))).unwrap();
        assert!(parse(&long).is_ok());
        for heavy in ["0", "[]", "{}", "{\"\":0}", "\"\""] {
            let text = format!("[{heavy}{}]", format!(",{heavy}").repeat(megabytes(1)));
            assert!(matches!(parse(&text), Err(JsonError::TooLarge)), "{heavy}");
        }
        let fields: Vec<_> = (0..megabytes(1)).map(|at| format!("\"{at}\":0")).collect();
        let text = format!("{{{}}}", fields.join(","));
        assert!(matches!(parse(&text), Err(JsonError::TooLarge)));
    }

    #[test]
    fn reserved_keys_are_refused() {
        for padding in [0, 1024 * 1024] {
            let padding = "x".repeat(padding);
            let text = format!(r#"{{"{padding}":{{"$serde_json::private::RawValue":"[1]"}}}}"#);
            assert!(matches!(parse(&text), Err(JsonError::Syntax(_))));
        }
    }

    #[test]
    fn values_share_the_room() {
        let text = format!("[{}]", ["{\"a\":0}"; 100].join(","));
        let mut room = 100_000;
        assert!(parse_within(&text, &mut room).is_ok());
        assert!(matches!(
            parse_within(&text, &mut room),
            Err(JsonError::TooLarge)
        ));
    }

    #[test]
    fn text_that_is_not_json_has_the_error_of_the_parser() {
        for length in [1, 1024 * 1024] {
            let open = format!("{{\"a\": \"{}", "x".repeat(length));
            let error = parse(&open).unwrap_err();
            assert!(matches!(error, JsonError::Syntax(error) if error.is_eof()));
            let behind = format!("\"{}\" x", "x".repeat(length));
            assert!(matches!(parse(&behind), Err(JsonError::Syntax(_))));
        }
    }
}
