//! A stop of a model call closes the connection of the call. The tests check this at the server and with the connection
//! probe.

use std::time::Duration;

use allstop_model::{
    ConnectionProbe, ConnectionState, Model, ModelEvent, ModelRequest, Reply, ScriptedModel,
};
use futures::{FutureExt, StreamExt};

use crate::openai_server::{OpenAiServer, ServerAnswer};
use crate::support::{PATIENCE, all_of, ask, model_at};

/// Maximum wait for the end of a dropped connection.
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// Regression: the HTTP library sent a long request to its last byte, although the call was dropped.
#[tokio::test]
async fn stop_during_the_upload_sends_no_whole_request() {
    // More than the buffers of the kernel can hold.
    const REQUEST_BYTES: usize = 32 * 1024 * 1024;
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model_at(&format!("http://{}", listener.local_addr().unwrap()));
    let request = ask(&"x".repeat(REQUEST_BYTES));
    let probe = request.probe.clone();
    let mut call = model.stream(request);
    let mut beginning = vec![0; 64 * 1024];
    let mut server = tokio::select! {
        result = &mut call => panic!("nothing was answered: {result:?}"),
        server = async {
            let (mut server, _) = listener.accept().await.unwrap();
            server.read_exact(&mut beginning).await.unwrap();
            server
        } => server,
    };
    drop(call);
    // The server reads nothing, so the rest of the last pieces cannot be sent.
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::StillOpen);
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, server.read_to_end(&mut rest)).await;
    ended.expect("the connection ends").unwrap();
    assert!(rest.len() < REQUEST_BYTES / 2, "{} bytes", rest.len());
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::Closed);
}

#[tokio::test]
async fn stop_in_mid_stream_closes_the_connection() {
    let server = OpenAiServer::start([ServerAnswer::text("one two").stall()]);
    let model = model_at(&server.url());
    let request = ask("hi");
    let probe = request.probe.clone();
    let mut stream = model.stream(request).await.unwrap();
    stream.events.next().await.unwrap().unwrap();
    stream.events.next().await.unwrap().unwrap();
    assert!(stream.events.next().now_or_never().is_none());
    assert_eq!(probe.look(), ConnectionState::StillOpen);
    assert_eq!(server.seen().open(), 1);

    drop(stream);
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::Closed);
    server
        .wait_until(PATIENCE, |seen| seen.open() == 0)
        .await
        .unwrap();
    // The stop has opened no further connection.
    assert_eq!(server.seen().connections.len(), 1);
}

#[tokio::test]
async fn stop_before_the_headers_closes_the_connection() {
    let server = OpenAiServer::start([
        ServerAnswer::text("x").stall_before_headers(),
        ServerAnswer::text("y"),
    ]);
    let model = model_at(&server.url());
    let request = ask("hi");
    let probe = request.probe.clone();
    let mut call = model.stream(request);
    tokio::select! {
        _ = &mut call => panic!("the server does not answer"),
        seen = server.wait_until(PATIENCE, |seen| seen.requests.len() == 1) => { seen.unwrap(); }
    }
    assert_eq!(probe.look(), ConnectionState::StillOpen);

    drop(call);
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::Closed);
    server
        .wait_until(PATIENCE, |seen| seen.open() == 0)
        .await
        .unwrap();
    let (_, error) = all_of(&model, ask("again")).await;
    assert_eq!(error, None);
}

#[tokio::test]
async fn stop_during_connect_leaves_no_socket() {
    // A listener that accepts no connection and has a full queue does not answer a SYN. So the attempt to connect
    // hangs.
    let (listener, address, _held) = full_listener().await;
    let model = model_at(&format!("http://{address}"));
    let request = ask("hi");
    let probe = request.probe.clone();
    let mut call = model.stream(request);
    tokio::select! {
        result = &mut call => panic!("connected to a full listener: {result:?}"),
        () = sockets_to(address, "02", 1) => {}
    }
    assert_eq!(probe.look(), ConnectionState::StillOpen);
    assert_eq!(
        probe.clone().closed(CLOSE_MAX).await,
        ConnectionState::StillOpen,
        "nothing was dropped"
    );

    drop(call);
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::NeverOpened);
    assert_eq!(
        count_sockets_to(address, "02"),
        0,
        "the kernel still connects"
    );
    drop(listener);
}

#[tokio::test]
async fn stop_during_the_tls_handshake_closes_the_connection() {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model_at(&format!("https://{}", listener.local_addr().unwrap()));
    let request = ask("hi");
    let probe = request.probe.clone();
    let mut call = model.stream(request);
    // The server receives the greeting and never answers.
    let mut greeting = [0; 16];
    let mut server = tokio::select! {
        result = &mut call => panic!("no handshake can succeed: {result:?}"),
        server = async {
            let (mut server, _) = listener.accept().await.unwrap();
            server.read_exact(&mut greeting).await.unwrap();
            server
        } => server,
    };
    assert_eq!(probe.look(), ConnectionState::StillOpen);
    drop(call);
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::NeverOpened);
    let rest = tokio::time::timeout(PATIENCE, server.read_to_end(&mut Vec::new())).await;
    rest.expect("the server sees the end").unwrap();
}

