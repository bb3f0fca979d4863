//! A server that speaks as an OpenAI-compatible one does, and misbehaves as told.
//!
//! It runs on a thread of its own, so it serves synchronous tests, asynchronous ones and child processes alike. It
//! keeps every request that it receives, and sees when each connection is closed.
//!
//! ```
//! use allstop_testkit::openai_server::{Answer, OpenAiServer};
//!
//! let server = OpenAiServer::start([
//!     Answer::text("Let me look.").tool_call("call_1", "shell", r#"{"command":"ls"}"#),
//!     Answer::text("Three files."),
//!     Answer::status(429).header("retry-after", "2"),
//! ]);
//! let base_url = server.url();
//! # let _ = base_url;
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The longest head of a request: far beyond what clients send, so that garbage ends.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Received {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// `POST /v1/chat/completions`.
    pub line: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body; `Null` where it is not JSON.
    pub body: Value,
}

impl Received {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The messages that the model was sent.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// What the server has seen so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Every request, in order of arrival.
    pub requests: Vec<Received>,
    /// Every connection, in order of arrival: when the client closed it, or `None` while it has not.
    pub connections: Vec<Option<Instant>>,
    /// Pieces of answers that were written, over all requests.
    pub pieces_sent: usize,
}

impl Seen {
    /// Connections that the client holds open.
    pub fn open(&self) -> usize {
        self.connections
            .iter()
            .filter(|closed| closed.is_none())
            .count()
    }
}

/// How one request is answered. Built left to right, in the order in which it is sent.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    /// Sent as one body with its length, instead of a stream.
    body: Option<Vec<u8>>,
    stall_before_headers: bool,
    delay: Duration,
    pieces: Vec<Piece>,
    usage: Option<(u64, u64)>,
    finish: &'static str,
    calls: usize,
}

#[derive(Debug, Clone)]
enum Piece {
    /// One event of the stream.
    Event(String),
    /// Bytes of the body as they are.
    Raw(Vec<u8>),
    Wait(Duration),
    /// Until the client closes.
    Stall,
    /// The connection is closed here.
    Cut,
    /// The body ends here, without the end marker.
    End,
}

impl Answer {
    /// An answer that is nothing yet: a stream that only ends.
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

    /// This text, word by word, with the usage and the end marker.
    pub fn text(text: &str) -> Self {
        text.split_inclusive(' ').fold(Self::stream(), Self::chunk)
    }

    /// A status with an error object, as providers send it.
    pub fn status(status: u16) -> Self {
        let body = json!({"error": {"message": format!("status {status} as told"), "code": null}});
        Self::page(status, "application/json", body.to_string())
    }

    /// A web page where JSON belongs.
    pub fn html() -> Self {
        Self::page(
            200,
            "text/html",
            "<!doctype html>\n<html><body>Sign in</body></html>\n",
        )
    }

