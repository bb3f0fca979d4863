//! A client of `allstop copilot` without an SDK.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::FACT_MAX;

/// Client that writes the frames of the protocol itself.
pub(crate) struct RawClient {
    stream: BufReader<TcpStream>,
    requests: u64,
    /// Messages that came before the answers, in their order.
    unread: VecDeque<Value>,
}

impl RawClient {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream
            .set_read_timeout(Some(FACT_MAX))
            .expect("a limit of reads");
        Self {
            stream: BufReader::new(stream),
            requests: 0,
            unread: VecDeque::new(),
        }
    }

    /// Sends a request, and returns the answer.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let body = body.to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let stream = self.stream.get_mut();
        stream.write_all(frame.as_bytes()).expect("it is sent");
        loop {
            let message = self.message();
            // Events have no id.
            if message.get("id").is_some() {
                assert_eq!(message["id"], id, "{message}");
                return message;
            }
            self.unread.push_back(message);
        }
    }

    /// Reads up to the next event of this type, and returns its data.
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        loop {
            let message = self.unread.pop_front();
            let mut message = message.unwrap_or_else(|| self.message());
            let event = &mut message["params"]["event"];
            if event["type"] == kind {
                return event["data"].take();
            }
        }
    }

    fn message(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a header");
        let len = line.trim_end().strip_prefix("Content-Length: ");
        let len: usize = len.and_then(|len| len.parse().ok()).expect("a length");
        self.stream.read_line(&mut line).expect("an empty line");
        assert!(line.ends_with("\r\n\r\n"), "{line:?}");
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    }
}
