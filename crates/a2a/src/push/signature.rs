//! Signature of a delivery, as the Standard Webhooks specification has it: HMAC-SHA256 over id, time and body.
//!
//! Each user has a key of its own, derived from the server's secret. So a receiver can verify deliveries to it, and
//! cannot forge deliveries to another user. The token of a configuration is no key: it is in each request.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Fewest bytes of a secret: those of the hash, as RFC 2104 recommends.
const SECRET_BYTES_MIN: usize = 32;

/// Secret of the server, from which the keys of users are derived. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct PushSecret(Arc<hmac::Key>);

/// A secret that is too short to sign with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the push secret has {0} bytes; it needs {SECRET_BYTES_MIN} or more")]
pub struct ShortPushSecret(usize);

impl PushSecret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// If it has fewer than 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, ShortPushSecret> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(ShortPushSecret(bytes.len()));
        }
        Ok(Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes))))
    }

    /// Signature of a delivery to a user, for the header `webhook-signature`.
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
