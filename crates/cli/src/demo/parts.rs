//! Work of the demo in addition to shells: a server that stalls, a tool that reads from it, and a tool that blocks a
//! thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allstop_core::Effect;
use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// An HTTP server that begins each answer, but never completes an answer. The server counts the connections that its
/// clients have closed.
#[derive(Debug)]
pub(super) struct StalledServer {
    port: u16,
    closed: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl StalledServer {
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let closed = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&closed);
        #[expect(
            clippy::disallowed_methods,
            reason = "the other side of the demo is no work of ours: nothing stops it"
        )]
        let task = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let begin = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
                let mut buffer = [0; 1024];
                if connection.write_all(begin).await.is_ok() {
                    // First reads the request. Then no data arrives, and the read waits until the client closes the
                    // connection.
                    while connection.read(&mut buffer).await.is_ok_and(|len| len > 0) {}
                }
                seen.fetch_add(1, Ordering::Release);
            }
        });
        Ok(Self { port, closed, task })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Number of connections that the clients have closed. Waits at most a second for the number to reach `at_least`.
    pub(super) async fn closed(&self, at_least: u64) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            let closed = self.closed.load(Ordering::Acquire);
            if closed >= at_least || Instant::now() > deadline {
                return closed;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for StalledServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn spec(name: &str, description: &str) -> ToolSpec {
    ToolSpec::new(
        name,
        description,
        Arc::new(json!({"type": "object", "properties": {}})),
    )
    .effect(Effect::ReadOnly)
    .parallel(true)
}

/// Tool that reads an HTTP answer that never ends.
#[derive(Debug)]
pub(super) struct ReadStreamTool {
    spec: ToolSpec,
    port: u16,
}

impl ReadStreamTool {
    pub(super) fn new(port: u16) -> Self {
        Self {
            spec: spec("fetch", "Reads an HTTP stream."),
            port,
        }
    }
}

impl Tool for ReadStreamTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                cause = invocation.scope.stopped_at("stream_chunk") => {
                    Err(ToolError::new(format!("stopped: {cause}")))
                }
                read = read_all(self.port) => match read {
                    Ok(content) => Ok(content.into()),
                    Err(error) => Err(ToolError::new(error.to_string())),
                },
            }
        })
    }
}

async fn read_all(port: u16) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    connection
        .write_all(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        .await?;
    let mut content = String::new();
    connection.read_to_string(&mut content).await?;
    Ok(content)
}

/// Tool that blocks a thread. From time to time, the tool checks its scope for a stop.
#[derive(Debug)]
pub(super) struct BlockThreadTool {
    spec: ToolSpec,
    /// True if the tool never checks its scope, so that a stop cannot end it.
    wedged: bool,
}

impl BlockThreadTool {
    pub(super) fn new(wedged: bool) -> Self {
        Self {
            spec: spec("crunch", "Computes for ever on a thread of its own."),
            wedged,
        }
    }
}

impl Tool for BlockThreadTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        let wedged = self.wedged;
        Box::pin(async move {
            let thread = invocation.scope.spawn_blocking(
                WorkSpec::new(ItemKind::Thread, "crunch"),
                move |cx| {
                    let mut sum = 0_u64;
                    while wedged || cx.checkpoint("between rounds").is_ok() {
                        // A round of real work between two checks of the scope.
                        sum = (0..200_000_u64)
                            .fold(sum, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
                    }
                    sum
                },
            );
            let failed = |message: String| ToolError::new(message);
            match thread.map_err(|refused| failed(refused.to_string()))?.await {
                Ok(sum) => Ok(sum.to_string().into()),
                Err(lost) => Err(failed(lost.to_string())),
            }
        })
    }
}
