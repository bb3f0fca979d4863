//! Messages to send, as bodies for [`encode_frame`](crate::encode_frame).

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;

use crate::{RpcError, RpcId};

/// Reason why a message can't be written.
#[derive(Debug, Error)]
pub enum EncodeMessageError {
    /// The parameters or the result can't be written as JSON.
    #[error("the value cannot be written as JSON")]
    NotJson(#[source] serde_json::Error),
    /// JSON-RPC 2.0 allows only objects and arrays as parameters.
    #[error("parameters must be an object or an array")]
    ParamsNotStructured,
}

#[derive(Serialize)]
struct CallRecord<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RpcId>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct ResultRecord<'a, T> {
    jsonrpc: &'static str,
    id: &'a RpcId,
    result: &'a T,
}

#[derive(Serialize)]
struct ErrorRecord<'a> {
    jsonrpc: &'static str,
    /// `null` if the id of the request could not be read.
    id: Option<&'a RpcId>,
    error: &'a RpcError,
}

/// Returns the body of a request. Parameters that are `null` in JSON, such as `()` or `None`, are left out.
pub fn encode_request(
    id: &RpcId,
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, EncodeMessageError> {
    encode_call(Some(id), method, params)
}

/// Returns the body of a notification. Parameters that are `null` in JSON, such as `()` or `None`, are left out.
pub fn encode_notification(
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, EncodeMessageError> {
    encode_call(None, method, params)
}

/// Returns the body of a response with a result.
pub fn encode_response(id: &RpcId, result: &impl Serialize) -> Result<Vec<u8>, EncodeMessageError> {
    let record = ResultRecord {
        jsonrpc: "2.0",
        id,
        result,
    };
    serde_json::to_vec(&record).map_err(EncodeMessageError::NotJson)
}

/// Returns the body of a response with an error. A response without an id answers a message whose id could not be read.
pub fn encode_error_response(id: Option<&RpcId>, error: &RpcError) -> Vec<u8> {
    let record = ErrorRecord {
        jsonrpc: "2.0",
        id,
        error,
    };
    serde_json::to_vec(&record).expect("an error holds only JSON values")
}

fn encode_call(
    id: Option<&RpcId>,
    method: &str,
    params: &impl Serialize,
) -> Result<Vec<u8>, EncodeMessageError> {
    let params = to_raw_value(params).map_err(EncodeMessageError::NotJson)?;
    let params = match params.get().bytes().next() {
        Some(b'{' | b'[') => Some(params),
        _ if params.get() == "null" => None,
        _ => return Err(EncodeMessageError::ParamsNotStructured),
    };
    let record = CallRecord {
        jsonrpc: "2.0",
        id,
        method,
        params,
    };
    serde_json::to_vec(&record).map_err(EncodeMessageError::NotJson)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(body: Result<Vec<u8>, EncodeMessageError>, expected: &str) {
        let body = body.expect("a body");
        assert_eq!(String::from_utf8(body).expect("UTF-8"), expected);
    }

    #[test]
    fn bodies_have_the_fields_of_the_specification() {
        let id: RpcId = serde_json::from_str("1.0").expect("an id");
        check(
            encode_request(&id, "m", &json!({"a": 1})),
            r#"{"jsonrpc":"2.0","id":1.0,"method":"m","params":{"a":1}}"#,
        );
        check(
            encode_notification("m", &[1]),
            r#"{"jsonrpc":"2.0","method":"m","params":[1]}"#,
        );
        check(
            encode_response(&id, &()),
            r#"{"jsonrpc":"2.0","id":1.0,"result":null}"#,
        );
        let mut error = RpcError::method_not_found("m\"");
        check(
            Ok(encode_error_response(Some(&id), &error)),
            r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-32601,"message":"Unhandled method m\""}}"#,
        );
        error.data = Some(json!([0.1]));
        check(
            Ok(encode_error_response(None, &error)),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Unhandled method m\"","data":[0.1]}}"#,
        );
    }

    #[test]
    fn absent_parameters_are_left_out() {
        check(
            encode_request(&RpcId::from(1), "m", &()),
            r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
        );
        check(
            encode_notification("m", &None::<Box<RawValue>>),
            r#"{"jsonrpc":"2.0","method":"m"}"#,
        );
    }

    #[test]
    fn values_that_cannot_be_sent_are_refused() {
        let scalar = encode_notification("m", &"text");
        assert!(matches!(
            scalar,
            Err(EncodeMessageError::ParamsNotStructured)
        ));
        // JSON has only strings as keys.
        let keys = BTreeMap::from([([1], 1)]);
        let id = RpcId::from(1);
        for body in [encode_request(&id, "m", &keys), encode_response(&id, &keys)] {
            assert!(matches!(body, Err(EncodeMessageError::NotJson(_))));
        }
    }
}
