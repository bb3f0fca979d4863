//! Keys of an issuer at a URL and in a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_a2a::{
    Authenticator, JwksFile, JwksRefreshTimes, JwksUrl, JwtAuthenticator, JwtKeySet, refresh_keys,
};
use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{StopRequest, WorkSpec};
use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::get;
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use crate::issuer::{AUDIENCE, ISSUER, IssuerKey, claims, jwks};
use crate::test_server::{SOON, TestServer};

/// Server of an issuer's key set, with a replaceable response.
struct KeyServer {
    server: TestServer,
    answer: Arc<Mutex<(StatusCode, String)>>,
    fetches: watch::Receiver<usize>,
}

impl KeyServer {
    async fn start(key_set: String) -> Self {
        let answer = Arc::new(Mutex::new((StatusCode::OK, key_set)));
        let (counter, fetches) = watch::channel(0);
        let answered = Arc::clone(&answer);
        let router = Router::new().route(
            "/keys",
            get(async move || {
                counter.send_modify(|count| *count += 1);
                answered.lock().clone()
            }),
        );
        Self {
            server: TestServer::of(router, allstop_a2a::ServerOptions::default()).await,
            answer,
            fetches,
        }
    }

    fn url(&self) -> JwksUrl {
        JwksUrl::parse(&format!("http://{}/keys", self.server.address)).expect("a URL")
    }

    /// Fetches the keys, and starts the refresh in the server's scope.
    async fn authenticator(&self, times: JwksRefreshTimes) -> JwtAuthenticator {
        let keys = self.url().fetch().await.expect("a key set");
        let jwt = JwtAuthenticator::new(keys, ISSUER, AUDIENCE);
        let (url, refreshed) = (self.url(), jwt.clone());
        let spec = WorkSpec::new(ItemKind::Future, "refresh");
        let scope = &self.server.scope;
        let refreshing = scope.spawn(spec, move |cx| refresh_keys(url, refreshed, times, cx));
        drop(refreshing.expect("nothing is stopped"));
        jwt
    }

    async fn fetched(&mut self, count: usize) {
        let waiting = self.fetches.wait_for(|fetches| *fetches >= count);
        let fetched = tokio::time::timeout(SOON, waiting).await;
        fetched.expect("a fetch").expect("the server runs");
    }
}

fn is_accepted(jwt: &JwtAuthenticator, token: &str) -> bool {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header");
    let headers = HeaderMap::from_iter([(axum::http::header::AUTHORIZATION, value)]);
    jwt.authenticate(&headers).is_ok()
}

