//! The protocol version that a request specifies (A2A 1.0, section 3.6).

use a2a::A2AError;
use axum::http::HeaderMap;

/// Header with the protocol version.
const VERSION_HEADER: &str = "a2a-version";

/// Version of a request without the header, from the specification.
const VERSION_WITHOUT_HEADER: &str = "0.3";

/// Checks that the request specifies version 1.
///
/// # Errors
/// Returns an error if the request specifies another version, or no version, which means 0.3.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), A2AError> {
    let version = headers.get(VERSION_HEADER).and_then(|v| v.to_str().ok());
    let version = version.filter(|version| !version.trim().is_empty());
    let version = version.unwrap_or(VERSION_WITHOUT_HEADER);
    if version.trim().split('.').next() == Some("1") {
        return Ok(());
    }
    Err(A2AError::version_not_supported(version))
}
