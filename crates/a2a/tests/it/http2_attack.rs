//! Clients of HTTP/2 that ask for many large responses on one connection, and permit one byte of each.

use std::time::Duration;

use allstop_a2a::ServerOptions;
use allstop_host::{PlaceLimits, Places};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode};
use futures::future::join_all;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use crate::support::{get, message, result, router};
use crate::test_server::{PAGE_BYTES, SOON, TestServer, pages, peak_memory_kb};

/// Streams of a connection, which is the maximum that the server permits.
const STREAMS: usize = 100;

/// Responses of a connection that may be unsent, in these tests.
const UNSENT_MAX: usize = 4;

/// Time for the answers to all requests of a connection.
const ANSWERS_MAX: Duration = Duration::from_secs(40);

/// Connection with a flow-control window of one byte for each stream.
struct Attacker {
    sender: SendRequest<Body>,
    connection: JoinSet<()>,
}

impl Attacker {
    async fn connect(server: &TestServer) -> Self {
        let io = TokioIo::new(server.connect().await);
        let (sender, serving) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1)
            .handshake::<_, Body>(io)
            .await
            .expect("HTTP/2");
        let mut connection = JoinSet::new();
        connection.spawn(async { drop(serving.await) });
        Self { sender, connection }
    }

    /// Sends one request on each stream. Returns the bodies of the accepted requests, and the number of the refused.
    async fn ask(&self, request: impl Fn() -> Request<Body>) -> (Vec<Incoming>, usize) {
        let answers = join_all((0..STREAMS).map(|_| self.sender.clone().send_request(request())));
        let answers = tokio::time::timeout(ANSWERS_MAX, answers).await;
        let answers = answers.expect("in time");
        let (mut accepted, mut refused) = (Vec::new(), 0);
        // The server may have closed the connection in favour of others.
        for answer in answers.into_iter().flatten() {
            if answer.status() == StatusCode::OK {
                accepted.push(answer.into_body());
            } else {
                assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
                assert_eq!(answer.headers()["retry-after"], "1");
                refused += 1;
            }
        }
        (accepted, refused)
    }

    async fn assert_closed(mut self) {
        let closed = tokio::time::timeout(SOON, self.connection.join_next()).await;
        closed.expect("the server closes the connection");
    }
}

fn options(limits: PlaceLimits) -> ServerOptions {
    ServerOptions::default().places(Places::new(limits))
}

/// Requests of another user on a new connection, which reads its response.
async fn assert_served(server: &TestServer, request: Request<Body>, bytes_min: usize) {
    let io = TokioIo::new(server.connect().await);
    let (mut sender, serving) = http2::handshake(TokioExecutor::new(), io)
        .await
        .expect("HTTP/2");
    let reading = async move {
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let body = answer.into_body().collect().await.expect("a body");
        assert!(body.to_bytes().len() >= bytes_min);
    };
    let both = async { tokio::join!(serving, reading) };
    let (ended, ()) = tokio::time::timeout(SOON, both).await.expect("in time");
    ended.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_streams_of_many_connections_have_a_limited_size() {
    let limits = PlaceLimits::of_connections(1_000)
        .connection_unsent_bytes_max(UNSENT_MAX * PAGE_BYTES)
        .unsent_bytes_max(4 * UNSENT_MAX * PAGE_BYTES);
    let server = TestServer::of(pages(), options(limits)).await;
    let before = peak_memory_kb();
    let mut attackers = Vec::new();
    for number in 0..8 {
        let attacker = Attacker::connect(&server).await;
        let (accepted, refused) = attacker.ask(|| get("/page")).await;
        assert!((1..=UNSENT_MAX).contains(&accepted.len()), "{accepted:?}");
        assert_eq!(accepted.len() + refused, STREAMS, "connection {number}");
        attackers.push((attacker, accepted));
        assert_served(&server, get("/page"), PAGE_BYTES).await;
    }
    let grown_kb = peak_memory_kb() - before;
    // 64 MiB of the server, and this process is the client, too.
    assert!(grown_kb < 160 * 1024, "{grown_kb} kB");
    // The connection whose client has waited longest was closed.
    let (first, _) = attackers.swap_remove(0);
    first.assert_closed().await;
}

/// Size of the task, in bytes. A build without optimization needs 0.1 seconds of CPU for each MiB of a response.
const TASK_BYTES: usize = 256 << 10;

async fn large_task(router: &Router) -> String {
    let large = message("large", &format!("ask {}", "x".repeat(TASK_BYTES)));
    let sent = result(router, "SendMessage", &large).await;
    sent["task"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_streams_of_a_large_task_end_at_the_deadline() {
    let router = router().await;
    let id = large_task(&router).await;
    let limits = PlaceLimits::of_connections(1_000)
        .connection_unsent_bytes_max((UNSENT_MAX + 1) * TASK_BYTES)
        .stall_time_max(Duration::from_secs(4))
        .bytes_per_s_min(u32::MAX);
    let server = TestServer::of(router, options(limits)).await;
    let attacker = Attacker::connect(&server).await;
    let path = format!("/tasks/{id}");
    // The deadline may come before the last answer.
    let (mut accepted, _) = attacker.ask(|| get(&path)).await;
    assert!((1..=UNSENT_MAX).contains(&accepted.len()), "{accepted:?}");
    let mut of_bob = get("/tasks");
    let bob = HeaderValue::from_static("bob");
    of_bob.headers_mut().insert("authorization", bob);
    assert_served(&server, of_bob, 1).await;
    // A client that takes one byte after another does not extend the deadline.
    let mut dripping = accepted.pop().expect("a body");
    let dripping = async { while matches!(dripping.frame().await, Some(Ok(_))) {} };
    let ended = tokio::time::timeout(SOON, dripping).await;
    ended.expect("the stream ends");
    attacker.assert_closed().await;
    let running = || server.scope.running();
    let ended = async {
        while running().len() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(SOON, ended).await;
    ended.unwrap_or_else(|_| panic!("more than the listener: {:?}", running()));
}
