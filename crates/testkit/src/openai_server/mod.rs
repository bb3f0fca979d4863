//! A server that behaves like an OpenAI-compatible server, and misbehaves on request.
//!
//! The server runs on a separate thread, so synchronous tests, asynchronous tests and child processes can use it. The
//! server keeps every request, and records when each connection is closed.
//!
//! ```
//! use allstop_testkit::openai_server::{ServerAnswer, OpenAiServer};
//!
//! let server = OpenAiServer::start([
//!     ServerAnswer::text("Let me look.").tool_call("call_1", "shell", r#"{"command":"ls"}"#),
//!     ServerAnswer::text("Three files."),
//!     ServerAnswer::status(429).header("retry-after", "2"),
//! ]);
//! let base_url = server.url();
//! # let _ = base_url;
//! ```

mod answer;
mod wire;

pub use answer::ServerAnswer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use wire::accept;

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Received {
    /// Number of the connection on which the request arrived, from 0.
    pub connection: usize,
    /// Request line without the version: `POST /v1/chat/completions`.
    pub line: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; `Null` if it is not JSON.
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

    /// The messages of the request.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Requests and connections that the server has seen so far.
#[derive(Debug, Clone, Default)]
pub struct ServerView {
    /// Every request, in order of arrival.
    pub requests: Vec<Received>,
    /// Every connection in order of arrival: the time at which the client closed the connection, or `None` while the
    /// connection is open.
    pub connections: Vec<Option<Instant>>,
    /// Number of written pieces of answers, for all requests together.
    pub pieces_sent: usize,
}

impl ServerView {
    /// Number of connections that the client holds open.
    pub fn open(&self) -> usize {
        self.connections
            .iter()
            .filter(|closed| closed.is_none())
            .count()
    }
}

type Decide = dyn Fn(usize, &Received) -> ServerAnswer + Send + Sync;

/// The server. Dropping this value closes everything.
#[must_use = "dropping the server ends it"]
pub struct OpenAiServer {
    address: SocketAddr,
    seen: watch::Receiver<ServerView>,
    runtime: Option<Runtime>,
}

impl OpenAiServer {
    /// Starts a server with these answers, in the order of the requests. The server repeats the last answer for each
    /// further request.
    ///
    /// # Panics
    /// Panics if the list is empty, or if no port is free.
    pub fn start(answers: impl IntoIterator<Item = ServerAnswer>) -> Self {
        let answers: Vec<_> = answers.into_iter().collect();
        let last = answers
            .len()
            .checked_sub(1)
            .expect("a server needs an answer");
        Self::deciding(move |number, _| answers[number.min(last)].clone())
    }

    /// Starts a server whose closure chooses each answer. The arguments are the request and its number, from 0.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub fn deciding(
        decide: impl Fn(usize, &Received) -> ServerAnswer + Send + Sync + 'static,
    ) -> Self {
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
        let (seen_tx, seen) = watch::channel(ServerView::default());
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

    /// Address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests and connections that the server has seen so far.
    pub fn seen(&self) -> ServerView {
        self.seen.borrow().clone()
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.seen.borrow().requests.clone()
    }

    /// Waits until the view of the server meets the condition, and returns that view.
    ///
    /// # Errors
    /// Returns the view at the time limit if the condition is not met in time.
    ///
    /// # Cancel safety
    /// Cancel safe: the function only reads.
    pub async fn wait_until(
        &self,
        limit: Duration,
        condition: impl FnMut(&ServerView) -> bool,
    ) -> Result<ServerView, ServerView> {
        let mut seen = self.seen.clone();
        match tokio::time::timeout(limit, seen.wait_for(condition)).await {
            Ok(Ok(reached)) => Ok(reached.clone()),
            _ => Err(self.seen()),
        }
    }

    /// Like [`OpenAiServer::wait_until`], but for a test without a runtime.
    ///
    /// # Errors
    /// Returns the view at the time limit if the condition is not met in time.
    ///
    /// # Panics
    /// Panics inside a runtime.
    pub fn wait_until_blocking(
        &self,
        limit: Duration,
        condition: impl FnMut(&ServerView) -> bool,
    ) -> Result<ServerView, ServerView> {
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
            // A test may drop the server inside another runtime, and that runtime must not wait for this one.
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
