//! The server's connections: slow, idle and numerous connections, and large requests.

use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{AccessControl, NoAuthentication, ServerOptions};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_host::{PlaceLimits, Places};
use allstop_scope::StopRequest;
use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{message, router_with, rpc};
use crate::test_server::{PAGE_BYTES, SOON, TestServer, pages, peak_memory_kb, read_to_end};

fn short() -> ServerOptions {
    ServerOptions::default().head_time_max(Duration::from_millis(200))
}

#[tokio::test]
async fn slow_heads_and_idle_connections_are_closed() {
    let server = TestServer::start(short()).await;
    let mut idle = server.connect().await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /tasks HTTP/1.1\r\nhost: x\r\n")
        .await
        .unwrap();
    read_to_end(&mut idle).await;
    read_to_end(&mut slow).await;
    // A client that has received its response and sends nothing more.
    let mut silent = server.connect().await;
    let card = b"GET /.well-known/agent-card.json HTTP/1.1\r\nhost: x\r\n\r\n";
    silent.write_all(card).await.unwrap();
    let text = read_to_end(&mut silent).await;
    assert!(text.contains("200 OK"), "{text}");
}

#[tokio::test]
async fn large_heads_and_bodies_are_refused() {
    let server = TestServer::start(ServerOptions::default()).await;
    let mut stream = server.connect().await;
    let head = format!(
        "GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
        "y".repeat(100_000)
    );
    let _closed = stream.write_all(head.as_bytes()).await;
    let text = read_to_end(&mut stream).await;
    assert!(text.is_empty() || text.contains("431"), "{text}");

    let mut stream = server.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: x\r\nauthorization: alice\r\na2a-version: 1.0\r\n\
                content-type: application/json\r\ncontent-length: 104857600\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let before = peak_memory_kb();
    let (mut reader, mut writer) = stream.into_split();
    let writing = async {
        let chunk = vec![b' '; 1 << 20];
        while writer.write_all(&chunk).await.is_ok() {}
    };
    let mut answer = vec![0; 64];
    let reading = tokio::time::timeout(SOON, reader.read(&mut answer));
    let len = tokio::select! {
        read = reading => read.expect("in time").unwrap_or(0),
        () = writing => 0,
    };
    let answer = String::from_utf8_lossy(&answer[..len]);
    assert!(answer.is_empty() || answer.contains("413"), "{answer}");
    // The server reads at most ten of the hundred megabytes. A growing buffer may temporarily need twice this size.
    let grown_kb = peak_memory_kb() - before;
    assert!(grown_kb < 50_000, "{grown_kb} kB");
}

const UNAUTHENTICATED: &str =
    "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4\r\n";

/// Regression: the server closed the connection without a word, and a client that reused it lost its next request.
#[tokio::test]
async fn refusal_before_the_body_announces_the_end_of_its_connection() {
    let server = TestServer::start(ServerOptions::default()).await;
    for expect in ["", "expect: 100-continue\r\n"] {
        let mut stream = server.connect().await;
        let head = format!("{UNAUTHENTICATED}{expect}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let text = read_to_end(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 401"), "{text}");
        assert!(text.contains("\r\nconnection: close\r\n"), "{text}");
    }
}

#[tokio::test]
async fn connection_goes_on_after_a_refusal() {
    let server = TestServer::start(ServerOptions::default()).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        let head = format!("{UNAUTHENTICATED}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(b"null").await.unwrap();
    }
    let last = b"GET /tasks HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(last).await.unwrap();
    let text = read_to_end(&mut stream).await;
    assert_eq!(text.matches("HTTP/1.1 401").count(), 4, "{text}");
}

#[tokio::test]
async fn new_connection_gets_the_place_of_one_without_a_request() {
    let options = ServerOptions::default().places(Places::new(PlaceLimits::of_connections(2)));
    let server = TestServer::start(options).await;
    let card = b"GET /.well-known/agent-card.json HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = server.connect().await;
    let _second = server.connect().await;
    let mut third = server.connect().await;
    third.write_all(card).await.unwrap();
    let mut status = [0; 12];
    let read = tokio::time::timeout(SOON, third.read_exact(&mut status)).await;
    read.expect("in time").expect("a response");
    assert_eq!(&status, b"HTTP/1.1 200");
    read_to_end(&mut first).await;
}

