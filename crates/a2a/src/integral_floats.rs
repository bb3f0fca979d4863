//! Integer fields of a JSON request that a client writes with a fraction or an exponent: `310.0`, `1e2`, `"310.0"`.
//!
//! The JSON mapping of Protocol Buffers permits these forms if the value is an integer, but the A2A library refuses
//! them.

use axum::body::Bytes;
use serde_json::Value;

/// Integer fields of all requests, in both spellings that the JSON mapping of Protocol Buffers accepts.
const INTEGER_FIELDS: [&str; 4] = ["historyLength", "history_length", "pageSize", "page_size"];

/// Replaces integer fields that are written like a fraction by integers. Other values and malformed JSON stay
/// unchanged, because the parser of the request describes the error.
pub(crate) fn with_integers(body: Bytes) -> Bytes {
    if !mentions_integer_field(&body) {
        return body;
    }
    let Ok(mut request) = serde_json::from_slice::<Value>(&body) else {
        return body;
    };
    // The parameters of JSON-RPC are in an envelope.
    let mut is_changed = correct(&mut request);
    if let Some(params) = request.get_mut("params") {
        is_changed |= correct(params);
    }
    if !is_changed {
        return body;
    }
    serde_json::to_vec(&request).map_or(body, Bytes::from)
}

/// True if the body contains the name of an integer field. Most requests do not, so they are parsed only once.
fn mentions_integer_field(body: &[u8]) -> bool {
    INTEGER_FIELDS.iter().any(|field| {
        let field = field.as_bytes();
        body.windows(field.len()).any(|bytes| bytes == field)
    })
}

/// Corrects the fields of one message and of its configuration. Returns true if a field has changed.
fn correct(message: &mut Value) -> bool {
    let is_changed = correct_fields(message);
    let in_configuration = message.get_mut("configuration").is_some_and(correct_fields);
    is_changed || in_configuration
}

fn correct_fields(message: &mut Value) -> bool {
    let mut is_changed = false;
    for field in INTEGER_FIELDS {
        let Some(value) = message.get_mut(field) else {
            continue;
        };
        if let Some(integer) = integer_of(value) {
            *value = integer.into();
            is_changed = true;
        }
    }
    is_changed
}

/// The integer that a number with a fraction or an exponent denotes; `None` for all other values.
fn integer_of(value: &Value) -> Option<i32> {
    let number = match value {
        Value::Number(number) if number.is_f64() => number.as_f64()?,
        Value::String(text) if text.contains(['.', 'e', 'E']) => number_in(text)?,
        _ => return None,
    };
    let is_integer = number.fract() == 0.0;
    let is_in_range = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value is an integer in the range"
    )]
    (is_integer && is_in_range).then_some(number as i32)
}

/// Parses the text like JSON, which permits fewer forms than a parser of floats does.
fn number_in(text: &str) -> Option<f64> {
    let is_padded = text.trim().len() < text.len();
    (!is_padded).then(|| serde_json::from_str(text).ok())?
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn corrected(request: &Value) -> Value {
        let body = with_integers(request.to_string().into());
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn integral_floats_become_integers() {
        for (given, expected) in [
            (json!(310.0), json!(310)),
            (json!(-0.0), json!(0)),
            (json!(1e2), json!(100)),
            (json!("310.0"), json!(310)),
            (json!("1E2"), json!(100)),
        ] {
            for field in INTEGER_FIELDS {
                let plain = json!({ field: given, "id": "t" });
                assert_eq!(corrected(&plain), json!({ field: expected, "id": "t" }));
                let call = json!({ "params": { "configuration": { field: given } } });
                let expected = json!({ "params": { "configuration": { field: expected } } });
                assert_eq!(corrected(&call), expected);
            }
        }
    }

    /// The parser of the request refuses these values, or accepts them as they are.
    #[test]
    fn other_values_stay_unchanged() {
        for value in [
            json!(1.5),
            json!(3e9),
            json!(-3e9),
            json!(7),
            json!("7"),
            json!(""),
            json!("1.5"),
            json!(" 1.0"),
            json!("inf.e"),
            json!(null),
            json!([1.0]),
        ] {
            let body = json!({ "pageSize": value }).to_string();
            assert_eq!(with_integers(body.clone().into()), body);
        }
        let data = json!({ "message": { "metadata": { "pageSize": 1.0 } } }).to_string();
        assert_eq!(with_integers(data.clone().into()), data);
        for body in ["", "{\"pageSize\":1.0", "[\"pageSize\"]", "\"pageSize\""] {
            assert_eq!(with_integers(body.into()), body);
        }
    }
}
