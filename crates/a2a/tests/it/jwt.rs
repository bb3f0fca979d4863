//! Signed tokens: accepted tokens, and all kinds of refused tokens, over each binding.

use std::sync::Arc;

use allstop_a2a::{AccessControl, Authenticator, JwtAuthenticator, JwtKeySet, TokenFile};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use ring::hmac;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::issuer::{AUDIENCE, ISSUER, IssuerKey, base64url, claims, jwks, now_s, unsigned};
use crate::support::{answer, get, grpc_request, router_with, rpc};

fn authenticator(keys: &[&IssuerKey]) -> JwtAuthenticator {
    let keys = JwtKeySet::parse(jwks(keys).as_bytes()).expect("a key set");
    JwtAuthenticator::new(keys, ISSUER, AUDIENCE)
}

async fn router(keys: &[&IssuerKey]) -> Router {
    router_with(AccessControl::new(Arc::new(authenticator(keys)))).await
}

fn with_token(mut request: Request<Body>, token: &str) -> Request<Body> {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header");
    request.headers_mut().insert("authorization", value);
    request
}

/// A request with this token over each binding.
fn requests(token: &str) -> [(&'static str, Request<Body>); 3] {
    [
        ("JSON-RPC", rpc("ListTasks", &json!({}))),
        ("REST", get("/tasks")),
        ("gRPC", grpc_request("ListTasks", &[])),
    ]
    .map(|(name, request)| (name, with_token(request, token)))
}

const GRPC_OK: &str = "0";
const GRPC_UNAUTHENTICATED: &str = "16";

#[track_caller]
fn grpc_status(headers: &HeaderMap) -> &str {
    let status = headers.get("grpc-status").expect("a status");
    status.to_str().expect("a number")
}

async fn assert_refused(router: &Router, token: &str, why: &str) {
    for (binding, request) in requests(token) {
        let response = router.clone().oneshot(request).await.expect("infallible");
        let headers = response.headers();
        assert_eq!(headers["www-authenticate"], "Bearer", "{why}, {binding}");
        if binding == "gRPC" {
            assert_eq!(grpc_status(headers), GRPC_UNAUTHENTICATED, "{why}");
        } else {
            let status = response.status();
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{why}, {binding}");
        }
    }
}

async fn assert_accepted(router: &Router, token: &str, why: &str) {
    for (binding, request) in requests(token) {
        let response = router.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), StatusCode::OK, "{why}, {binding}");
        if let Some(status) = response.headers().get("grpc-status") {
            assert_eq!(status, GRPC_OK, "{why}");
        }
    }
}

fn changed(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims("alice");
    claims[name] = value.into();
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims("alice");
    claims
        .as_object_mut()
        .expect("an object")
        .shift_remove(name);
    claims
}

#[tokio::test]
async fn token_of_each_kind_of_key_is_accepted() {
    let keys = [
        IssuerKey::p256("p"),
        IssuerKey::p384("q"),
        IssuerKey::ed25519("e"),
        IssuerKey::rsa("r"),
    ];
    let router = router(&keys.each_ref()).await;
    for key in &keys {
        assert_accepted(&router, &key.token(&claims("alice")), key.algorithm()).await;
        let many = changed("aud", json!(["other", AUDIENCE]));
        assert_accepted(&router, &key.token(&many), "several audiences").await;
    }
}

#[tokio::test]
async fn forged_signature_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    let token = key.token(&claims("alice"));
    assert_accepted(&router, &token, "as it was signed").await;
    let (message, signature) = token.rsplit_once('.').expect("three parts");
    let (header, _) = message.split_once('.').expect("three parts");
    let other_claims = base64url(claims("root").to_string());
    assert_refused(
        &router,
        &format!("{header}.{other_claims}.{signature}"),
        "claims",
    )
    .await;
    for forged in ["", "AAAA", &base64url([0; 64])] {
        assert_refused(&router, &format!("{message}.{forged}"), forged).await;
    }
}

#[tokio::test]
async fn expired_token_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    assert_refused(
        &router,
        &key.token(&changed("exp", now_s() - 120)),
        "two minutes",
    )
    .await;
    assert_refused(&router, &key.token(&changed("exp", 0)), "1970").await;
    assert_refused(&router, &key.token(&changed("exp", -1)), "before 1970").await;
    assert_refused(&router, &key.token(&changed("exp", "tomorrow")), "a word").await;
    assert_refused(&router, &key.token(&without("exp")), "without an end").await;
    // The token has expired, but clocks may differ by seconds.
    assert_accepted(&router, &key.token(&changed("exp", now_s() - 20)), "leeway").await;
}

