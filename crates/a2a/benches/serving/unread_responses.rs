//! Memory of a server whose clients ask for large responses and do not read them, compared with the same server without
//! clients.

use std::net::SocketAddr;
use std::sync::Arc;

use allstop_bench::BenchSuite;
use allstop_core::TaskId;
use allstop_log::MemoryLog;
use allstop_scope::GRACE_DEFAULT;
use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;

use crate::memory;
use crate::product::{self, ThreeEvents};

const PAGE_CLIENTS: usize = 300;
/// The tasks of a page have about 6 MB.
const TASKS: usize = 100;
const TASK_BYTES: usize = 60 * 1_024;

const TASK_CLIENTS: usize = 400;
const LARGE_TASK_BYTES: usize = 6 * 1_024 * 1_024;

/// The server holds at most 64 MiB of unread responses. The rest is for both ends of the connections, and for responses
/// that are being built.
const GROWTH_MB_MAX: f64 = 160.0;
/// The responses that are built at the same time have at most 16 MiB for each user, and need five times as much memory.
const TASK_GROWTH_MB_MAX: f64 = 240.0;

pub(crate) fn run(suite: &mut BenchSuite, runtime: &Runtime) {
    let pages = "MB of growth by 300 clients that ask for 6 MB and do not read";
    if suite.wants(pages) {
        let grown = runtime.block_on(growth_by_pages());
        if let Some((before, after)) = grown {
            suite.count("MB of the server without clients", before, None);
            suite.count(pages, (after - before).max(0.0), Some(GROWTH_MB_MAX));
        }
    }
    let task =
        "MB of peak growth by 400 clients that ask for one task of 6 MB at once and do not read";
    if suite.wants(task) {
        let grown = runtime.block_on(growth_by_a_task());
        if let Some((before, peak)) = grown {
            suite.count(task, (peak - before).max(0.0), Some(TASK_GROWTH_MB_MAX));
        }
    }
}

/// Memory in MB before the requests and after them.
async fn growth_by_pages() -> Option<(f64, f64)> {
    let text = "x".repeat(TASK_BYTES);
    let (server, _) = server_with_tasks(TASKS, &text).await;
    let before = memory::resident_mb();
    let mut clients = Vec::with_capacity(PAGE_CLIENTS);
    for _ in 0..PAGE_CLIENTS {
        let mut client = ask(server, "/tasks?pageSize=100&historyLength=10").await;
        let status = status_of(&mut client).await;
        assert_eq!(status.as_deref(), Some("HTTP/1.1 200"));
        clients.push(client);
    }
    before.zip(memory::resident_mb())
}

/// Memory in MB before the requests, and its peak until all requests are answered or refused.
async fn growth_by_a_task() -> Option<(f64, f64)> {
    let text = "x".repeat(LARGE_TASK_BYTES);
    let (server, ids) = server_with_tasks(1, &text).await;
    drop(text);
    let path = format!("/tasks/{}", ids.first().expect("the task"));
    memory::reset_peak();
    let before = memory::resident_mb();
    let mut clients = Vec::with_capacity(TASK_CLIENTS);
    for _ in 0..TASK_CLIENTS {
        clients.push(ask(server, &path).await);
    }
    // A client that has waited longest loses its connection in favour of others, possibly before it reads the status.
    let answers = join_all(clients.iter_mut().map(status_of)).await;
    assert!(answers.into_iter().flatten().all(|it| it == "HTTP/1.1 200"));
    before.zip(memory::peak_mb())
}

async fn server_with_tasks(count: usize, text: &str) -> (SocketAddr, Vec<TaskId>) {
    let scope = product::root(GRACE_DEFAULT);
    let manager = product::manager(&scope, Arc::new(MemoryLog::new()), ThreeEvents).await;
    let mut ids = Vec::with_capacity(count);
    for id in 0..count {
        let mut task = product::begin(&manager, id, text).await;
        while let Some(item) = task.subscription.next().await {
            item.expect("the log is in memory");
        }
        ids.push(task.task_id);
    }
    let server = product::serve(&scope, manager).await;
    (server, ids)
}

/// Sends a request on a new connection with a small buffer.
async fn ask(server: SocketAddr, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stream = socket.connect(server).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\n\r\n");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("it is sent");
    stream
}

/// Reads only the status of a response; `None` if the server has closed the connection.
async fn status_of(stream: &mut TcpStream) -> Option<String> {
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.ok()?;
    Some(String::from_utf8_lossy(&status).into_owned())
}
