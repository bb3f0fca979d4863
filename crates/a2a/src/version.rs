//! The version of the protocol that a request asks for (A2A 1.0, section 3.6).

use a2a::A2AError;
use axum::http::HeaderMap;

/// Header with the version.
const VERSION_HEADER: &str = "a2a-version";

/// Version that a request without the header asks for, as the specification has it.
const VERSION_WITHOUT_HEADER: &str = "0.3";

/// Checks that the request asks for version 1.
///
/// # Errors
/// If it asks for another one, or for none, which stands for 0.3.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), A2AError> {
    let version = headers.get(VERSION_HEADER).and_then(|v| v.to_str().ok());
    let version = version.filter(|version| !version.trim().is_empty());
    let version = version.unwrap_or(VERSION_WITHOUT_HEADER);
    if version.trim().split('.').next() == Some("1") {
        return Ok(());
    }
    Err(A2AError::version_not_supported(version))
}
