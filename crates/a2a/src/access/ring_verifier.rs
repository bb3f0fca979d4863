//! Verification of token signatures with ring, which the TLS library also uses.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as ring_signature;
use ring::signature::{RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm};
use signature::{Error, Verifier};

/// Installs ring as the provider of the JWT library, unless the program has already chosen another provider.
pub(super) fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: refuse_to_sign,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    let _first_is_kept = PROVIDER.install_default();
}

/// This server verifies tokens and never creates one.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that the library wants"
)]
fn refuse_to_sign(_algorithm: &Algorithm, _key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that the library wants"
)]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let scheme = scheme_of(*algorithm).ok_or(ErrorKind::UnsupportedAlgorithm)?;
    if key.family() != algorithm.family() || algorithm.family() == AlgorithmFamily::Hmac {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier {
        algorithm: *algorithm,
        scheme,
        key: key.clone(),
    }))
}

struct RingVerifier {
    algorithm: Algorithm,
    scheme: SignatureScheme,
    key: DecodingKey,
}

/// Signature algorithm of ring. RSA uses a modulus and an exponent; the other algorithms use the bytes of a point on a
/// curve.
#[derive(Clone, Copy)]
enum SignatureScheme {
    Rsa(&'static RsaParameters),
    Point(&'static dyn VerificationAlgorithm),
}

fn scheme_of(algorithm: Algorithm) -> Option<SignatureScheme> {
    Some(match algorithm {
        Algorithm::RS256 => SignatureScheme::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => SignatureScheme::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => SignatureScheme::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => SignatureScheme::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => SignatureScheme::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => SignatureScheme::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => SignatureScheme::Point(&ring_signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => SignatureScheme::Point(&ring_signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => SignatureScheme::Point(&ring_signature::ED25519),
        _ => return None,
    })
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified = match (self.scheme, self.key.kind()) {
            (SignatureScheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (SignatureScheme::Point(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                ring_signature::UnparsedPublicKey::new(algorithm, point).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
