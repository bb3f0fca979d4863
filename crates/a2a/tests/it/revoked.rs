//! Streams of users who lose their access while the stream is open: a removed user, an expired token, a withdrawn key.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{StreamResponse, SubscribeToTaskRequest};
use allstop_a2a::{AccessControl, Authenticator, JwtAuthenticator, JwtKeySet, TokenFile};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use crate::issuer::{AUDIENCE, ISSUER, IssuerKey, claims, jwks, now_s};
use crate::support::{answer, message, post, router_with, rpc};

/// Time within which a stream ends after the server has read the file, or after the expiry of its token, which has whole
/// seconds.
const END_MAX: Duration = Duration::from_secs(2);

/// SHA-256 of `test`, the token of Alice, and of `abc`, the token of Bob.
const ALICE: &str = "alice 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n";
const BOB: &str = "bob ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";

fn write(path: &Path, text: &str, second: u64) {
    std::fs::write(path, text).expect("a file");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
    let file = std::fs::File::open(path).expect("the file");
    file.set_modified(time).expect("the time");
}

fn by(token: &str, mut request: Request<Body>) -> Request<Body> {
    let token = HeaderValue::from_str(&format!("Bearer {token}")).expect("a token");
    request.headers_mut().insert("authorization", token);
    request
}

/// Starts a task of this user that waits, and returns its id.
async fn waiting_task(router: &Router, token: &str, id: &str) -> String {
    let mut params = message(id, "wait");
    params["configuration"] = json!({"returnImmediately": true});
    let (_, sent) = answer(router, by(token, rpc("SendMessage", &params))).await;
    let id = sent["result"]["task"]["id"].as_str();
    id.unwrap_or_else(|| panic!("{sent}")).to_owned()
}

async fn opened(router: &Router, request: Request<Body>) -> Body {
    let response = router.clone().oneshot(request).await.expect("infallible");
    let mut body = response.into_body();
    let first = body.frame().await.expect("an event").expect("no error");
    assert!(first.is_data());
    body
}

/// Reads the rest of a stream, and returns the type and the data of its last event.
async fn last_event(body: Body) -> (Option<String>, Value) {
    let rest = tokio::time::timeout(END_MAX, body.collect()).await;
    let rest = rest.expect("the stream ends").expect("no error").to_bytes();
    let rest = String::from_utf8(rest.to_vec()).expect("text");
    let last = rest.trim_end().rsplit("\n\n").next().expect("an event");
    let field = |name: &str| last.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data: ").unwrap_or_else(|| panic!("{rest}"));
    let data = serde_json::from_str(data).expect("JSON");
    (field("event: ").map(str::to_owned), data)
}

/// Streams of one task over each binding, after their first event.
struct OpenStreams {
    rpc: Body,
    rest: Body,
    grpc: tonic::Streaming<StreamResponse>,
}

impl OpenStreams {
    async fn open(router: &Router, token: &str, id: &str) -> Self {
        let rpc_request = rpc("SubscribeToTask", &json!({"id": id}));
        let rpc = opened(router, by(token, rpc_request)).await;
        let rest = opened(router, by(token, post(&subscription_path(id), ""))).await;
        let mut client = A2aServiceClient::new(router.clone());
        let mut request = tonic::Request::new(SubscribeToTaskRequest {
            id: id.to_owned(),
            ..SubscribeToTaskRequest::default()
        });
        let metadata = request.metadata_mut();
        let bearer = format!("Bearer {token}");
        metadata.insert("authorization", bearer.parse().expect("a token"));
        metadata.insert("a2a-version", "1.0".parse().expect("a version"));
        let subscribed = client.subscribe_to_task(request).await.expect("a stream");
        let mut grpc = subscribed.into_inner();
        let first = grpc.message().await.expect("no error");
        first.expect("an event");
        Self { rpc, rest, grpc }
    }