async fn ask_for_a_page(server: &TestServer) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stream = socket.connect(server.address).await.expect("a connection");
    let request = b"GET /page HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).await.expect("it is sent");
    let mut begin = [0; 12];
    let read = tokio::time::timeout(SOON, stream.read_exact(&mut begin)).await;
    read.expect("in time").expect("a response");
    stream
}

#[tokio::test]
async fn clients_that_do_not_read_use_a_limited_amount_of_memory() {
    let limits = PlaceLimits::of_connections(1_000).unsent_bytes_max(4 * PAGE_BYTES);
    let options = ServerOptions::default().places(Places::new(limits));
    let server = TestServer::of(pages(), options).await;
    let before = peak_memory_kb();
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(ask_for_a_page(&server).await);
    }
    // A client that reads receives its page.
    let mut reader = ask_for_a_page(&server).await;
    let mut page = vec![0; PAGE_BYTES];
    let read = tokio::time::timeout(SOON, reader.read_exact(&mut page)).await;
    read.expect("in time").expect("the whole page");
    // The page of a client whose connection was closed has an end.
    read_to_end(&mut stalled[0]).await;
    let grown_kb = peak_memory_kb() - before;
    let all_kb = (100 * PAGE_BYTES / 1024) as u64;
    assert!(grown_kb < all_kb / 4, "{grown_kb} kB");
}

#[tokio::test]
async fn client_that_does_not_take_its_response_in_time_is_disconnected() {
    let limits = PlaceLimits::of_connections(1_000)
        .stall_time_max(Duration::from_millis(200))
        .bytes_per_s_min(u32::MAX);
    let options = ServerOptions::default().places(Places::new(limits));
    let server = TestServer::of(pages(), options).await;
    let mut stalled = ask_for_a_page(&server).await;
    let is_closed = || {
        let running = server.scope.running();
        !running
            .iter()
            .any(|item| item.name.starts_with("connection"))
    };
    let closed = async {
        while !is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let closed = tokio::time::timeout(SOON, closed).await;
    closed.expect("the connection is closed");
    let text = read_to_end(&mut stalled).await;
    assert!(text.len() < PAGE_BYTES);
}

#[tokio::test]
async fn stop_ends_every_connection() {
    let server = TestServer::start(ServerOptions::default()).await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(server.connect().await);
    }
    // If the server answers a request on the last connection, it has accepted all connections.
    let mut last = server.connect().await;
    let card = b"GET /.well-known/agent-card.json HTTP/1.1\r\nhost: x\r\n\r\n";
    last.write_all(card).await.unwrap();
    let mut some = [0; 12];
    last.read_exact(&mut some).await.unwrap();
    let stop = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let receipt = server.scope.stop(stop).await;
    assert!(receipt.quiet(), "{receipt:?}");
    for mut stream in idle {
        read_to_end(&mut stream).await;
    }
}

/// A connection that only answers HTTP/2 pings is closed. A connection with a long response stays open.
#[tokio::test]
async fn idle_http_2_connections_are_closed() {
    let options = ServerOptions::default().idle_time_max(Duration::from_millis(200));
    let server = TestServer::start(options).await;
    let io = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), io)
            .await
            .unwrap();
    let mut sending = sender.clone();
    let requests = async move {
        let message = message("m", "wait");
        let stream = sending.send_request(rpc("SendStreamingMessage", &message));
        let mut events = stream.await.unwrap().into_body();
        let first = events.frame().await.unwrap().unwrap().into_data().unwrap();
        let (_, id) = std::str::from_utf8(&first)
            .unwrap()
            .split_once("\"task\":")
            .unwrap();
        let (_, id) = id.split_once("\"id\":\"").unwrap();
        let id = id.split('"').next().unwrap().to_owned();
        // During this wait, which is longer than the idle limit, a request is in progress on the connection, but no
        // data flows.
        let silent = async { while events.frame().await.is_some() {} };
        let ended = tokio::time::timeout(Duration::from_millis(700), silent).await;
        assert!(ended.is_err(), "the stream is not idle");
        let cancel = rpc("CancelTask", &serde_json::json!({"id": id}));
        let cancelled = sending.send_request(cancel).await.unwrap();
        assert_eq!(cancelled.status(), 200);
        while events.frame().await.is_some() {}
        // The client keeps its sender, so only the server can close the connection.
        sending
    };
    let both = async { tokio::join!(connection, requests) };
    let (ended, _sending) = tokio::time::timeout(SOON, both).await.expect("it ends");
    ended.unwrap();
    assert!(sender.ready().await.is_err(), "the connection is closed");
}

