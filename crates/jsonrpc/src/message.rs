//! Received messages: requests, notifications and responses of JSON-RPC 2.0.
//!
//! Parameters and results stay raw JSON. The code of each method converts them to the types of that method. This module
//! checks that parameters and results are JSON. The check is a loop, not a recursion, so no depth of nesting overflows
//! the stack here.

use std::str;

use allstop_core::json_text::has_reserved_key;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::raw_message_fields::RawMessageFields;
use crate::{RpcError, RpcId};

/// One message, read from the body of a frame.
#[derive(Debug, Clone)]
pub enum IncomingMessage {
    /// A call that must be answered.
    Request(IncomingRequest),
    /// A call without an answer.
    Notification {
        /// Name of the method.
        method: String,
        /// Object or array, if there are parameters.
        params: Option<Box<RawValue>>,
    },
    /// The answer to a request that this side sent.
    Response {
        /// Id of the request. `None` (`null` on the wire) occurs only with an error, if the other side could not read
        /// the id.
        id: Option<RpcId>,
        /// The result, or the error in its place.
        result: Result<Box<RawValue>, RpcError>,
    },
}

/// A request that must be answered.
#[derive(Debug, Clone)]
pub struct IncomingRequest {
    /// Id that the answer must repeat.
    pub id: RpcId,
    /// Name of the method.
    pub method: String,
    /// Object or array, if there are parameters.
    pub params: Option<Box<RawValue>>,
}

/// A body that is not a valid message.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("malformed message: {error}")]
pub struct MalformedMessage {
    /// Id of the message, if it could be read and is unambiguous.
    pub id: Option<RpcId>,
    /// Error to send as the answer to a malformed request.
    pub error: RpcError,
    /// True for a response: a message with a result or an error and without a method. Never answer such a message. Its
    /// id, if any, is the id of a request of this side, and this request can be completed with `error`.
    pub is_response: bool,
}

impl IncomingMessage {
    /// Reads the body of a frame.
    ///
    /// Unknown fields are ignored. `params: null`, which some clients send, is read as no parameters.
    ///
    /// # Errors
    ///
    /// - [`RpcError::PARSE_ERROR`]: the body is not UTF-8 or not JSON.
    /// - [`RpcError::INVALID_REQUEST`]: the JSON is not a message of JSON-RPC 2.0. This includes batches, which LSP
    ///   does not have, and every message with a [reserved key](has_reserved_key).
    pub fn parse(body: &[u8]) -> Result<Self, Box<MalformedMessage>> {
        let text = str::from_utf8(body).map_err(|error| {
            let error = RpcError::parse_error(format!("invalid UTF-8: {error}"));
            Box::new(MalformedMessage::without_id(error))
        })?;
        let not_json = |error: serde_json::Error| {
            let error = RpcError::parse_error(format!("invalid JSON: {error}"));
            Box::new(MalformedMessage::without_id(error))
        };
        let whole: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        if !is_object(whole) {
            let reason = if is_array(whole) {
                "batches are not supported"
            } else {
                "a message must be an object"
            };
            let error = RpcError::invalid_request(reason);
            return Err(Box::new(MalformedMessage::without_id(error)));
        }
        let fields: RawMessageFields<'_> = serde_json::from_str(whole.get()).map_err(not_json)?;
        let id = fields.id.and_then(RpcId::from_raw);
        // Other code parses the raw JSON of this message with the JSON library, which reads an object with a reserved
        // key as a different value. So such keys are refused here.
        let read = if has_reserved_key(body) {
            Err("an object has a key that is reserved: it begins with `$serde_json::private::`")
        } else {
            message(&fields, id.as_ref())
        };
        read.map_err(|reason| {
            Box::new(MalformedMessage {
                id: id.filter(|_| fields.repeated != Some("id")),
                error: RpcError::invalid_request(reason),
                is_response: fields.method.is_none()
                    && (fields.result.is_some() || fields.error.is_some()),
            })
        })
    }
}

impl MalformedMessage {
    fn without_id(error: RpcError) -> Self {
        Self {
            id: None,
            error,
            is_response: false,
        }
    }
}

/// Builds the message, or returns the reason why it is invalid. `id` is the field `id` of the message, if that field is
/// a valid id.
fn message(
    fields: &RawMessageFields<'_>,
    id: Option<&RpcId>,
) -> Result<IncomingMessage, &'static str> {
    if fields.repeated.is_some() {
        return Err("a field occurs twice");
    }
    let version = fields.jsonrpc.and_then(text_of);
    if version.as_deref() != Some("2.0") {
        return Err("`jsonrpc` must be \"2.0\"");
    }
    let has_null_id = fields.id.is_some_and(|id| id.get() == "null");
    if fields.id.is_some() && id.is_none() && !has_null_id {
        return Err("`id` must be a string or a number");
    }
    let Some(method) = fields.method else {
        return response(fields, id, has_null_id);
    };
    let method = text_of(method).ok_or("`method` must be a string")?;
    if fields.result.is_some() || fields.error.is_some() {
        return Err("a message has either a method or a result");
    }
    let params = match fields.params {
        Some(params) if is_object(params) || is_array(params) => Some(params.to_owned()),
        Some(params) if params.get() != "null" => {
            return Err("`params` must be an object or an array");
        }
        _ => None,
    };
    match id.cloned() {
        Some(id) => Ok(IncomingMessage::Request(IncomingRequest {
            id,
            method,
            params,
        })),
        None if has_null_id => Err("the `id` of a request must not be null"),
        None => Ok(IncomingMessage::Notification { method, params }),
    }
}

fn response(
    fields: &RawMessageFields<'_>,
    id: Option<&RpcId>,
    has_null_id: bool,
) -> Result<IncomingMessage, &'static str> {
    let result = match (fields.result, fields.error) {
        (None, None) => return Err("a message must have a method, a result or an error"),
        (Some(_), Some(_)) => return Err("a response has either a result or an error"),
        (Some(result), None) => Ok(result.to_owned()),
        (None, Some(error)) => Err(rpc_error(error).ok_or("`error` must be an error object")?),
    };
    if id.is_none() && !(has_null_id && result.is_err()) {
        return Err("a response must have the `id` of its request");
    }
    Ok(IncomingMessage::Response {
        id: id.cloned(),
        result,
    })
}

fn rpc_error(value: &RawValue) -> Option<RpcError> {
    // The JSON library would read the elements of an array as the fields of an error, so an array is refused here.
    is_object(value)
        .then(|| serde_json::from_str(value.get()).ok())
        .flatten()
}

fn text_of(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn is_array(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
