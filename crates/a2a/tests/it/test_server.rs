//! Server on a free port, in a separate scope.

use std::time::Duration;

use allstop_a2a::{ServerOptions, serve};
use allstop_scope::{RootOptions, Scope};
use axum::Router;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::router;

pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) struct TestServer {
    pub(crate) scope: Scope,
    pub(crate) address: std::net::SocketAddr,
}

impl TestServer {
    pub(crate) async fn start(options: ServerOptions) -> Self {
        Self::of(router().await, options).await
    }

    pub(crate) async fn of(router: Router, options: ServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let scope = Scope::root("server", RootOptions::single_runtime());
        let spec =
            allstop_scope::WorkSpec::new(allstop_core::receipt::ItemKind::Future, "listener");
        let accepting = scope.clone();
        let serving = scope.spawn(spec, move |_| serve(listener, router, accepting, options));
        drop(serving.expect("nothing is stopped"));
        Self { scope, address }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address)
            .await
            .expect("a connection")
    }
}

pub(crate) async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut text)).await;
    // A reset of the connection also counts as its end, so an error is ignored.
    let _reset = read.expect("the server closes the connection");
    String::from_utf8_lossy(&text).into_owned()
}

/// Number of bytes of a page in the tests of clients that do not read.
pub(crate) const PAGE_BYTES: usize = 4 << 20;

/// A router whose every response is a page.
pub(crate) fn pages() -> axum::Router {
    let page = || async { vec![b'x'; PAGE_BYTES] };
    axum::Router::new().fallback(page)
}

/// Peak memory of this process.
pub(crate) fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kb.expect("a size").parse().expect("a number")
}
