//! Subscriber of a task over a separate connection: reads a stream of server-sent events.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::deliveries::marker;

/// Receive buffer of a subscriber that does not read. The buffer is small, so that the server cannot send much.
const STALLED_BUFFER_BYTES: u32 = 4 * 1_024;

/// Reads the marked events of one task, in order.
pub(crate) struct SseReader {
    stream: TcpStream,
    received: Vec<u8>,
    next_event: usize,
}

impl SseReader {
    /// Subscribes, and returns after the snapshot of the task.
    pub(crate) async fn subscribe(server: SocketAddr, task: &str, next_event: usize) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        Self::over(socket, server, task, next_event).await
    }

    /// Like [`SseReader::subscribe`], but with small buffers.
    pub(crate) async fn subscribe_small(server: SocketAddr, task: &str) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let sized = socket.set_recv_buffer_size(STALLED_BUFFER_BYTES);
        sized.expect("a TCP socket");
        Self::over(socket, server, task, 0).await
    }

    async fn over(socket: TcpSocket, server: SocketAddr, task: &str, next_event: usize) -> Self {
        let mut stream = socket.connect(server).await.expect("a server");
        let request = format!(
            "GET /tasks/{task}:subscribe HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\n\r\n"
        );
        let sent = stream.write_all(request.as_bytes()).await;
        sent.expect("an open connection");
        let mut reader = Self {
            stream,
            received: Vec::with_capacity(4_096),
            next_event,
        };
        reader.read_after("\"task\"").await;
        reader
    }

    /// Reads the next event. All earlier events were already read, so no event can be missing.
    pub(crate) async fn read_event(&mut self) {
        let marker = marker(self.next_event);
        self.read_after(&marker).await;
        self.next_event += 1;
    }

    /// Reads until the connection has delivered this text.
    async fn read_after(&mut self, text: &str) {
        let (text, mut searched) = (text.as_bytes(), 0);
        loop {
            let found = self.received[searched..]
                .windows(text.len())
                .position(|window| window == text);
            if let Some(at) = found {
                self.received.drain(..searched + at + text.len());
                return;
            }
            // The last received bytes may be the beginning of the text.
            searched = self.received.len().saturating_sub(text.len() - 1);
            let read = self.stream.read_buf(&mut self.received).await;
            let received = String::from_utf8_lossy(&self.received);
            assert!(read.expect("an open connection") > 0, "{received}");
        }
    }
}
