//! Further HTTP headers of the requests of one turn.

use std::fmt;
use std::sync::Arc;

use crate::{ModelError, ModelErrorKind};

/// HTTP headers that the requests of one turn contain in addition to the headers of the provider. They replace headers with
/// equal names. They may contain secrets, so the text for developers contains only their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RequestHeaders(Option<Arc<[HeaderText]>>);

/// Name and value of a header.
type HeaderText = (Arc<str>, Arc<str>);

impl RequestHeaders {
    /// Checks headers.
    ///
    /// # Errors
    /// Returns an error that names the first header with an invalid name or value.
    pub fn new<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ModelError> {
        let checked = headers.into_iter().map(|(name, value)| {
            if is_name(name) && is_value(value) {
                Ok((name.into(), value.into()))
            } else {
                let message = format!("invalid header {name:?}");
                Err(ModelError::new(ModelErrorKind::Invalid, message))
            }
        });
        let all = checked.collect::<Result<Vec<_>, _>>()?;
        Ok(Self((!all.is_empty()).then(|| all.into())))
    }

    /// The headers, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter().flat_map(|all| all.iter());
        all.map(|(name, value)| (&**name, &**value))
    }
}

impl fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHeaders")
            .field("len", &self.iter().count())
            .finish_non_exhaustive()
    }
}

/// True for a token of RFC 9110, section 5.6.2.
fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// True for a value without control characters, except the tab.
fn is_value(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked_and_never_printed() {
        let headers = RequestHeaders::new([("X-Key", "secret\tvalue")]).unwrap();
        assert_eq!(headers.iter().next(), Some(("X-Key", "secret\tvalue")));
        assert!(!format!("{headers:?}").contains("secret"));
        for (name, value) in [("", "x"), ("a b", "x"), ("a:", "x"), ("a", "x\r\nb: y")] {
            assert!(RequestHeaders::new([(name, value)]).is_err(), "{name:?}");
        }
        assert_eq!(RequestHeaders::new([]).unwrap(), RequestHeaders::default());
    }
}