#[tokio::test]
async fn connect_limit_ends_a_hanging_connect() {
    let (_listener, address, _held) = full_listener().await;
    let options = allstop_model::ProviderOptions::default()
        .base_url(format!("http://{address}"))
        .connect_limit(Duration::from_millis(50));
    let model = allstop_model::ProviderModel::new("m", options).unwrap();
    let request = ask("hi");
    let probe = request.probe.clone();
    let (_, error) = all_of(&model, request).await;
    let error = error.unwrap();
    assert_eq!(
        error.kind,
        allstop_model::ModelErrorKind::ConnectTimeout,
        "{error}"
    );
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::NeverOpened);
}

#[tokio::test]
async fn stop_of_one_call_leaves_parallel_calls_open() {
    let server = OpenAiServer::start([ServerAnswer::text("one ").stall()]);
    let model = model_at(&server.url());
    let mut calls = Vec::new();
    for _ in 0..20 {
        let request = ask("hi");
        let probe = request.probe.clone();
        calls.push((model.stream(request).await.unwrap(), probe));
    }
    assert_eq!(server.seen().open(), 20);
    for stopped in 1..=20 {
        let (stream, probe) = calls.pop().unwrap();
        drop(stream);
        assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::Closed);
        for (_, other) in &calls {
            assert_eq!(other.look(), ConnectionState::StillOpen);
        }
        server
            .wait_until(PATIENCE, |seen| seen.open() == 20 - stopped)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn call_watches_a_reused_connection() {
    let used = parking_lot::Mutex::new(std::collections::HashSet::new());
    let server = OpenAiServer::deciding(move |_, request| {
        let is_first = used.lock().insert(request.connection);
        if is_first {
            ServerAnswer::text("first")
        } else {
            ServerAnswer::text("reused ").stall()
        }
    });
    let model = model_at(&server.url());
    let mut earlier = Vec::new();
    let (stream, probe) = loop {
        let request = ask("hi");
        let probe = request.probe.clone();
        let mut stream = model.stream(request).await.unwrap();
        let first = stream.events.next().await.unwrap().unwrap();
        if first == ModelEvent::Text("reused ".into()) {
            break (stream, probe);
        }
        while let Some(event) = stream.events.next().await {
            event.unwrap();
        }
        earlier.push(probe);
    };
    assert_eq!(probe.look(), ConnectionState::StillOpen);
    // The connections of the earlier calls were returned to the pool. These connections are open, but belong to no
    // call.
    for probe in earlier {
        assert_eq!(probe.look(), ConnectionState::ReturnedToPool);
    }
    drop(stream);
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::Closed);
    server
        .wait_until(PATIENCE, |seen| seen.open() == 0)
        .await
        .unwrap();
}

#[tokio::test]
async fn endless_answer_is_cut_off() {
    let server = OpenAiServer::start([
        ServerAnswer::text(&"word ".repeat(100_000)).every(Duration::from_micros(100))
    ]);
    let model = model_at(&server.url());
    let request = ask("hi");
    let probe = request.probe.clone();
    let stream = model.stream(request).await.unwrap();
    drop(stream);
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::Closed);
    let seen = server
        .wait_until(PATIENCE, |seen| seen.open() == 0)
        .await
        .unwrap();
    assert!(seen.pieces_sent < 50_000, "{}", seen.pieces_sent);
}

#[tokio::test]
async fn probe_without_connections_never_reports_closed() {
    assert_eq!(
        ConnectionProbe::default().closed(CLOSE_MAX).await,
        ConnectionState::NotVerifiable
    );
    let request: ModelRequest = ask("hi");
    let probe = request.probe.clone();
    let model = ScriptedModel::new(vec![Reply::text("x")]);
    drop(model.stream(request).await.unwrap());
    assert_eq!(probe.closed(CLOSE_MAX).await, ConnectionState::NeverOpened);
}

/// A listener with a full queue, and the connections that fill it.
async fn full_listener() -> (
    std::net::TcpListener,
    std::net::SocketAddr,
    Vec<tokio::net::TcpStream>,
) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap().into_std().unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    loop {
        let connecting = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connecting).await {
            Ok(connected) => held.push(connected.unwrap()),
            Err(_) => return (listener, address, held),
        }
    }
}

async fn sockets_to(address: std::net::SocketAddr, state: &str, count: usize) {
    while count_sockets_to(address, state) != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Number of sockets in this state that are connected to this address, according to the kernel.
fn count_sockets_to(address: std::net::SocketAddr, state: &str) -> usize {
    let remote = format!("0100007F:{:04X}", address.port());
    std::fs::read_to_string("/proc/net/tcp")
        .unwrap()
        .lines()
        .filter(|line| {
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            fields.get(2) == Some(&&*remote) && fields.get(3) == Some(&state)
        })
        .count()
}
