//! Client that keeps its connections open. The client costs little, so the benchmark measures the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Connections to one server.
pub(crate) struct Client {
    connections: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    /// Number of the connection, used in message ids.
    number: usize,
    messages_sent: usize,
    received: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, connections: usize) -> Self {
        let open = (0..connections).map(|number| async move {
            let stream = TcpStream::connect(address).await.expect("a server");
            stream.set_nodelay(true).expect("a TCP socket");
            Connection {
                stream,
                number,
                messages_sent: 0,
                received: Vec::with_capacity(4_096),
            }
        });
        Self {
            connections: join_all(open).await,
        }
    }

    /// Sends messages over each connection, one after another, and waits for the completed tasks.
    pub(crate) async fn send(&mut self, messages_per_connection: usize) -> Duration {
        let began = Instant::now();
        join_all(self.connections.iter_mut().map(|connection| async move {
            for _ in 0..messages_per_connection {
                connection.send_message().await;
            }
        }))
        .await;
        began.elapsed()
    }
}

impl Connection {
    async fn send_message(&mut self) {
        let (connection, message) = (self.number, self.messages_sent);
        self.messages_sent += 1;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{message},"method":"SendMessage","params":{{"message":{{"messageId":"{connection}-{message}","role":"ROLE_USER","parts":[{{"text":"hello"}}]}}}}}}"#
        );
        let request = format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let sent = self.stream.write_all(request.as_bytes()).await;
        sent.expect("an open connection");
        self.received.clear();
        loop {
            let read = self.stream.read_buf(&mut self.received).await;
            assert!(read.expect("an open connection") > 0, "the server closed");
            let text = std::str::from_utf8(&self.received).expect("text");
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            if body.len() >= body_len(head) {
                assert!(head.starts_with("HTTP/1.1 200"), "{text}");
                let has_all = body.contains("TASK_STATE_COMPLETED") && body.contains("artifactId");
                assert!(has_all, "{text}");
                return;
            }
        }
    }
}

fn body_len(head: &str) -> usize {
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then_some(value)
    });
    len.expect("a length").parse().expect("a number")
}
