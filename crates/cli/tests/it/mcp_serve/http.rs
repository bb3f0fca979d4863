//! `allstop mcp serve --http`: sessions, access, and lost connections.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::wait_for_sleeper;
use crate::support::wait::eventually;
use crate::support::{FACT_MAX, Place, Running, Signal, processes};

/// SHA-256 of the token `secret`.
const SECRET_SHA256: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// SHA-256 of the token `other`.
const OTHER_SHA256: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

/// A server on a free port.
struct HttpServer {
    running: Running,
    address: String,
}

/// Status, headers and body of a response.
struct Response {
    status: u16,
    headers: String,
    body: String,
}

impl HttpServer {
    fn start(place: &Place, flags: &str) -> Self {
        let server = place
            .allstop()
            .args("mcp serve --http 127.0.0.1:0")
            .args(flags);
        let running = server.start();
        let url = running.line_of_stdout("listening on http://");
        let address = url.strip_suffix("/mcp").expect("the path").to_owned();
        Self { running, address }
    }

    /// Sends a request with these header lines. Returns the open connection.
    fn send(&self, method: &str, headers: &[&str], message: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(FACT_MAX)).expect("a timeout");
        let body = message.to_string();
        let has_host = headers.iter().any(|line| line.starts_with("Host:"));
        let host = format!("Host: {}", self.address);
        let length = format!("Content-Length: {}", body.len());
        let first = format!("{method} /mcp HTTP/1.1");
        let mut lines = vec![first.as_str(), "Connection: close"];
        lines.extend((!has_host).then_some(host.as_str()));
        lines.extend(headers);
        lines.extend([
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            &length,
            "",
            &body,
        ]);
        let head = lines.join("\r\n");
        stream.write_all(head.as_bytes()).expect("the server reads");
        stream
    }

    fn post(&self, headers: &[&str], message: &Value) -> Response {
        let mut text = String::new();
        let mut stream = self.send("POST", headers, message);
        stream.read_to_string(&mut text).expect("a response");
        Response::of(&text)
    }

    /// Begins a session. Returns its header line.
    fn session(&self, headers: &[&str]) -> String {
        let begun = self.post(headers, &initialize());
        assert_eq!(begun.status, 200, "{}", begun.body);
        let lines = begun.headers.lines();
        let mut ids = lines.filter_map(|line| line.strip_prefix("mcp-session-id: "));
        format!("Mcp-Session-Id: {}", ids.next().expect("a session"))
    }

    /// Calls a tool in a session, and returns its result.
    fn result(&self, headers: &[&str], tool: &str, arguments: &Value) -> Value {
        let called = self.post(headers, &call(7, tool, arguments));
        assert_eq!(called.status, 200, "{}", called.body);
        called.answer(7)["result"].clone()
    }
}

impl Response {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let (status, headers) = head.split_once("\r\n").expect("a status");
        let status = status.split_whitespace().nth(1).expect("a code");
        let is_chunked = headers.contains("transfer-encoding: chunked");
        Self {
            status: status.parse().expect("a number"),
            headers: headers.replace("\r\n", "\n"),
            body: if is_chunked {
                joined(body)
            } else {
                body.to_owned()
            },
        }
    }

    /// The answer to a request, in an event stream.
    fn answer(&self, id: u64) -> Value {
        let events = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let mut messages = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
        let answer = messages.find(|message| message["id"] == id);
        answer.unwrap_or_else(|| panic!("no answer: {}", self.body))
    }
}

/// Joins the chunks of a body.
fn joined(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        text += &rest[..size];
        body = &rest[size + 2..];
    }
    text
}

fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn wait_for_no_sleeper(place: &Place) {
    eventually("the end of the command", || {
        processes::of_text(place.sleeper()).is_empty().then_some(())
    });
}

#[test]
fn session_runs_commands_and_shutdown_stops_them() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let session = server.session(&[]);
    let result = server.result(&[&session], "exec", &json!({"command": "echo hello"}));
    assert_eq!(result["structuredContent"]["output"], "hello\n");
    server.result(
        &[&session],
        "background",
        &json!({"command": place.sleeper()}),
    );
    wait_for_sleeper(&place);
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143);
    assert!(
        ended.stderr.contains("nothing is left running"),
        "{}",
        ended.stderr
    );
    place.assert_nothing_runs();
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    for (headers, expected) in [
        (vec!["Host: evil.example"], 401),
        (vec!["Host: evil.example:80"], 401),
        (vec!["Origin: http://evil.example"], 403),
        (vec!["Origin: null"], 403),
        (vec!["Origin: http://localhost.evil.example"], 403),
        (vec!["Origin: http://localhost:6274"], 200),
        (vec!["Host: localhost"], 200),
    ] {
        let response = server.post(&headers, &initialize());
        assert_eq!(response.status, expected, "{headers:?} {}", response.body);
    }
}

