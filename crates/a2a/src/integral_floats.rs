//! Integer fields of a request in JSON or in a query that a client writes with a fraction or an exponent: `310.0`, `1e2`, `"310.0"`.
//!
//! The JSON mapping of Protocol Buffers permits these forms if the value is an integer, but the A2A library refuses
//! them.

use std::borrow::Cow;

use axum::body::Bytes;
use axum::http::Uri;
use serde_json::Value;
use url::form_urlencoded;

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

/// Replaces integer fields of a query that are written like a fraction by integers, as in a body.
pub(crate) fn with_integers_in_query(uri: &mut Uri) {
    let Some(query) = uri.query() else {
        return;
    };
    let parts: Vec<_> = query.split('&').map(corrected_parameter).collect();
    if parts.iter().all(|part| matches!(part, Cow::Borrowed(_))) {
        return;
    }
    let mut new = uri.clone().into_parts();
    let path_and_query = format!("{}?{}", uri.path(), parts.join("&"));
    new.path_and_query = path_and_query.parse().ok();
    if let Ok(corrected) = Uri::from_parts(new) {
        *uri = corrected;
    }
}

/// Returns one parameter of a query, with an integer as its value if the parameter is an integer field.
fn corrected_parameter(parameter: &str) -> Cow<'_, str> {
    let decoded = form_urlencoded::parse(parameter.as_bytes()).next();
    let integer = decoded
        .filter(|(name, _)| INTEGER_FIELDS.contains(&&**name))
        .and_then(|(name, value)| Some((name, integer_of(&Value::String(value.into_owned()))?)));
    match integer {
        Some((name, integer)) => Cow::Owned(format!("{name}={integer}")),
        None => Cow::Borrowed(parameter),
    }
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
    fn integral_floats_of_a_query_become_integers() {
        for (query, expected) in [
            ("pageSize=7.0", "pageSize=7"),
            (
                "a=1.0&page%53ize=7%2E0&historyLength=1e2",
                "a=1.0&pageSize=7&historyLength=100",
            ),
            ("pageSize=7", "pageSize=7"),
            (
                "pageSize=7.5&pageToken=a%20b",
                "pageSize=7.5&pageToken=a%20b",
            ),
            ("pageSize=1e10", "pageSize=1e10"),
            ("pageSize", "pageSize"),
            ("", ""),
        ] {
            let mut uri: Uri = format!("http://a/tasks?{query}").parse().unwrap();
            with_integers_in_query(&mut uri);
            assert_eq!(uri.to_string(), format!("http://a/tasks?{expected}"));
        }
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