/// Waits until a token is accepted, with a limited number of attempts.
async fn eventually_accepted(jwt: &JwtAuthenticator, token: &str) {
    for _ in 0..500 {
        if is_accepted(jwt, token) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the new key is not used");
}

const SELDOM: Duration = Duration::from_hours(1);

#[tokio::test]
async fn unknown_key_fetches_the_set_again() {
    let (old, new) = (IssuerKey::p256("old"), IssuerKey::p256("new"));
    let server = KeyServer::start(jwks(&[&old])).await;
    let times = JwksRefreshTimes {
        interval: SELDOM,
        interval_min: Duration::from_millis(1),
    };
    let jwt = server.authenticator(times).await;
    assert!(is_accepted(&jwt, &old.token(&claims("alice"))));
    let token = new.token(&claims("alice"));
    assert!(!is_accepted(&jwt, &token), "not yet known");
    server.answer.lock().1 = jwks(&[&new]);
    eventually_accepted(&jwt, &token).await;
    assert!(
        !is_accepted(&jwt, &old.token(&claims("alice"))),
        "withdrawn"
    );
}

/// A server that has its keys in a file waits for a token that names an unknown key, and then reloads the file.
#[tokio::test]
async fn unknown_key_is_reported_once() {
    let key = IssuerKey::p256("k");
    let keys = JwtKeySet::parse(jwks(&[&key]).as_bytes()).expect("a key set");
    let jwt = JwtAuthenticator::new(keys, ISSUER, AUDIENCE);
    assert!(is_accepted(&jwt, &key.token(&claims("alice"))));
    assert!(jwt.unknown_key().now_or_never().is_none());
    let token = IssuerKey::p256("new").token(&claims("alice"));
    assert!(!is_accepted(&jwt, &token));
    jwt.unknown_key().await;
    assert!(jwt.unknown_key().now_or_never().is_none());
}

#[tokio::test]
async fn random_key_ids_do_not_make_the_server_fetch() {
    let key = IssuerKey::p256("k");
    let mut server = KeyServer::start(jwks(&[&key])).await;
    let times = JwksRefreshTimes {
        interval: SELDOM,
        interval_min: SELDOM / 2,
    };
    let jwt = server.authenticator(times).await;
    for number in 0..1000 {
        let header = json!({"alg": "ES256", "kid": format!("k{number}")});
        assert!(!is_accepted(&jwt, &key.sign_as(&header, &claims("alice"))));
        tokio::task::yield_now().await;
    }
    assert_eq!(
        *server.fetches.borrow_and_update(),
        1,
        "the one at the start"
    );
    let stop = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    assert!(
        server.server.scope.stop(stop).await.quiet(),
        "the refresh ends"
    );
}

#[tokio::test]
async fn failed_refresh_keeps_the_keys() {
    let key = IssuerKey::p256("k");
    let mut server = KeyServer::start(jwks(&[&key])).await;
    let times = JwksRefreshTimes {
        interval: Duration::from_millis(5),
        interval_min: Duration::from_millis(5),
    };
    let jwt = server.authenticator(times).await;
    let token = key.token(&claims("alice"));
    let faults = [
        (StatusCode::INTERNAL_SERVER_ERROR, jwks(&[&key])),
        (StatusCode::OK, "<html>".to_owned()),
        (StatusCode::OK, json!({"keys": []}).to_string()),
        (StatusCode::OK, " ".repeat(2 << 20)),
    ];
    for fault in faults {
        *server.answer.lock() = fault;
        let seen = *server.fetches.borrow();
        // The next fetch may have begun before the fault was set. The second fetch returns the fault, and the third
        // fetch begins only after the server has handled the fault.
        server.fetched(seen + 3).await;
        assert!(is_accepted(&jwt, &token));
    }
    let new = IssuerKey::p256("new");
    *server.answer.lock() = (StatusCode::OK, jwks(&[&new]));
    eventually_accepted(&jwt, &new.token(&claims("alice"))).await;
}

#[tokio::test]
async fn failed_fetch_reports_its_reason() {
    let key = IssuerKey::p256("k");
    let server = KeyServer::start(jwks(&[&key])).await;
    for (fault, expected) in [
        ((StatusCode::NOT_FOUND, String::new()), "404"),
        ((StatusCode::FOUND, String::new()), "302"),
        ((StatusCode::OK, "[]".to_owned()), "not JSON with a list"),
        ((StatusCode::OK, " ".repeat(2 << 20)), "more than"),
    ] {
        *server.answer.lock() = fault;
        let error = server.url().fetch().await.expect_err("a fault");
        let text = allstop_core::error_chain(&error);
        assert!(text.contains(expected) && text.contains("/keys"), "{text}");
    }
    let closed = JwksUrl::parse("http://127.0.0.1:1/keys").unwrap();
    assert!(closed.fetch().await.is_err());
}

/// An issuer that accepts connections and sends nothing.
#[tokio::test(start_paused = true)]
async fn silent_issuer_ends_the_fetch() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connections = AtomicUsize::new(0);
    let fetch = JwksUrl::parse(&url).unwrap();
    let silent = async {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
            connections.fetch_add(1, Ordering::Relaxed);
        }
    };
    let fetched = tokio::select! {
        fetched = fetch.fetch() => fetched,
        () = silent => unreachable!("it has no end"),
    };
    assert!(fetched.is_err());
}

#[test]
fn changed_file_is_read_again_and_a_broken_one_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let (old, new) = (IssuerKey::p256("old"), IssuerKey::ed25519("new"));
    std::fs::write(&path, jwks(&[&old])).unwrap();
    let (mut file, keys) = JwksFile::open(&path).unwrap();
    let jwt = JwtAuthenticator::new(keys, ISSUER, AUDIENCE);
    assert!(is_accepted(&jwt, &old.token(&claims("alice"))));
    assert!(file.reload().unwrap().is_none());
    std::fs::write(&path, "{").unwrap();
    assert!(file.reload().is_err());
    std::fs::write(&path, jwks(&[&new])).unwrap();
    jwt.replace_keys(file.reload().unwrap().expect("new keys"));
    assert!(is_accepted(&jwt, &new.token(&claims("alice"))));
    assert!(!is_accepted(&jwt, &old.token(&claims("alice"))));
    assert!(JwksFile::open(folder.path().join("missing")).is_err());
}