    /// Any body, with its length.
    pub fn page(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            body: Some(body.into()),
            ..Self::stream()
        }
    }

    /// The same with this header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same, followed by this piece of text.
    #[must_use]
    pub fn chunk(self, text: &str) -> Self {
        self.delta(&json!({"content": text}))
    }

    /// The same, followed by a tool call, its arguments in two pieces.
    #[must_use]
    pub fn tool_call(self, id: &str, tool: &str, arguments: &str) -> Self {
        let middle = arguments.floor_char_boundary(arguments.len() / 2);
        let (first, second) = arguments.split_at(middle);
        self.half_tool_call(id, tool, first).more_arguments(second)
    }

    /// The same, followed by the beginning of a tool call.
    #[must_use]
    pub fn half_tool_call(mut self, id: &str, tool: &str, arguments: &str) -> Self {
        let index = self.calls;
        self.calls += 1;
        self.finish = "tool_calls";
        self.delta(&json!({"tool_calls": [{
            "index": index, "id": id, "type": "function",
            "function": {"name": tool, "arguments": arguments},
        }]}))
    }

    /// The same, with more arguments of the newest tool call.
    #[must_use]
    pub fn more_arguments(self, arguments: &str) -> Self {
        let index = self.calls.saturating_sub(1);
        self.delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
    }

    /// The same, followed by this delta of a choice.
    #[must_use]
    pub fn delta(self, delta: &Value) -> Self {
        let event = json!({
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}],
        });
        self.event(&event.to_string())
    }

    /// The same, followed by this event.
    #[must_use]
    pub fn event(mut self, data: &str) -> Self {
        self.pieces.push(Piece::Event(data.into()));
        self
    }

    /// The same, followed by these bytes of the body, whatever they are.
    #[must_use]
    pub fn raw(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.pieces.push(Piece::Raw(bytes.into()));
        self
    }

    /// The same, with this wait before each piece.
    #[must_use]
    pub fn every(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The same, with a wait here.
    #[must_use]
    pub fn wait(mut self, duration: Duration) -> Self {
        self.pieces.push(Piece::Wait(duration));
        self
    }

    /// The same, hanging here until the client goes away.
    #[must_use]
    pub fn stall(mut self) -> Self {
        self.pieces.push(Piece::Stall);
        self
    }

    /// The same, hanging before the first byte of the answer.
    #[must_use]
    pub fn stall_before_headers(mut self) -> Self {
        self.stall_before_headers = true;
        self
    }

    /// The same, with the connection closed here.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.pieces.push(Piece::Cut);
        self
    }

    /// The same, with the body ending here as if it were complete, but without the end marker.
    #[must_use]
    pub fn end_without_marker(mut self) -> Self {
        self.pieces.push(Piece::End);
        self
    }

    /// The same, saying that it cost this.
    #[must_use]
    pub fn usage(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Some((input_tokens, output_tokens));
        self
    }

    /// The same, without a word on what it cost.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// The same, ending for this reason (`stop`, `length`, `content_filter`).
    #[must_use]
    pub fn finish(mut self, reason: &'static str) -> Self {
        self.finish = reason;
        self
    }

    fn closing_events(&self) -> Vec<String> {
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

type Decide = dyn Fn(usize, &Received) -> Answer + Send + Sync;

/// The server. Dropping it closes everything.
#[must_use = "dropping the server ends it"]
pub struct OpenAiServer {
    address: SocketAddr,
    seen: watch::Receiver<Seen>,
    runtime: Option<Runtime>,
}

impl OpenAiServer {
    /// Gives these answers in the order of the requests; the last one again for each further request.
    ///
    /// # Panics
    /// If there is no answer, or no port.
    pub fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: Vec<_> = answers.into_iter().collect();
        let last = answers
            .len()
            .checked_sub(1)
            .expect("a server needs an answer");
        Self::deciding(move |number, _| answers[number.min(last)].clone())
    }

    /// Decides each answer from the request and its number, from 0.
    ///
    /// # Panics
    /// If there is no port.
    pub fn deciding(decide: impl Fn(usize, &Received) -> Answer + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("openai-server")
            .enable_all()
            .build()
            .expect("a runtime of one thread");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener
            .set_nonblocking(true)
            .expect("a listener can be non-blocking");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let (seen_tx, seen) = watch::channel(Seen::default());
        runtime.spawn(accept(listener, Arc::new(seen_tx), Arc::new(decide)));
        Self {
            address,
            seen,
            runtime: Some(runtime),
        }
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has seen so far.
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.seen.borrow().requests.clone()
    }

    /// Waits until what it has seen fulfils the condition; the state then, or where the limit passed the state so far.
    ///
    /// # Errors
    /// The state at the limit.
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn wait_until(
        &self,
        limit: Duration,
        condition: impl FnMut(&Seen) -> bool,
    ) -> Result<Seen, Seen> {
        let mut seen = self.seen.clone();
        match tokio::time::timeout(limit, seen.wait_for(condition)).await {
            Ok(Ok(reached)) => Ok(reached.clone()),
            _ => Err(self.seen()),
        }
    }

    /// The same for a test without a runtime.
    ///
    /// # Errors
    /// The state at the limit.
    ///
    /// # Panics
    /// Inside a runtime.
    pub fn wait_until_blocking(
        &self,
        limit: Duration,
        condition: impl FnMut(&Seen) -> bool,
    ) -> Result<Seen, Seen> {
        let runtime = self
            .runtime
            .as_ref()
            .expect("the runtime lives as long as the server");
        runtime.block_on(self.wait_until(limit, condition))
    }
}

