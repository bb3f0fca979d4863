//! Public keys of an issuer of tokens: a JSON Web Key Set (RFC 7517).
//!
//! The permitted algorithms of a key are fixed here, when the key is read. A token selects one of these algorithms, and
//! cannot add others.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use serde::Deserialize;

/// Minimum size of an RSA modulus in bytes (2,048 bits), which the signature library requires.
const RSA_BYTES_MIN: usize = 256;

/// Public keys that verify tokens.
#[derive(Debug, Clone)]
pub struct JwtKeySet {
    keys: Vec<JwtKey>,
}

/// Public key, and the algorithms that may be used with this key.
#[derive(Debug, Clone)]
pub(super) struct JwtKey {
    id: Option<String>,
    pub(super) key: DecodingKey,
    pub(super) algorithms: Vec<Algorithm>,
}

/// Reason why keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwksError {
    /// The file cannot be read.
    #[error("the key set {} cannot be read", .0.display())]
    Read(std::path::PathBuf, #[source] std::io::Error),
    /// The text is not a key set.
    #[error("the key set is not JSON with a list `keys`")]
    Syntax(#[source] serde_json::Error),
    /// The set contains no key for signatures.
    #[error("the key set has no usable key: use RSA of 2048 bits or more, P-256, P-384 or Ed25519")]
    NoUsableKey,
    /// The URL cannot be the URL of a key set.
    #[error("invalid URL of a key set: {0}")]
    Url(String),
    /// The URL returned no key set.
    #[error("the key set cannot be fetched from {0}")]
    Fetch(String, #[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Reason why no key matches a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyNotFound {
    /// The set contains no key with this id. The key may be new.
    UnknownId,
    /// The set contains several keys, and the token does not name one of them.
    Ambiguous,
}

#[derive(Deserialize)]
struct JwksDocument {
    keys: Vec<serde_json::Value>,
}

impl JwtKeySet {
    /// Reads a key set. Ignores keys of unsupported kinds, and keys for other uses than signatures.
    ///
    /// # Errors
    /// Returns an error if the text is not a key set, or contains no usable key.
    pub fn parse(json: &[u8]) -> Result<Self, JwksError> {
        let document: JwksDocument = serde_json::from_slice(json).map_err(JwksError::Syntax)?;
        let keys = document.keys.into_iter().filter_map(|key| {
            let jwk: Jwk = serde_json::from_value(key).ok()?;
            JwtKey::of_jwk(&jwk)
        });
        let keys: Vec<_> = keys.collect();
        if keys.is_empty() {
            return Err(JwksError::NoUsableKey);
        }
        Ok(Self { keys })
    }

    /// Returns the key of a token. If the token has no key id, the set must contain only one key.
    pub(super) fn find(&self, id: Option<&str>) -> Result<&JwtKey, KeyNotFound> {
        match (id, self.keys.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(KeyNotFound::Ambiguous),
            (Some(id), keys) => {
                let mut named = keys.iter().filter(|key| key.id.as_deref() == Some(id));
                match (named.next(), named.next()) {
                    (Some(key), None) => Ok(key),
                    (Some(_), Some(_)) => Err(KeyNotFound::Ambiguous),
                    (None, _) => Err(KeyNotFound::UnknownId),
                }
            }
        }
    }
}

impl JwtKey {
    /// Returns the key of an entry; `None` if the entry cannot verify signatures.
    fn of_jwk(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let operations = common.key_operations.as_ref();
        if operations.is_some_and(|allowed| !allowed.contains(&KeyOperations::Verify)) {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        if let DecodingKeyKind::RsaModulusExponent { n, .. } = key.kind()
            && n.iter().skip_while(|byte| **byte == 0).count() < RSA_BYTES_MIN
        {
            return None;
        }
        let mut algorithms = algorithms_of(&jwk.algorithm);
        if let Some(named) = common.key_algorithm {
            algorithms.retain(|algorithm| names(named, *algorithm));
        }
        (!algorithms.is_empty()).then(|| Self {
            id: common.key_id.clone(),
            key,
            algorithms,
        })
    }
}

/// Algorithms for the kind of a key. A symmetric secret has no permitted algorithm, because every party that can verify
/// tokens with the secret could also create tokens.
fn algorithms_of(key: &AlgorithmParameters) -> Vec<Algorithm> {
    match key {
        AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => Vec::new(),
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        _ => Vec::new(),
    }
}

/// True if the `alg` of a key is this algorithm.
fn names(named: KeyAlgorithm, algorithm: Algorithm) -> bool {
    matches!(
        (named, algorithm),
        (KeyAlgorithm::RS256, Algorithm::RS256)
            | (KeyAlgorithm::RS384, Algorithm::RS384)
            | (KeyAlgorithm::RS512, Algorithm::RS512)
            | (KeyAlgorithm::PS256, Algorithm::PS256)
            | (KeyAlgorithm::PS384, Algorithm::PS384)
            | (KeyAlgorithm::PS512, Algorithm::PS512)
            | (KeyAlgorithm::ES256, Algorithm::ES256)
            | (KeyAlgorithm::ES384, Algorithm::ES384)
            | (KeyAlgorithm::EdDSA, Algorithm::EdDSA)
    )
}
