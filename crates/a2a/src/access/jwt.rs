//! JSON Web Tokens (RFC 7519) as bearer tokens. An issuer signs the tokens, and this server has only the issuer's
//! public keys.
//!
//! A token is accepted if all these conditions are true. The signature matches the key that the token names, with an
//! algorithm of that key. The issuer is the configured issuer, and one of the audiences is the configured audience. The
//! token is already valid, has not expired, and names a subject.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;
use jsonwebtoken::{Algorithm, Validation};
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::Notify;

use super::jwks::{JwtKeySet, KeyNotFound};
use super::principal::{Authenticator, Principal, Unauthenticated, bearer_token};
use super::ring_verifier;

/// Prefix of the principal (the sender's name) that is made from a token. Names in a token file cannot have this
/// prefix, and the name `anonymous` does not have this prefix. Therefore names from different sources never coincide.
pub const JWT_PRINCIPAL_PREFIX: &str = "jwt:";

/// Maximum size of a token in bytes. Real tokens have 1 to 4 KiB.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Maximum size of a subject in bytes, from section 2 of `OpenID` Connect Core.
const SUBJECT_BYTES_MAX: usize = 255;

/// Permitted clock difference, in seconds.
const LEEWAY_S: u64 = 60;

/// Authenticator for signed tokens. Clones share the keys.
#[derive(Clone)]
pub struct JwtAuthenticator {
    inner: Arc<JwtInner>,
}

struct JwtInner {
    /// Checks of the claims. The permitted algorithms come from the key of each token.
    validation: Validation,
    keys: RwLock<Arc<JwtKeySet>>,
    unknown_key: Notify,
}

/// Claims in addition to the claims that the library checks.
#[derive(Deserialize)]
struct SubjectClaims {
    sub: String,
}

impl JwtAuthenticator {
    /// Creates an authenticator that accepts tokens of this issuer for this audience.
    pub fn new(keys: JwtKeySet, issuer: &str, audience: &str) -> Self {
        ring_verifier::install();
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[audience]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_S;
        Self {
            inner: Arc::new(JwtInner {
                validation,
                keys: RwLock::new(Arc::new(keys)),
                unknown_key: Notify::new(),
            }),
        }
    }

    /// Replaces all keys by the keys of this set.
    pub fn replace_keys(&self, keys: JwtKeySet) {
        *self.inner.keys.write() = Arc::new(keys);
    }

    /// Waits for a token that names a key outside the set.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: after such a token, the next call returns at once.
    pub async fn unknown_key(&self) {
        self.inner.unknown_key.notified().await;
    }

    fn principal(&self, token: &str) -> Option<Principal> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let header = jsonwebtoken::decode_header(token).ok()?;
        if header.crit.is_some() {
            return None; // an extension that must be understood (RFC 7515, section 4.1.11)
        }
        let keys = Arc::clone(&self.inner.keys.read());
        let key = match keys.find(header.kid.as_deref()) {
            Ok(key) => key,
            Err(KeyNotFound::UnknownId) => {
                self.inner.unknown_key.notify_one();
                return None;
            }
            Err(KeyNotFound::Ambiguous) => return None,
        };
        let mut validation = self.inner.validation.clone();
        validation.algorithms.clone_from(&key.algorithms);
        let token = jsonwebtoken::decode::<SubjectClaims>(token, &key.key, &validation).ok()?;
        let subject = token.claims.sub;
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            return None;
        }
        Principal::new(&format!("{JWT_PRINCIPAL_PREFIX}{subject}")).ok()
    }
}

impl Authenticator for JwtAuthenticator {
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Unauthenticated> {
        let token = bearer_token(headers).ok_or(Unauthenticated)?;
        self.principal(token).ok_or(Unauthenticated)
    }
}

impl fmt::Debug for JwtAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtAuthenticator")
            .field("validation", &self.inner.validation)
            .finish_non_exhaustive()
    }
}
