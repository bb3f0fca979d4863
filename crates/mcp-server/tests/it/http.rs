//! Wrong messages over HTTP, on a loopback port.

use std::net::SocketAddr;

use allstop_mcp_server::{AcceptedHosts, CommandConfig, CommandServer, HTTP_PATH, http_router};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::manager;

/// Serves an endpoint on a loopback port during these checks.
async fn during(checks: impl AsyncFnOnce(SocketAddr)) {
    let config = CommandConfig::new(".");
    let server = CommandServer::new(manager().await, &config, "1");
    let (router, _end) = http_router(&server, AcceptedHosts::Loopback);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::select! {
        ended = axum::serve(listener, router).into_future() => panic!("the server ended: {ended:?}"),
        () = checks(address) => {}
    }
}

/// Answer to a request: its status, its head, and its JSON body.
struct HttpAnswer {
    status: u16,
    head: String,
    body: Value,
}

/// Sends a message with further headers, each with its line end.
async fn post(address: SocketAddr, headers: &str, body: &str) -> HttpAnswer {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!(
        "POST {HTTP_PATH} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a body");
    let status = head.split(' ').nth(1).expect("a status");
    let json = text.find('{').map_or(text, |begin| &text[begin..]);
    let mut values = serde_json::Deserializer::from_str(json).into_iter();
    HttpAnswer {
        status: status.parse().expect("a number"),
        head: head.to_owned(),
        body: values.next().and_then(Result::ok).unwrap_or(Value::Null),
    }
}

/// Begins a session. Returns its header.
async fn session(address: SocketAddr) -> String {
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    });
    let began = post(address, "", &initialize.to_string()).await;
    let mut lines = began.head.lines();
    let header = lines.find(|line| line.starts_with("mcp-session-id:"));
    let headers = format!("{}\r\n", header.expect("a session"));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let accepted = post(address, &headers, &initialized.to_string()).await;
    assert_eq!(accepted.status, 202);
    headers
}

#[tokio::test]
async fn wrong_messages_are_answered_with_an_error() {
    let wrong_ids = ["null", "1.5", "[1]", "{}", "true"];
    let ping = |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}");
    let mut wrong: Vec<_> = wrong_ids.iter().map(|id| (ping(id), -32600)).collect();
    wrong.push(("garbage".to_owned(), -32700));
    wrong.push((String::new(), -32700));
    wrong.push(("[]".to_owned(), -32600));
    wrong.push(("{}".to_owned(), -32600));
    during(async |address| {
        for (body, code) in wrong {
            let HttpAnswer {
                status,
                body: answer,
                ..
            } = post(address, "", &body).await;
            assert_eq!(status, 400, "{body}: {answer}");
            assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
            assert_eq!(answer["id"], Value::Null, "{body}: {answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn array_as_arguments_is_invalid_params() {
    let call = json!({
        "jsonrpc": "2.0", "id": "c", "method": "tools/call",
        "params": {"name": "exec", "arguments": []},
    });
    let text = call.to_string();
    during(async |address| {
        let session = session(address).await;
        let answer = post(address, &session, &text).await.body;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["id"], "c", "{answer}");
    })
    .await;
}