#[tokio::test]
async fn token_that_is_not_yet_valid_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    assert_refused(
        &router,
        &key.token(&changed("nbf", now_s() + 120)),
        "too early",
    )
    .await;
    assert_refused(&router, &key.token(&changed("nbf", "now")), "a word").await;
    assert_accepted(&router, &key.token(&changed("nbf", now_s() + 20)), "leeway").await;
}

#[tokio::test]
async fn algorithm_none_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    for none in ["none", "None", "NONE", "", "HS256"] {
        let header = json!({"alg": none, "kid": "k"});
        let message = unsigned(&header, &claims("alice"));
        assert_refused(&router, &format!("{message}."), none).await;
        assert_refused(&router, &key.sign_as(&header, &claims("alice")), none).await;
    }
}

/// Key confusion: a token is signed with the issuer's public key as a shared secret. Because the public key is known,
/// such a token must not be accepted.
#[tokio::test]
async fn public_key_as_a_shared_secret_is_refused() {
    let key = IssuerKey::rsa("k");
    let router = router(&[&key]).await;
    let jwk = key.jwk();
    let secrets = [
        jwk.to_string().into_bytes(),
        jwk["n"].as_str().expect("a modulus").as_bytes().to_vec(),
    ];
    for secret in secrets {
        let message = unsigned(&json!({"alg": "HS256", "kid": "k"}), &claims("alice"));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let signature = base64url(hmac::sign(&secret, message.as_bytes()));
        assert_refused(&router, &format!("{message}.{signature}"), "HS256").await;
    }
}

#[tokio::test]
async fn key_is_used_with_its_own_algorithm_only() {
    let (rsa, p256) = (IssuerKey::rsa("k"), IssuerKey::p256("k"));
    let mut jwk = rsa.jwk();
    jwk["alg"] = "RS512".into();
    let keys = JwtKeySet::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
    let pinned = JwtAuthenticator::new(keys, ISSUER, AUDIENCE);
    let pinned = router_with(AccessControl::new(Arc::new(pinned))).await;
    assert_refused(&pinned, &rsa.token(&claims("alice")), "RS256, not RS512").await;
    let router = router(&[&rsa]).await;
    let header = json!({"alg": "ES256", "kid": "k"});
    assert_refused(
        &router,
        &p256.sign_as(&header, &claims("alice")),
        "another kind",
    )
    .await;
}

#[tokio::test]
async fn wrong_issuer_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    for wrong in [
        json!("https://issuer.example/"),
        json!(""),
        json!(7),
        json!(null),
    ] {
        assert_refused(&router, &key.token(&changed("iss", wrong)), "issuer").await;
    }
    assert_refused(&router, &key.token(&without("iss")), "no issuer").await;
}

#[tokio::test]
async fn wrong_audience_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    for wrong in [
        json!("other"),
        json!(["a", "b"]),
        json!([]),
        json!(7),
        json!(null),
    ] {
        assert_refused(&router, &key.token(&changed("aud", wrong)), "audience").await;
    }
    assert_refused(&router, &key.token(&without("aud")), "no audience").await;
}

#[tokio::test]
async fn token_without_a_key_id_needs_a_single_key() {
    let (one, two) = (IssuerKey::p256("one"), IssuerKey::p256("two"));
    let header = json!({"alg": "ES256"});
    let token = one.sign_as(&header, &claims("alice"));
    assert_refused(&router(&[&one, &two]).await, &token, "two keys").await;
    assert_accepted(&router(&[&one]).await, &token, "one key").await;
}

#[tokio::test]
async fn unknown_key_id_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    for id in [
        json!("other"),
        json!(""),
        json!("../../etc/passwd"),
        json!(7),
    ] {
        let header = json!({"alg": "ES256", "kid": id});
        assert_refused(&router, &key.sign_as(&header, &claims("alice")), "key id").await;
    }
}

#[tokio::test]
async fn token_of_another_key_is_refused() {
    let (key, other) = (IssuerKey::p256("k"), IssuerKey::p256("k"));
    let router = router(&[&key]).await;
    assert_refused(&router, &other.token(&claims("alice")), "same id").await;
    // Keys inside a token are ignored.
    let header =
        json!({"alg": "ES256", "kid": "k", "jwk": other.jwk(), "jku": "http://127.0.0.1:1/"});
    assert_refused(
        &router,
        &other.sign_as(&header, &claims("alice")),
        "its own key",
    )
    .await;
}

