//! Errors of a server that takes no more work now: too many tasks run or wait, the server shuts down, or its store fails.
//! A client may try again later. The specification has no codes for these conditions, so JSON-RPC uses two codes of the
//! range that is reserved for servers.

use std::collections::HashMap;

use a2a::A2AError;
use a2a::errordetails::{PROTOCOL_DOMAIN, TypedDetail};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

/// Key of the condition in the details of an error. All bindings send the details.
pub(crate) const CONDITION: &str = "condition";

/// Reason why the server takes no more work now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overload {
    /// A limit of tasks is reached.
    Full,
    /// The server shuts down, or its store fails.
    Unavailable,
}

impl Overload {
    const ALL: [Self; 2] = [Self::Full, Self::Unavailable];

    /// Name of the condition, as in `google.rpc.Code`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Full => "RESOURCE_EXHAUSTED",
            Self::Unavailable => "UNAVAILABLE",
        }
    }

    /// Error code of JSON-RPC.
    fn code(self) -> i32 {
        match self {
            Self::Full => -32_050,
            Self::Unavailable => -32_051,
        }
    }

    pub(crate) fn http_status(self) -> StatusCode {
        match self {
            Self::Full => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Seconds after which a client may try again.
    fn retry_after(self) -> &'static str {
        match self {
            Self::Full => "1",
            Self::Unavailable => "5",
        }
    }

    /// The error with this message.
    pub(crate) fn error(self, message: String) -> A2AError {
        self.error_after(message, self.retry_after())
    }

    /// Like [`error`](Self::error), for a client that may try again after this number of seconds.
    pub(crate) fn error_after(self, message: String, seconds: &str) -> A2AError {
        let metadata = HashMap::from([
            (CONDITION.to_owned(), self.word().to_owned()),
            ("retryAfterSeconds".to_owned(), seconds.to_owned()),
        ]);
        let info = TypedDetail::error_info(self.word(), PROTOCOL_DOMAIN, Some(metadata));
        A2AError::new(self.code(), message).with_details(vec![info])
    }

    /// The condition of an error; `None` if the error has another reason.
    pub(crate) fn of_error(error: &A2AError) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.code() == error.code)
    }

    /// The condition in the metadata of an error's details.
    pub(crate) fn of_metadata<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let word = get(CONDITION)?;
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Adds the header `Retry-After`.
    pub(crate) fn add_header(self, headers: &mut HeaderMap) {
        let value = HeaderValue::from_static(self.retry_after());
        headers.insert(RETRY_AFTER, value);
    }
}

/// Sets the reason of each detail that names a condition. The library knows only the reasons of the specification, and
/// replaces every other reason by `INTERNAL_ERROR`.
pub(crate) fn set_reasons(details: &mut Value) {
    for detail in details.as_array_mut().into_iter().flatten() {
        if let Some(condition) = detail["metadata"].get(CONDITION).cloned() {
            detail["reason"] = condition;
        }
    }
}
