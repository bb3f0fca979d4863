//! Error objects of JSON-RPC 2.0 (its section 5.1), with constructors for the reserved codes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// Error with which one side answers a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Error)]
#[error("{message} (JSON-RPC error {code})")]
pub struct RpcError {
    /// Kind of the error; the codes from -32768 to -32000 are reserved by the specification.
    pub code: i64,
    /// One sentence for people.
    pub message: String,
    /// Details for programs. A `null` on the wire is read as no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// Code of a message that is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// Code of JSON that is not a valid message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Code of a method that does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Code of parameters that do not fit the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Code of a failure of the side that answers.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// Code of a request that was refused because too many requests are in flight. The specification leaves the codes
    /// from -32000 to -32099 to servers, and this is the first of them.
    pub const OVERLOADED: i64 = -32000;

    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Error of a message that is not JSON.
    pub fn parse_error(message: impl Into<String>) -> Self {
        Self::new(Self::PARSE_ERROR, message)
    }

    /// Error of JSON that is not a valid message.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_REQUEST, message)
    }

    /// Error of a method that does not exist.
    pub fn method_not_found(name: &str) -> Self {
        Self::new(Self::METHOD_NOT_FOUND, format!("Unhandled method {name}"))
    }

    /// Error of parameters that do not fit the method.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    /// Error of a failure of the side that answers.
    pub fn internal_error(message: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL_ERROR, message)
    }

    /// Error of a request that was refused because too many requests are in flight. The request may be sent again
    /// later.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::new(Self::OVERLOADED, message)
    }
}