/// A page of another site can resolve its own name to a loopback address. HTTP/2 sends that name as `:authority`.
#[tokio::test]
async fn foreign_authority_of_http_2_is_refused() {
    let router = router_with(AccessControl::new(Arc::new(NoAuthentication))).await;
    let server = TestServer::of(router, ServerOptions::default()).await;
    let io = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), io)
            .await
            .unwrap();
    let requests = async move {
        for (authority, status) in [("evil.test", 401), ("localhost", 200), ("127.0.0.1", 200)] {
            let mut request = rpc("ListTasks", &serde_json::json!({}));
            *request.uri_mut() = format!("http://{authority}/").parse().unwrap();
            request.headers_mut().remove("host");
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), status, "{authority}");
        }
    };
    let both = async { tokio::join!(connection, requests) };
    let (ended, ()) = tokio::time::timeout(SOON, both).await.expect("it ends");
    ended.unwrap();
}

#[expect(
    clippy::print_stdout,
    reason = "how many connections the machine allows is worth a line"
)]
mod alone {
    use std::time::Instant;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// Maximum number of idle connections. The client sides of the connections need an equal number of descriptors in
    /// addition.
    const CONNECTIONS: u64 = 10_000;

    /// Descriptors for all other purposes.
    const OTHER_DESCRIPTORS: u64 = 200;

    /// Number of connections that this process's limit permits, up to [`CONNECTIONS`].
    fn connections() -> usize {
        let limit = getrlimit(Resource::Nofile);
        let wanted = 2 * CONNECTIONS + OTHER_DESCRIPTORS;
        let maximum = limit.maximum.unwrap_or(u64::MAX);
        let current = Some(wanted.min(maximum));
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).expect("below the maximum");
        let connections = (wanted.min(maximum) - OTHER_DESCRIPTORS) / 2;
        println!("{connections} connections; the limit is {maximum} descriptors");
        usize::try_from(connections).expect("a number of connections")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_idle_connections_delay_no_request() {
        let count = connections();
        let options =
            ServerOptions::default().places(Places::new(PlaceLimits::of_connections(20_000)));
        let server = TestServer::start(options).await;
        let before = peak_memory_kb();
        let mut idle = Vec::new();
        for _ in 0..count {
            idle.push(server.connect().await);
        }
        let begin = Instant::now();
        let mut one = server.connect().await;
        let card =
            b"GET /.well-known/agent-card.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        one.write_all(card).await.unwrap();
        assert!(read_to_end(&mut one).await.contains("200 OK"));
        let (answered, grown_kb) = (begin.elapsed(), peak_memory_kb() - before);
        assert!(server.scope.running().len() > count, "all are held");
        assert!(answered < Duration::from_secs(2), "{answered:?}");
        // This process contains both sides of each connection, so the memory of both sides is measured.
        let per_connection_kb = grown_kb / count as u64;
        println!("answered after {answered:?}; {per_connection_kb} kB a connection");
        assert!(per_connection_kb < 48, "{grown_kb} kB");
        drop(idle);
        for _ in 0..1000 {
            if server.scope.running().len() == 1 {
                return; // the listener
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} are left", server.scope.running().len());
    }
}
