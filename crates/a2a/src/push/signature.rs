//! Signature of a delivery, from the Standard Webhooks specification: HMAC-SHA256 over id, time and body.
//!
//! Each user has a separate key, derived from the server's secret. A receiver can therefore verify deliveries to its
//! user, but cannot forge deliveries to another user. The token of a configuration cannot be the key, because each
//! request contains the token.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Minimum size of a secret in bytes: the size of the hash, which RFC 2104 recommends.
const SECRET_BYTES_MIN: usize = 32;

/// Secret of the server, from which the keys of users are derived. The `Debug` output omits the secret.
#[derive(Clone)]
pub struct PushSecret(Arc<hmac::Key>);

/// A secret that is too short for signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the push secret has {0} bytes; it needs {SECRET_BYTES_MIN} or more")]
pub struct ShortPushSecret(usize);

impl PushSecret {
    /// Creates a secret from these bytes.
    ///
    /// # Errors
    /// Returns an error if the secret has fewer than 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, ShortPushSecret> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(ShortPushSecret(bytes.len()));
        }
        Ok(Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes))))
    }

    /// Returns the signature of a delivery to a user, for the header `webhook-signature`.
    pub(crate) fn sign(&self, user: &str, id: &str, unix_seconds: u64, body: &[u8]) -> String {
        let user_key = hmac::sign(&self.0, user.as_bytes());
        let user_key = hmac::Key::new(hmac::HMAC_SHA256, user_key.as_ref());
        let mut signing = hmac::Context::with_key(&user_key);
        signing.update(format!("{id}.{unix_seconds}.").as_bytes());
        signing.update(body);
        format!("v1,{}", STANDARD.encode(signing.sign()))
    }
}

impl fmt::Debug for PushSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushSecret(…)")
    }
}
