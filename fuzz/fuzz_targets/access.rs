//! Any key set, token and token file must not cause a panic. Only signed tokens and tokens with a listed hash are
//! accepted.
//!
//! The first byte selects the kind of input. There are three kinds: a token for a fixed key set; a key set, an empty
//! line and a token; or a token file.
#![no_main]

use std::cell::OnceCell;

use allstop_a2a::{Authenticator, JwtAuthenticator, JwtKeySet, TokenFile};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

/// Public keys whose private keys are unknown to the fuzzer, from RFC 7517, appendix A.1, and RFC 8037, appendix A.2.
const KEYS: &[u8] = br#"{"keys": [
  {"kty": "EC", "crv": "P-256", "kid": "1", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
   "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
  {"kty": "OKP", "crv": "Ed25519", "kid": "2", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
]}"#;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 3 {
        0 => unsigned_token(rest),
        1 => any_key_set(rest),
        _ => any_token_file(rest),
    }
});

/// Creates headers. There are two variants: `token` is the whole value of `authorization`, or it follows the word
/// `Bearer`.
fn headers(token: &[u8]) -> Vec<HeaderMap> {
    let values = [token.to_vec(), [b"Bearer ", token].concat()];
    let values = values
        .iter()
        .filter_map(|value| HeaderValue::from_bytes(value).ok());
    values
        .map(|value| HeaderMap::from_iter([(AUTHORIZATION, value)]))
        .collect()
}

fn unsigned_token(token: &[u8]) {
    thread_local!(static FIXED: OnceCell<JwtAuthenticator> = const { OnceCell::new() });
    FIXED.with(|fixed| {
        let fixed = fixed.get_or_init(|| {
            let keys = JwtKeySet::parse(KEYS).expect("the keys are well-formed");
            JwtAuthenticator::new(keys, "https://issuer.example", "allstop")
        });
        for headers in headers(token) {
            let accepted = fixed.authenticate(&headers);
            assert!(accepted.is_err(), "nobody signed this: {accepted:?}");
        }
    });
}

fn any_key_set(bytes: &[u8]) {
    let cut = bytes.windows(2).position(|at| at == b"\n\n");
    let (keys, token) = match cut {
        Some(cut) => (&bytes[..cut], &bytes[cut + 2..]),
        None => (bytes, &[][..]),
    };
    let Ok(keys) = JwtKeySet::parse(keys) else {
        return;
    };
    let authenticator = JwtAuthenticator::new(keys, "https://issuer.example", "allstop");
    for headers in headers(token) {
        // The fuzzer cannot create a valid signature. A secret key in a key set does not count as a key.
        let accepted = authenticator.authenticate(&headers);
        assert!(accepted.is_err(), "nobody signed this: {accepted:?}");
    }
}

fn any_token_file(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tokens");
    std::fs::write(&path, bytes).expect("a file");
    let Ok(file) = TokenFile::open(&path) else {
        return;
    };
    // A name in the token file is not a token; a hash and an empty text are no tokens either.
    let text = String::from_utf8_lossy(bytes);
    for token in text.split_whitespace().chain([""]) {
        for headers in headers(token.as_bytes()) {
            let accepted = file.authenticate(&headers);
            assert!(accepted.is_err(), "{token:?} is no token: {accepted:?}");
        }
    }
}
