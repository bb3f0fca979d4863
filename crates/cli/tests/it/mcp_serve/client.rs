//! A client of `allstop mcp serve` on standard input and output.

use std::io::Write as _;
use std::process::{ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::support::{Allstop, Ended, FACT_MAX, Place, Running};

/// A client whose session has begun. Dropping it kills the server.
pub(super) struct McpUser {
    running: Running,
    stdin: Option<ChildStdin>,
    requests: u64,
}

impl McpUser {
    pub(super) fn start(place: &Place) -> Self {
        Self::of(place.allstop().args("mcp serve"))
    }

    pub(super) fn of(command: Allstop<'_>) -> Self {
        Self::with_capabilities(command, &json!({}))
    }

    pub(super) fn with_capabilities(command: Allstop<'_>, capabilities: &Value) -> Self {
        let mut user = Self::before_session(command);
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        });
        let id = user.request("initialize", &params);
        let answer = user.answer(id);
        assert_eq!(
            answer["result"]["serverInfo"]["name"], "allstop",
            "{answer}"
        );
        user.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        user
    }

    /// A server that has no message yet.
    pub(super) fn before_session(command: Allstop<'_>) -> Self {
        let mut running = command.stdin(Stdio::piped()).start();
        let stdin = running.take_stdin();
        Self {
            running,
            stdin,
            requests: 0,
        }
    }

    pub(super) fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    pub(super) fn send_line(&mut self, line: &str) {
        self.send_bytes(line.as_bytes());
    }

    /// Sends a line, which may be no text.
    pub(super) fn send_bytes(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("the input is open");
        stdin
            .write_all(&[line, b"\n"].concat())
            .expect("the server reads");
    }

    /// Number of the errors with this code that answer no request.
    pub(super) fn errors_without_id(&self, code: i32) -> usize {
        let found = self.running.find_in_stdout(|text| {
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let messages = whole.lines().map(serde_json::from_str::<Value>);
            let errors = messages.filter_map(Result::ok);
            Some(
                errors
                    .filter(|message| message["id"].is_null() && message["error"]["code"] == code)
                    .count(),
            )
        });
        found.unwrap_or_default()
    }

    /// Sends a request. Returns its id.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request. Returns false if the server has closed its input.
    pub(super) fn try_request(&mut self, method: &str) -> bool {
        self.requests += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.requests, "method": method});
        let stdin = self.stdin.as_mut().expect("the input is open");
        writeln!(stdin, "{request}").is_ok()
    }

    /// Sends a call of a tool. The progress token is the text `p` with the id of the request.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> u64 {
        let token = format!("p{}", self.requests + 1);
        let meta = json!({"progressToken": token});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.request("tools/call", &params)
    }

    /// Waits for the answer to a request.
    #[track_caller]
    pub(super) fn answer(&self, id: u64) -> Value {
        self.message("the answer", |message| {
            message["id"] == id && message["method"].is_null()
        })
    }

    /// Calls a tool, and waits for its result.
    #[track_caller]
    pub(super) fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.call(tool, arguments);
        self.answer(id)["result"].clone()
    }

    /// Calls a tool, and waits for its report. Asserts that the call has not failed.
    #[track_caller]
    pub(super) fn report(&mut self, tool: &str, arguments: &Value) -> Value {
        let result = self.result(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// Waits for the id of the command that a call runs, in a progress notification.
    #[track_caller]
    pub(super) fn command_of(&self, call: u64) -> String {
        let token = format!("p{call}");
        let progress = self.message("the progress", |message| {
            message["params"]["progressToken"] == token.as_str()
        });
        let text = progress["params"]["message"].as_str().expect("a text");
        text.split_whitespace().nth(1).expect("an id").to_owned()
    }

    /// Waits for a message.
    #[track_caller]
    pub(super) fn message(&self, name: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = self.running.find_in_stdout(|text| {
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let messages = whole
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"));
            messages.into_iter().find(&is_it)
        });
        found.unwrap_or_else(|| panic!("{name} never came"))
    }

    /// Closes the input, and waits for the end of the server.
    #[track_caller]
    pub(super) fn close(mut self) -> Ended {
        drop(self.stdin.take());
        self.running.end(FACT_MAX)
    }

    /// Ends the server by a signal, with its input open.
    #[track_caller]
    pub(super) fn end_by(self, signal: crate::support::Signal) -> Ended {
        let Self { running, stdin, .. } = self;
        let ended = running.end_by(signal);
        drop(stdin);
        ended
    }
}
