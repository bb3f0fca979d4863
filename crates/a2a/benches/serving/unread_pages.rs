//! Memory of a server whose clients ask for large pages and do not read them, beside the same server without clients.

use std::sync::Arc;

use allstop_bench::BenchSuite;
use allstop_log::MemoryLog;
use allstop_scope::GRACE_DEFAULT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;

use crate::memory;
use crate::product::{self, ThreeEvents};

const CLIENTS: usize = 300;
/// The tasks of a page have about 6 MB.
const TASKS: usize = 100;
const TASK_BYTES: usize = 60 * 1_024;
/// The server holds at most 64 MiB of unread pages. The rest is for both ends of the connections, and for pages that are
/// being collected.
const GROWTH_MB_MAX: f64 = 160.0;

pub(crate) fn run(suite: &mut BenchSuite, runtime: &Runtime) {
    let name = "MB of growth by 300 clients that ask for 6 MB and do not read";
    if !suite.wants(name) {
        return;
    }
    runtime.block_on(async {
        let scope = product::root(GRACE_DEFAULT);
        let log = Arc::new(MemoryLog::new());
        let manager = product::manager(&scope, log, ThreeEvents).await;
        let text = "x".repeat(TASK_BYTES);
        for id in 0..TASKS {
            let mut task = product::begin(&manager, id, &text).await;
            while let Some(item) = task.subscription.next().await {
                item.expect("the log is in memory");
            }
        }
        let server = product::serve(&scope, manager).await;
        let before = memory::resident_mb();
        let mut clients = Vec::with_capacity(CLIENTS);
        for _ in 0..CLIENTS {
            clients.push(ask_for_a_page(server).await);
        }
        let grown = before.zip(memory::resident_mb());
        if let Some((before, after)) = grown {
            suite.count("MB of the server without clients", before, None);
            suite.count(name, (after - before).max(0.0), Some(GROWTH_MB_MAX));
        }
    });
}

/// A client that reads only the head of its response.
async fn ask_for_a_page(server: std::net::SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stream = socket.connect(server).await.expect("a connection");
    let request = "GET /tasks?pageSize=100&historyLength=10 HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\n\r\n";
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("it is sent");
    let mut status = [0; 12];
    let read = stream.read_exact(&mut status).await;
    read.expect("a response");
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}
