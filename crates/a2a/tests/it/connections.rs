//! The server's connections: slow, idle, many and large ones.

use std::time::Duration;

use allstop_a2a::{ServerOptions, serve};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, StopRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::router;

const SOON: Duration = Duration::from_secs(10);

struct TestServer {
    scope: Scope,
    address: std::net::SocketAddr,
}

impl TestServer {
    async fn start(options: ServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let scope = Scope::root("server", RootOptions::current());
        let spec =
            allstop_scope::WorkSpec::new(allstop_core::receipt::ItemKind::Future, "listener");
        let (router, accepting) = (router().await, scope.clone());
        let serving = scope.spawn(spec, move |_| serve(listener, router, accepting, options));
        drop(serving.expect("nothing is stopped"));
        Self { scope, address }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address)
            .await
            .expect("a connection")
    }
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut text)).await;
    // A reset is an end, too.
    let _reset = read.expect("the server closes the connection");
    String::from_utf8_lossy(&text).into_owned()
}

fn short() -> ServerOptions {
    ServerOptions {
        head_time_max: Duration::from_millis(200),
        ..ServerOptions::default()
    }
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
    // One that has had its answer, and says no more.
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
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let options = ServerOptions {
        connections_max: 2,
        ..ServerOptions::default()
    };
    let server = TestServer::start(options).await;
    let card = b"GET /.well-known/agent-card.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let first = server.connect().await;
    let second = server.connect().await;
    let mut third = server.connect().await;
    third.write_all(card).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(200), third.read(&mut byte)).await;
    assert!(early.is_err(), "two connections hold both places");
    drop((first, second));
    assert!(read_to_end(&mut third).await.contains("200 OK"));
}

#[tokio::test]
async fn stop_ends_every_connection() {
    let server = TestServer::start(ServerOptions::default()).await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(server.connect().await);
    }
    // The last one is accepted when it is answered.
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
