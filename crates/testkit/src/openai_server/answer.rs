//! Answer to one request.

use std::time::Duration;

use serde_json::{Value, json};

/// Answer to one request. The builder methods add the parts of the answer in the order in which the server sends them.
#[derive(Debug, Clone)]
#[must_use = "a server gives it"]
pub struct ServerAnswer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// Body that the server sends in one piece with its length, instead of a stream.
    pub(super) body: Option<Vec<u8>>,
    pub(super) stall_before_headers: bool,
    pub(super) delay: Duration,
    pub(super) pieces: Vec<AnswerPiece>,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) finish: &'static str,
    pub(super) calls: usize,
}

#[derive(Debug, Clone)]
pub(super) enum AnswerPiece {
    /// One event of the stream.
    Event(String),
    /// Bytes of the body as they are.
    Raw(Vec<u8>),
    /// These bytes of the body, repeated as fast as the client reads them.
    Forever(Vec<u8>),
    Wait(Duration),
    /// Waits until the client closes the connection.
    Stall,
    /// Closes the connection here.
    Cut,
    /// Ends the body here, without the end marker.
    End,
}

impl ServerAnswer {
    /// An empty answer: a stream that contains only an end.
    pub fn stream() -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            body: None,
            stall_before_headers: false,
            delay: Duration::ZERO,
            pieces: Vec::new(),
            usage: Some((10, 5)),
            finish: "stop",
            calls: 0,
        }
    }

    /// An answer with this text, sent word by word, followed by the usage and the end marker.
    pub fn text(text: &str) -> Self {
        text.split_inclusive(' ').fold(Self::stream(), Self::chunk)
    }

    /// An answer with this status and an error object, as providers send it.
    pub fn status(status: u16) -> Self {
        let body = json!({"error": {"message": format!("status {status} as told"), "code": null}});
        Self::page(status, "application/json", body.to_string())
    }

    /// An answer with a web page instead of JSON.
    pub fn html() -> Self {
        Self::page(
            200,
            "text/html",
            "<!doctype html>\n<html><body>Sign in</body></html>\n",
        )
    }

    /// An answer with any body and the length of the body.
    pub fn page(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            body: Some(body.into()),
            ..Self::stream()
        }
    }

    /// Adds this header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds this piece of text.
    pub fn chunk(self, text: &str) -> Self {
        self.delta(&json!({"content": text}))
    }

    /// Adds a tool call, with its arguments in two pieces.
    pub fn tool_call(self, id: &str, tool: &str, arguments: &str) -> Self {
        let middle = arguments.floor_char_boundary(arguments.len() / 2);
        let (first, second) = arguments.split_at(middle);
        self.half_tool_call(id, tool, first).more_arguments(second)
    }

    /// Adds the beginning of a tool call.
    pub fn half_tool_call(mut self, id: &str, tool: &str, arguments: &str) -> Self {
        let index = self.calls;
        self.calls += 1;
        self.finish = "tool_calls";
        self.delta(&json!({"tool_calls": [{
            "index": index, "id": id, "type": "function",
            "function": {"name": tool, "arguments": arguments},
        }]}))
    }

    /// Adds more arguments to the last tool call.
    pub fn more_arguments(self, arguments: &str) -> Self {
        let index = self.calls.saturating_sub(1);
        self.delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
    }

    /// Adds this delta of a choice.
    pub fn delta(self, delta: &Value) -> Self {
        let event = json!({
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}],
        });
        self.event(&event.to_string())
    }

    /// Adds this event.
    pub fn event(self, data: &str) -> Self {
        self.piece(AnswerPiece::Event(data.into()))
    }

    /// Adds these bytes of the body, unchecked.
    pub fn raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.piece(AnswerPiece::Raw(bytes.into()))
    }

    /// Sends these bytes of the body repeatedly until the client closes the connection.
    pub fn forever(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.piece(AnswerPiece::Forever(bytes.into()))
    }

    /// Sets the status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Sets a delay before each piece.
    pub fn every(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Adds a wait.
    pub fn wait(self, duration: Duration) -> Self {
        self.piece(AnswerPiece::Wait(duration))
    }

    /// Hangs at this position until the client closes the connection.
    pub fn stall(self) -> Self {
        self.piece(AnswerPiece::Stall)
    }

    /// Hangs before the first byte of the answer.
    pub fn stall_before_headers(mut self) -> Self {
        self.stall_before_headers = true;
        self
    }

    /// Closes the connection at this position.
    pub fn cut(self) -> Self {
        self.piece(AnswerPiece::Cut)
    }

    /// Ends the body at this position as if it were complete, but without the end marker.
    pub fn end_without_marker(self) -> Self {
        self.piece(AnswerPiece::End)
    }

    /// Sets the reported usage.
    pub fn usage(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Some((input_tokens, output_tokens));
        self
    }

    /// Removes the reported usage.
    pub fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Sets the finish reason (`stop`, `length`, `content_filter`).
    pub fn finish(mut self, reason: &'static str) -> Self {
        self.finish = reason;
        self
    }

    fn piece(mut self, piece: AnswerPiece) -> Self {
        self.pieces.push(piece);
        self
    }

    pub(super) fn closing_events(&self) -> Vec<String> {
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]});
        let mut events = vec![end.to_string()];
        events.extend(self.usage.map(|(input, output)| {
            let total = input + output;
            json!({"choices": [], "usage": {
                "prompt_tokens": input, "completion_tokens": output, "total_tokens": total,
            }})
            .to_string()
        }));
        events.push("[DONE]".into());
        events
    }
}
