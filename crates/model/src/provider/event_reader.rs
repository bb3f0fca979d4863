//! Reader of the server-sent events in a response, with limited memory
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>).
//!
//! The reader holds only one event at a time, and yields to the runtime after each chunk. So an endless event needs
//! only limited memory, and does not block a thread.

use std::collections::VecDeque;

use bytes::Bytes;
use memchr::memchr2;

/// Maximum number of bytes that are read from the body of an error. The usual body is much shorter.
pub(super) const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Reason why no more events can be read.
#[derive(Debug)]
pub(super) enum EventReadError {
    Transport(reqwest::Error),
    /// An event is longer than the limit.
    TooLong,
    /// An event is not valid UTF-8.
    NotText,
}

/// Reads the data of a response's events, in order.
pub(super) struct EventReader {
    response: reqwest::Response,
    /// Maximum length of an event.
    event_bytes_max: usize,
    /// The unfinished line.
    line: Vec<u8>,
    /// True if the last chunk ended with CR. If the next chunk then begins with LF, both belong to the same line end.
    after_cr: bool,
    /// Data of the unfinished event: the joined `data:` lines.
    data: Option<Vec<u8>>,
    events: VecDeque<Vec<u8>>,
    content: ResponseContent,
    at_end: bool,
}

/// Kind of the content that the response has had so far.
#[derive(Debug)]
enum ResponseContent {
    Nothing,
    /// The beginning of content that is not an event stream: a web page, or plain JSON.
    Other(Vec<u8>),
    Events,
}

impl EventReader {
    pub(super) fn new(response: reqwest::Response, event_bytes_max: usize) -> Self {
        Self {
            response,
            event_bytes_max,
            line: Vec::new(),
            after_cr: false,
            data: None,
            events: VecDeque::new(),
            content: ResponseContent::Nothing,
            at_end: false,
        }
    }

    /// The beginning of the content, if the response has content but no events.
    pub(super) fn other_content(&self) -> Option<String> {
        match &self.content {
            ResponseContent::Other(beginning) => {
                Some(String::from_utf8_lossy(beginning).into_owned())
            }
            ResponseContent::Nothing | ResponseContent::Events => None,
        }
    }

    /// Returns the data of the next event; `None` at the end of the response.
    ///
    /// # Cancel safety
    /// If the future is dropped, no data is lost, because the reader keeps all bytes that it has read.
    pub(super) async fn next(&mut self) -> Result<Option<String>, EventReadError> {
        loop {
            if let Some(data) = self.events.pop_front() {
                return match String::from_utf8(data) {
                    Ok(data) => Ok(Some(data)),
                    Err(_) => Err(EventReadError::NotText),
                };
            }
            if self.at_end {
                return Ok(None);
            }
            match self
                .response
                .chunk()
                .await
                .map_err(EventReadError::Transport)?
            {
                Some(chunk) => self.take(&chunk)?,
                None => self.end(),
            }
            if self.events.is_empty() {
                // Without this yield, a server could keep the task busy for ever, if it sends meaningless data faster
                // than the task reads the data.
                tokio::task::yield_now().await;
            }
        }
    }

    fn take(&mut self, chunk: &Bytes) -> Result<(), EventReadError> {
        if let ResponseContent::Nothing = self.content {
            self.content = ResponseContent::Other(Vec::new());
        }
        if let ResponseContent::Other(beginning) = &mut self.content {
            let room = ERROR_BODY_BYTES_MAX - beginning.len();
            beginning.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        let mut rest = &chunk[..];
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (line, end) = rest.split_at(at);
            if self.line.is_empty() {
                self.take_line(line);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take_line(&whole);
            }
            self.check_length()?;
            rest = match end {
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
                [] => &[],
            };
        }
        self.line.extend_from_slice(rest);
        self.check_length()
    }

    fn check_length(&self) -> Result<(), EventReadError> {
        let held = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if held > self.event_bytes_max {
            return Err(EventReadError::TooLong);
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) {
        if line.is_empty() {
            self.events.extend(self.data.take());
            return;
        }
        // Names of events, ids and retry times are not needed here.
        let Some(value) = line.strip_prefix(b"data:") else {
            return;
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        self.content = ResponseContent::Events;
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }

    /// Takes the last event even if no empty line follows it. Some servers omit this empty line.
    fn end(&mut self) {
        self.at_end = true;
        let last = std::mem::take(&mut self.line);
        if !last.is_empty() {
            self.take_line(&last);
        }
        self.events.extend(self.data.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the events of a body in chunks of this size, and returns their data.
    async fn events(body: &str, chunk_bytes: usize) -> Vec<String> {
        let chunks: Vec<Result<Bytes, std::io::Error>> = body
            .as_bytes()
            .chunks(chunk_bytes)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        let body = reqwest::Body::wrap_stream(futures::stream::iter(chunks));
        let mut reader = EventReader::new(http::Response::new(body).into(), 1_000);
        let mut events = Vec::new();
        while let Some(event) = reader.next().await.unwrap() {
            events.push(event);
        }
        events
    }

    #[tokio::test]
    async fn events_do_not_depend_on_chunk_boundaries() {
        let body = ": comment\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: lines\n\n\rdata: é\r\rdata: last";
        for chunk_bytes in 1..body.len() {
            let events = events(body, chunk_bytes).await;
            assert_eq!(events, ["one", "two\nlines", "é", "last"], "{chunk_bytes}");
        }
    }
}
