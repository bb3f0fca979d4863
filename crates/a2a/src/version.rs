//! The protocol version that a request specifies (A2A 1.0, section 3.6).

use a2a::A2AError;
use a2a_server::ServiceParams;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

/// Header or query parameter with the protocol version.
pub(crate) static VERSION_NAME: HeaderName = HeaderName::from_static("a2a-version");

/// The older version, which the specification also defines for a request that specifies no version.
pub(crate) const V0_3: &str = "0.3";

/// Protocol version of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProtocolVersion {
    /// Version 1, with all bindings.
    #[default]
    #[serde(rename = "1")]
    V1,
    /// Version 0.3, over JSON-RPC.
    #[serde(rename = "0.3")]
    V0_3,
}

impl ProtocolVersion {
    /// Returns the version of an accepted request with these parameters.
    pub(crate) fn of_params(params: &ServiceParams) -> Self {
        let version = params.get(VERSION_NAME.as_str());
        let version = version.and_then(|versions| versions.first());
        let version = version.map_or("", |version| version.trim());
        parsed(version).unwrap_or_default()
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    pub(crate) fn is_v1(&self) -> bool {
        *self == Self::V1
    }

    /// Returns an error for version 0.3.
    pub(crate) fn only_v1(self) -> Result<(), A2AError> {
        match self {
            Self::V1 => Ok(()),
            Self::V0_3 => Err(A2AError::version_not_supported(V0_3)),
        }
    }
}

/// Returns the version of a request. A request without a version has version 0.3. If the version is in the query, this
/// function copies it to the headers, because the library reads only these.
///
/// # Errors
/// Returns an error if the request specifies another version.
pub(crate) fn of(headers: &mut HeaderMap, uri: &Uri) -> Result<ProtocolVersion, A2AError> {
    if let Some(version) = given(headers) {
        return parsed(version);
    }
    let query = uri.query().unwrap_or_default().as_bytes();
    let parameter = form_urlencoded::parse(query)
        .find(|(name, _)| name.eq_ignore_ascii_case(VERSION_NAME.as_str()));
    let Some((_, version)) = parameter else {
        return Ok(ProtocolVersion::V0_3);
    };
    if let Ok(value) = HeaderValue::from_str(&version) {
        headers.insert(&VERSION_NAME, value);
    }
    parsed(version.trim())
}

/// Checks that the request specifies version 1.
///
/// # Errors
/// Returns an error if the request specifies another version, or no version, which means 0.3.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), A2AError> {
    parsed(given(headers).unwrap_or(V0_3))?.only_v1()
}

/// Version in the header; `None` if it is empty.
fn given(headers: &HeaderMap) -> Option<&str> {
    let version = headers.get(&VERSION_NAME)?.to_str().ok()?.trim();
    (!version.is_empty()).then_some(version)
}

fn parsed(version: &str) -> Result<ProtocolVersion, A2AError> {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("1"), _) => Ok(ProtocolVersion::V1),
        (Some("0"), Some("3")) | (Some(""), None) => Ok(ProtocolVersion::V0_3),
        _ => Err(A2AError::version_not_supported(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_the_header_or_the_query() {
        for (header, query, version) in [
            ("1.0", "", Some(ProtocolVersion::V1)),
            (" 1 ", "", Some(ProtocolVersion::V1)),
            ("0.3", "", Some(ProtocolVersion::V0_3)),
            ("0.3.0", "", Some(ProtocolVersion::V0_3)),
            ("", "", Some(ProtocolVersion::V0_3)),
            ("", "?x=1&A2A-Version=1.0", Some(ProtocolVersion::V1)),
            ("", "?a2a-version=", Some(ProtocolVersion::V0_3)),
            ("", "?A2A-Version=7", None),
            ("0.3", "?A2A-Version=1.0", Some(ProtocolVersion::V0_3)),
            ("0.2", "", None),
            ("10", "", None),
            ("2.0", "", None),
            ("x", "", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(&VERSION_NAME, header.parse().unwrap());
            let uri: Uri = format!("/tasks{query}").parse().unwrap();
            let found = of(&mut headers, &uri).ok();
            assert_eq!(found, version, "{header} {query}");
            let is_v1 = version == Some(ProtocolVersion::V1);
            assert_eq!(check(&headers).is_ok(), is_v1, "{header} {query}");
        }
    }
}