#[test]
fn commands_belong_to_the_sender_of_their_token() {
    let place = Place::new();
    let tokens = format!("ann {SECRET_SHA256}\nbob {OTHER_SHA256}\n");
    let tokens = place.file("tokens", tokens);
    let server = HttpServer::start(&place, &format!("--token-file {}", tokens.display()));
    for headers in [&[][..], &["Authorization: Bearer wrong"]] {
        assert_eq!(server.post(headers, &initialize()).status, 401);
    }
    let (ann, bob) = (
        "Authorization: Bearer secret",
        "Authorization: Bearer other",
    );
    let of_ann = server.session(&[ann]);
    let of_bob = server.session(&[bob]);
    // With a token, the host may be the name of a machine in a network.
    let named = server.post(&["Host: build.example", ann], &initialize());
    assert_eq!(named.status, 200);
    let started = server.result(
        &[ann, &of_ann],
        "background",
        &json!({"command": place.sleeper()}),
    );
    let id = &started["structuredContent"]["id"];
    let foreign = server.result(&[bob, &of_bob], "stop", &json!({"id": id}));
    assert_eq!(foreign["isError"], true, "{foreign}");
    let seen = server.result(&[bob, &of_bob], "preview", &json!({}));
    assert_eq!(seen["structuredContent"]["commands"], json!([]));
    wait_for_sleeper(&place);
    let stopped = server.result(&[ann, &of_ann], "stop", &json!({"id": id}));
    assert_eq!(stopped["structuredContent"]["state"], "stopped");
}

#[test]
fn wrong_flags_are_usage_errors() {
    let place = Place::new();
    for (flags, expected) in [
        ("--http 0.0.0.0:0", "reachable from other machines"),
        ("--token-file tokens", "need --http"),
        ("--http 127.0.0.1:0 --token-file absent", "absent"),
        ("--max-commands 0", "1 or more"),
    ] {
        let ended = place.allstop().args("mcp serve").args(flags).end();
        assert_eq!(ended.code, 2, "{flags} {ended:?}");
        assert!(ended.stderr.contains(expected), "{flags} {}", ended.stderr);
    }
}

/// Before revision 2026-07-28, a lost connection is no cancellation (section "Streamable HTTP").
#[test]
fn lost_connection_of_a_session_stops_nothing() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let session = server.session(&[]);
    let command = json!({"command": place.sleeper()});
    let connection = server.send("POST", &[&session], &call(3, "exec", &command));
    wait_for_sleeper(&place);
    drop(connection);
    let seen = server.result(&[&session], "preview", &json!({}));
    assert_eq!(seen["structuredContent"]["commands"][0]["state"], "running");
    let cancelled = json!({"requestId": 3});
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled});
    assert_eq!(server.post(&[&session], &cancelled).status, 202);
    wait_for_no_sleeper(&place);
}

#[test]
fn end_of_a_session_stops_its_requests_but_not_the_background() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let session = server.session(&[]);
    let command = json!({"command": place.sleeper()});
    let _connection = server.send("POST", &[&session], &call(3, "exec", &command));
    wait_for_sleeper(&place);
    let watcher = json!({"command": "echo up; exec sleep 1000"});
    let started = server.result(&[&session], "background", &watcher);
    let mut ending = server.send("DELETE", &[&session], &Value::Null);
    let mut text = String::new();
    ending.read_to_string(&mut text).expect("a response");
    assert_eq!(Response::of(&text).status, 202, "{text}");
    wait_for_no_sleeper(&place);
    let next = server.session(&[]);
    let id = &started["structuredContent"]["id"];
    let seen = server.result(&[&next], "preview", &json!({"id": id}));
    assert_eq!(seen["structuredContent"]["commands"][0]["state"], "running");
}

/// From revision 2026-07-28 on, a client cancels a request when it closes the response stream.
#[test]
fn closed_response_stream_without_a_session_stops_its_command() {
    let place = Place::new();
    let server = HttpServer::start(&place, "");
    let mut message = call(3, "exec", &json!({"command": place.sleeper()}));
    let key = |name: &str| format!("io.modelcontextprotocol/{name}");
    let meta = &mut message["params"]["_meta"];
    meta[key("protocolVersion")] = "2026-07-28".into();
    meta[key("clientInfo")] = json!({"name": "test", "version": "1"});
    meta[key("clientCapabilities")] = json!({});
    let headers = [
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: exec",
    ];
    let mut connection = server.send("POST", &headers, &message);
    wait_for_sleeper(&place);
    // The first progress notification shows that the response stream is open.
    let mut read = String::new();
    let mut buffer = [0; 4096];
    while !read.contains("notifications/progress") {
        let len = connection.read(&mut buffer).expect("the response");
        assert_ne!(len, 0, "{read}");
        read += &String::from_utf8_lossy(&buffer[..len]);
    }
    drop(connection);
    wait_for_no_sleeper(&place);
    assert!(!server.running.ends_within(Duration::ZERO));
}