    /// Asserts that each stream ends with the reason `UNAUTHENTICATED`.
    async fn assert_revoked(self) {
        let (_, data) = last_event(self.rpc).await;
        assert_eq!(data["id"], "x", "{data}");
        assert_eq!(data["error"]["code"], -32052, "{data}");
        let info = &data["error"]["data"][0];
        assert_eq!(info["metadata"]["condition"], "UNAUTHENTICATED", "{data}");
        assert_eq!(info["reason"], "UNAUTHENTICATED", "{data}");
        let (kind, data) = last_event(self.rest).await;
        assert_eq!(kind.as_deref(), Some("error"), "{data}");
        assert_eq!(data["error"]["code"], 401, "{data}");
        assert_eq!(data["error"]["status"], "UNAUTHENTICATED", "{data}");
        let reason = &data["error"]["details"][0]["reason"];
        assert_eq!(reason, "UNAUTHENTICATED", "{data}");
        let mut grpc = self.grpc;
        let ended = tokio::time::timeout(END_MAX, async {
            loop {
                if let Err(status) = grpc.message().await {
                    return status;
                }
            }
        });
        let status = ended.await.expect("the stream ends");
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
        let details = status.get_error_details();
        let info = details.error_info().expect("the reason");
        assert_eq!(info.reason, "UNAUTHENTICATED", "{status:?}");
    }
}

fn subscription_path(id: &str) -> String {
    format!("/tasks/{id}:subscribe")
}

#[tokio::test]
async fn open_streams_of_a_removed_user_end_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokens");
    write(&path, &format!("{ALICE}{BOB}"), 1);
    let tokens = TokenFile::open(&path).expect("two tokens");
    // As in a server with signed tokens and a token file.
    let all: Vec<Arc<dyn Authenticator>> = vec![Arc::new(tokens.clone())];
    let router = router_with(AccessControl::new(Arc::new(all))).await;
    let id = waiting_task(&router, "test", "m1").await;
    let of_bob = waiting_task(&router, "abc", "m2").await;
    let streams = OpenStreams::open(&router, "test", &id).await;
    let mut bobs = opened(&router, by("abc", post(&subscription_path(&of_bob), ""))).await;

    write(&path, BOB, 2);
    assert!(tokens.reload().expect("one token"));
    streams.assert_revoked().await;
    // The stream of the other user continues: its next frame is a record or a comment, not the end.
    let next = tokio::time::timeout(Duration::from_secs(10), bobs.frame()).await;
    next.expect("a comment")
        .expect("not the end")
        .expect("no error");
}

/// A router that accepts the tokens of this key.
async fn router_of_issuer(key: &IssuerKey) -> (Router, JwtAuthenticator) {
    let keys = JwtKeySet::parse(jwks(&[key]).as_bytes()).expect("a key set");
    let signed = JwtAuthenticator::new(keys, ISSUER, AUDIENCE);
    let router = router_with(AccessControl::new(Arc::new(signed.clone()))).await;
    (router, signed)
}

#[tokio::test]
async fn open_streams_of_an_expired_token_end_with_an_error() {
    let key = IssuerKey::p256("k");
    let (router, _) = router_of_issuer(&key).await;
    let id = waiting_task(&router, &key.token(&claims("alice")), "m1").await;
    let mut short = claims("alice");
    let expiry = now_s() + 3;
    short["exp"] = expiry.into();
    let streams = OpenStreams::open(&router, &key.token(&short), &id).await;
    tokio::time::sleep(Duration::from_secs(expiry.saturating_sub(now_s()))).await; // the expiry
    streams.assert_revoked().await;
}

#[tokio::test]
async fn open_streams_of_a_withdrawn_key_end_with_an_error() {
    let (key, next) = (IssuerKey::p256("k"), IssuerKey::p256("next"));
    let (router, signed) = router_of_issuer(&key).await;
    let token = key.token(&claims("alice"));
    let id = waiting_task(&router, &token, "m1").await;
    let streams = OpenStreams::open(&router, &token, &id).await;
    signed.replace_keys(JwtKeySet::parse(jwks(&[&next]).as_bytes()).expect("a key set"));
    streams.assert_revoked().await;
}