#[tokio::test]
async fn huge_token_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    let token = key.token(&changed("name", "x".repeat(20_000)));
    assert_refused(&router, &token, "20 kB").await;
    assert_refused(&router, &"a.".repeat(10_000), "dots").await;
    let usual = key.token(&changed("name", "x".repeat(4_000)));
    assert_accepted(&router, &usual, "4 kB").await;
}

/// `OpenID` Connect Core permits subjects of at most 255 bytes.
#[tokio::test]
async fn subject_has_at_most_255_bytes() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    let token = |bytes: usize| key.token(&claims(&"s".repeat(bytes)));
    assert_accepted(&router, &token(255), "255 bytes").await;
    assert_refused(&router, &token(256), "256 bytes").await;
}

#[tokio::test]
async fn garbage_is_refused() {
    let key = IssuerKey::p256("k");
    let router = router(&[&key]).await;
    let header = base64url(json!({"alg": "ES256", "kid": "k"}).to_string());
    for garbage in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "null",
        "{}",
        &header,
        &format!("{header}.{header}"),
        &format!("{header}..x"),
        &format!("{header}.e30.e30"),
        "Bearer Bearer",
    ] {
        assert_refused(&router, garbage, garbage).await;
    }
    let critical = json!({"alg": "ES256", "kid": "k", "crit": ["x"], "x": 1});
    assert_refused(
        &router,
        &key.sign_as(&critical, &claims("alice")),
        "extension",
    )
    .await;
    for subject in [
        json!(""),
        json!("a\r\nx: y"),
        json!("ä"),
        json!(7),
        json!("x".repeat(256)),
    ] {
        assert_refused(&router, &key.token(&changed("sub", subject)), "subject").await;
    }
    assert_refused(&router, &key.token(&without("sub")), "no subject").await;
}

/// Users from two sources of tokens never have the same name, and therefore never share a task.
#[tokio::test]
async fn token_file_and_signed_tokens_have_no_name_in_common() {
    let key = IssuerKey::p256("k");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    // The hash of `test`.
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    std::fs::write(&path, format!("alice {hash}\n")).unwrap();
    let tokens = TokenFile::open(&path).unwrap();
    let both: Vec<Arc<dyn Authenticator>> =
        vec![Arc::new(tokens), Arc::new(authenticator(&[&key]))];
    let router = router_with(AccessControl::new(Arc::new(both))).await;
    let of_jwt = key.token(&claims("alice"));
    let send = |token: &str| {
        let request = rpc("SendMessage", &crate::support::message("m", "ask"));
        with_token(request, token)
    };
    let (_, first) = answer(&router, send("test")).await;
    let id = &first["result"]["task"]["id"];
    assert!(id.is_string(), "{first}");
    let (_, other) = answer(&router, send(&of_jwt)).await;
    assert_ne!(&other["result"]["task"]["id"], id);
    let read = with_token(rpc("GetTask", &json!({"id": id})), &of_jwt);
    let (_, read) = answer(&router, read).await;
    assert_eq!(read["error"]["code"], -32001, "{read}");
    assert_refused(&router, "neither", "neither").await;
}

#[test]
fn key_set_without_a_usable_key_is_refused() {
    let secret = json!({"kty": "oct", "k": base64url("secret"), "kid": "k"});
    let mut encryption = IssuerKey::p256("k").jwk();
    encryption["use"] = "enc".into();
    let mut signing = IssuerKey::p256("k").jwk();
    signing["key_ops"] = json!(["sign"]);
    let mut other_curve = IssuerKey::ed25519("k").jwk();
    other_curve["crv"] = "P-256".into();
    let small = json!({"kty": "RSA", "n": base64url([255; 128]), "e": "AQAB"});
    for keys in [
        json!([]),
        json!([secret]),
        json!([encryption]),
        json!([signing]),
        json!([other_curve]),
        json!([small]),
        json!([7, {}]),
    ] {
        let set = json!({"keys": keys}).to_string();
        assert!(JwtKeySet::parse(set.as_bytes()).is_err(), "{set}");
    }
    for text in ["", "[]", "{}", "<html>"] {
        assert!(JwtKeySet::parse(text.as_bytes()).is_err(), "{text}");
    }
    // Unusable keys next to a usable key are harmless.
    let mut verifying = IssuerKey::p256("k").jwk();
    verifying["key_ops"] = json!(["verify"]);
    let set = json!({"keys": [secret, {"kty": "new"}, verifying]}).to_string();
    assert!(JwtKeySet::parse(set.as_bytes()).is_ok());
}
