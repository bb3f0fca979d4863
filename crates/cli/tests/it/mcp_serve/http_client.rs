//! A client of `allstop mcp serve --http`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{FACT_MAX, Place, Running};

/// SHA-256 of the token `secret`.
const SECRET_SHA256: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// SHA-256 of the token `other`.
const OTHER_SHA256: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

/// Header of the user `ann`.
pub(super) const ANN: &str = "Authorization: Bearer secret";

/// Header of the user `bob`.
pub(super) const BOB: &str = "Authorization: Bearer other";

/// A server on a free port.
pub(super) struct HttpServer {
    pub(super) running: Running,
    address: String,
}

/// Status, headers and body of a response.
pub(super) struct Response {
    pub(super) status: u16,
    headers: String,
    pub(super) body: String,
}

impl HttpServer {
    pub(super) fn start(place: &Place, flags: &str) -> Self {
        let server = place
            .allstop()
            .args("mcp serve --http 127.0.0.1:0")
            .args(flags);
        let running = server.start();
        let url = running.line_of_stdout("listening on http://");
        let address = url.strip_suffix("/mcp").expect("the path").to_owned();
        Self { running, address }
    }

    /// A server for the users `ann` and `bob`.
    pub(super) fn for_two(place: &Place) -> Self {
        let tokens = format!("ann {SECRET_SHA256}\nbob {OTHER_SHA256}\n");
        let tokens = place.file("tokens", tokens);
        Self::start(place, &format!("--token-file {}", tokens.display()))
    }

    /// Sends a request with these header lines. Returns the open connection.
    pub(super) fn send(&self, method: &str, headers: &[&str], message: &Value) -> TcpStream {
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

    pub(super) fn post(&self, headers: &[&str], message: &Value) -> Response {
        Response::read(self.send("POST", headers, message))
    }

    /// Ends a session.
    pub(super) fn delete(&self, headers: &[&str]) -> Response {
        Response::read(self.send("DELETE", headers, &Value::Null))
    }

    /// Begins a session. Returns its header line.
    pub(super) fn session(&self, headers: &[&str]) -> String {
        let begun = self.post(headers, &initialize());
        assert_eq!(begun.status, 200, "{}", begun.body);
        let lines = begun.headers.lines();
        let mut ids = lines.filter_map(|line| line.strip_prefix("mcp-session-id: "));
        format!("Mcp-Session-Id: {}", ids.next().expect("a session"))
    }

    /// Calls a tool in a session, and returns its result.
    pub(super) fn result(&self, headers: &[&str], tool: &str, arguments: &Value) -> Value {
        let called = self.post(headers, &call(7, tool, arguments));
        assert_eq!(called.status, 200, "{}", called.body);
        called.answer(7)["result"].clone()
    }
}

impl Response {
    /// Reads a response to its end.
    pub(super) fn read(mut connection: TcpStream) -> Self {
        let mut text = String::new();
        connection.read_to_string(&mut text).expect("a response");
        Self::of(&text)
    }

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
    pub(super) fn answer(&self, id: u64) -> Value {
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

pub(super) fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

pub(super) fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}