impl Drop for OpenAiServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A server may be dropped inside another runtime, which must not wait for this one.
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for OpenAiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

async fn accept(
    listener: std::net::TcpListener,
    seen: Arc<watch::Sender<Seen>>,
    decide: Arc<Decide>,
) {
    let listener = TcpListener::from_std(listener).expect("a non-blocking listener");
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let mut number = 0;
        seen.send_modify(|seen| {
            number = seen.connections.len();
            seen.connections.push(None);
        });
        let (seen, decide) = (Arc::clone(&seen), Arc::clone(&decide));
        connections.spawn(async move {
            // An error here is the client going away, which is what is noted.
            drop(serve(socket, number, &seen, &*decide).await);
            seen.send_modify(|seen| seen.connections[number] = Some(Instant::now()));
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection until either side closes it.
async fn serve(
    socket: TcpStream,
    number: usize,
    seen: &watch::Sender<Seen>,
    decide: &Decide,
) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let (read, mut write) = socket.into_split();
    let mut read = BufReader::new(read);
    while let Some(request) = read_request(&mut read, number).await? {
        let mut answer = None;
        seen.send_modify(|seen| {
            answer = Some(decide(seen.requests.len(), &request));
            seen.requests.push(request.clone());
        });
        let answer = answer.expect("the closure has run");
        tokio::select! {
            sent = send(&answer, &mut write, seen) => if sent? == Sent::Cut {
                return Ok(());
            },
            // Nothing may come before the answer is complete, so this is the client closing.
            closed = gone(&mut read) => return closed,
        }
    }
    Ok(())
}

#[derive(PartialEq)]
enum Sent {
    Whole,
    Cut,
}

async fn send(
    answer: &Answer,
    write: &mut OwnedWriteHalf,
    seen: &watch::Sender<Seen>,
) -> std::io::Result<Sent> {
    if answer.stall_before_headers {
        std::future::pending::<()>().await;
    }
    let mut head = vec![format!("HTTP/1.1 {} As Told", answer.status)];
    head.extend(
        answer
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    head.push(match &answer.body {
        Some(body) => format!("content-length: {}", body.len()),
        None => "transfer-encoding: chunked".into(),
    });
    write
        .write_all((head.join("\r\n") + "\r\n\r\n").as_bytes())
        .await?;
    if let Some(body) = &answer.body {
        write.write_all(body).await?;
        return Ok(Sent::Whole);
    }
    for piece in &answer.pieces {
        let bytes = match piece {
            Piece::Event(data) => event_bytes(data),
            Piece::Raw(bytes) => bytes.clone(),
            Piece::Wait(duration) => {
                tokio::time::sleep(*duration).await;
                continue;
            }
            Piece::Stall => std::future::pending().await,
            Piece::Cut => return Ok(Sent::Cut),
            Piece::End => {
                write.write_all(b"0\r\n\r\n").await?;
                return Ok(Sent::Whole);
            }
        };
        if !answer.delay.is_zero() {
            tokio::time::sleep(answer.delay).await;
        }
        write.write_all(&chunk_bytes(&bytes)).await?;
        seen.send_modify(|seen| seen.pieces_sent += 1);
    }
    let mut end = Vec::new();
    for event in answer.closing_events() {
        end.extend(chunk_bytes(&event_bytes(&event)));
    }
    end.extend_from_slice(b"0\r\n\r\n");
    write.write_all(&end).await?;
    Ok(Sent::Whole)
}

fn event_bytes(data: &str) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

fn chunk_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

async fn gone(read: &mut BufReader<OwnedReadHalf>) -> std::io::Result<()> {
    let mut byte = [0];
    read.read(&mut byte).await.map(|_| ())
}

/// Reads one request; `None` where the client closed instead.
async fn read_request(
    read: &mut BufReader<OwnedReadHalf>,
    connection: usize,
) -> std::io::Result<Option<Received>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        match read.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.lines();
    let line = lines
        .next()
        .unwrap_or_default()
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    read.read_exact(&mut body).await?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(Received {
        connection,
        line,
        headers,
        body,
    }))
}
