//! Issuer of tokens: keys created for a test, and tokens signed with them.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const AUDIENCE: &str = "allstop";

/// Signing key of an issuer.
pub(crate) struct IssuerKey {
    id: &'static str,
    pair: IssuerKeyPair,
}

enum IssuerKeyPair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl IssuerKey {
    pub(crate) fn p256(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key");
        let pair = IssuerKeyPair::P256(pair);
        Self { id, pair }
    }

    pub(crate) fn p384(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key");
        let pair = IssuerKeyPair::P384(pair);
        Self { id, pair }
    }

    pub(crate) fn ed25519(id: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("a key");
        let pair = IssuerKeyPair::Ed25519(pair);
        Self { id, pair }
    }

    /// A fixed key, for tests only, because ring cannot generate RSA keys.
    pub(crate) fn rsa(id: &'static str) -> Self {
        let key = include_bytes!("rsa_test_key.der");
        let pair = IssuerKeyPair::Rsa(RsaKeyPair::from_pkcs8(key).expect("a key"));
        Self { id, pair }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match &self.pair {
            IssuerKeyPair::P256(_) => "ES256",
            IssuerKeyPair::P384(_) => "ES384",
            IssuerKeyPair::Ed25519(_) => "EdDSA",
            IssuerKeyPair::Rsa(_) => "RS256",
        }
    }

    /// The public key as an entry of a key set.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            IssuerKeyPair::P256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
                json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})
            }
            IssuerKeyPair::P384(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (base64url(&point[1..49]), base64url(&point[49..]));
                json!({"kty": "EC", "crv": "P-384", "x": x, "y": y})
            }
            IssuerKeyPair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(pair.public_key())})
            }
            IssuerKeyPair::Rsa(pair) => {
                let key = PublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "n": base64url(key.n), "e": base64url(key.e)})
            }
        };
        jwk["use"] = "sig".into();
        jwk["kid"] = self.id.into();
        jwk
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            IssuerKeyPair::P256(pair) | IssuerKeyPair::P384(pair) => {
                let signature = pair.sign(&random, message).expect("a signature");
                signature.as_ref().to_vec()
            }
            IssuerKeyPair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            IssuerKeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .expect("a signature");
                signature
            }
        }
    }

    /// Returns a token with this header and these claims, signed with this key even if the header names another key.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        format!("{message}.{}", base64url(self.sign(message.as_bytes())))
    }

    /// Returns a token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "typ": "JWT", "kid": self.id});
        self.sign_as(&header, claims)
    }
}

/// Header and claims of a token.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!(
        "{}.{}",
        base64url(header.to_string()),
        base64url(claims.to_string())
    )
}

/// Returns the current time in the form that claims use.
pub(crate) fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// Returns claims that are accepted for an hour.
pub(crate) fn claims(subject: &str) -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": now_s() + 3600})
}

/// Returns the key set with the public parts of these keys.
pub(crate) fn jwks(keys: &[&IssuerKey]) -> String {
    let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
    json!({"keys": keys}).to_string()
}
