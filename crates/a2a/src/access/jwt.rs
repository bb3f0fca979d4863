//! JSON Web Tokens (RFC 7519) as bearer tokens. An issuer signs the tokens, and this server has only the issuer's
//! public keys.
//!
//! A token is accepted if all these conditions are true. The signature matches the key that the token names, with an
//! algorithm of that key. The issuer is the configured issuer, and one of the audiences is the configured audience. The
//! token is already valid, has not expired, and names a subject.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use futures::future::BoxFuture;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;
use tokio::sync::{Notify, watch};

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

/// Maximum time between two checks of an open stream's token. The timers do not advance while the machine sleeps, and an
/// operator can set the clock.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Authenticator for signed tokens. Clones share the keys.
#[derive(Clone)]
pub struct JwtAuthenticator {
    inner: Arc<JwtInner>,
}

struct JwtInner {
    /// Checks of the claims. The permitted algorithms come from the key of each token.
    validation: Validation,
    keys: watch::Sender<Arc<JwtKeySet>>,
    unknown_key: Notify,
}

/// Claims that the library does not check, or does not return.
#[derive(Deserialize)]
struct TokenClaims {
    sub: String,
    /// Seconds since 1970, possibly with a fraction.
    exp: f64,
}

/// Principal of an accepted token, and the time at which the token expires.
#[derive(Debug, PartialEq)]
struct AcceptedToken {
    principal: Principal,
    expires_at_s: f64,
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
                keys: watch::Sender::new(Arc::new(keys)),
                unknown_key: Notify::new(),
            }),
        }
    }

    /// Replaces all keys by the keys of this set. Open streams of tokens that these keys do not verify end.
    pub fn replace_keys(&self, keys: JwtKeySet) {
        self.inner.keys.send_replace(Arc::new(keys));
    }

    /// Waits for a token that names a key outside the set.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: after such a token, the next call returns at once.
    pub async fn unknown_key(&self) {
        self.inner.unknown_key.notified().await;
    }

    fn verify(&self, token: &str) -> Option<AcceptedToken> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let header = jsonwebtoken::decode_header(token).ok()?;
        if header.crit.is_some() {
            return None; // an extension that must be understood (RFC 7515, section 4.1.11)
        }
        let keys = Arc::clone(&self.inner.keys.borrow());
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
        let token = jsonwebtoken::decode::<TokenClaims>(token, &key.key, &validation).ok()?;
        let subject = token.claims.sub;
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            return None;
        }
        let principal = Principal::new(&format!("{JWT_PRINCIPAL_PREFIX}{subject}")).ok()?;
        Some(AcceptedToken {
            principal,
            expires_at_s: token.claims.exp,
        })
    }
}

impl AcceptedToken {
    /// Time until the streams of this token end. The leeway is for clients whose clock differs: a stream ends at the
    /// expiry, unless the token was accepted after its expiry.
    fn remaining(&self, accepted_at_s: f64, now_s: f64) -> Duration {
        let leeway_s = if accepted_at_s < self.expires_at_s {
            0
        } else {
            LEEWAY_S
        };
        let remaining_s = self.expires_at_s + Duration::from_secs(leeway_s).as_secs_f64() - now_s;
        // Negative after the expiry. A time beyond the range of a duration never comes.
        Duration::try_from_secs_f64(remaining_s.max(0.0)).unwrap_or(Duration::MAX)
    }
}

fn now_s() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

impl Authenticator for JwtAuthenticator {
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Unauthenticated> {
        let token = bearer_token(headers).ok_or(Unauthenticated)?;
        let accepted = self.verify(token).ok_or(Unauthenticated)?;
        Ok(accepted.principal)
    }

    fn revoked(&self, headers: &HeaderMap) -> BoxFuture<'static, ()> {
        let mut keys = self.inner.keys.subscribe();
        let token = bearer_token(headers).map(str::to_owned);
        let verified = token.and_then(|token| Some((self.verify(&token)?, token)));
        let Some((accepted, token)) = verified else {
            return Box::pin(std::future::ready(()));
        };
        let (accepted_at_s, authenticator) = (now_s(), self.clone());
        Box::pin(async move {
            loop {
                let remaining = accepted.remaining(accepted_at_s, now_s());
                if remaining.is_zero() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(remaining.min(CHECK_INTERVAL_MAX)) => {}
                    // `authenticator` holds the sender, so no wait fails.
                    _changed = keys.changed() => {
                        if authenticator.verify(&token).as_ref() != Some(&accepted) {
                            return;
                        }
                    }
                }
            }
        })
    }
}

impl fmt::Debug for JwtAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtAuthenticator")
            .field("validation", &self.inner.validation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_ends_at_the_expiry_of_its_token() {
        let token = AcceptedToken {
            principal: Principal::anonymous(),
            expires_at_s: 1000.0,
        };
        let remaining = |accepted, now| token.remaining(accepted, now).as_secs();
        assert_eq!(remaining(900.0, 900.0), 100);
        assert_eq!(remaining(900.0, 1000.0), 0);
        assert_eq!(remaining(900.0, 5000.0), 0);
        // Accepted because of the leeway.
        assert_eq!(remaining(1000.0, 1000.0), 60);
        assert_eq!(remaining(1030.0, 1060.0), 0);
        let never = AcceptedToken {
            expires_at_s: f64::MAX,
            ..token
        };
        assert_eq!(never.remaining(0.0, 0.0), Duration::MAX);
    }
}
