//! The HTTP protocol, written by hand, because the server must be able to misbehave at every byte.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::answer::{AnswerPiece, ServerAnswer};
use super::{Decide, Received, ServerView};

/// Maximum length of a request's head. Real clients send much shorter heads, so a longer head is garbage and ends the
/// connection.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Length of the chunk that an endless body repeats. The chunk is large enough that the client is always slower than
/// the server.
const FOREVER_CHUNK_BYTES: usize = 64 * 1024;

pub(super) async fn accept(
    listener: std::net::TcpListener,
    seen: Arc<watch::Sender<ServerView>>,
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
            // An error means that the client has closed the connection. The next lines record that.
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
    seen: &watch::Sender<ServerView>,
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
            sent = send(&answer, &mut write, seen) => if sent? == SentAnswer::Cut {
                return Ok(());
            },
            // A client sends nothing before the answer is complete. So if a read returns, the client has closed the
            // connection.
            closed = gone(&mut read) => return closed,
        }
    }
    Ok(())
}

#[derive(PartialEq)]
enum SentAnswer {
    Whole,
    Cut,
}

async fn send(
    answer: &ServerAnswer,
    write: &mut OwnedWriteHalf,
    seen: &watch::Sender<ServerView>,
) -> std::io::Result<SentAnswer> {
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
        return Ok(SentAnswer::Whole);
    }
    for piece in &answer.pieces {
        let bytes = match piece {
            AnswerPiece::Event(data) => event_bytes(data),
            AnswerPiece::Raw(bytes) => bytes.clone(),
            AnswerPiece::Forever(bytes) => {
                let chunk = chunk_bytes(&bytes.repeat(FOREVER_CHUNK_BYTES.div_ceil(bytes.len())));
                loop {
                    write.write_all(&chunk).await?;
                }
            }
            AnswerPiece::Wait(duration) => {
                tokio::time::sleep(*duration).await;
                continue;
            }
            AnswerPiece::Stall => std::future::pending().await,
            AnswerPiece::Cut => return Ok(SentAnswer::Cut),
            AnswerPiece::End => {
                write.write_all(b"0\r\n\r\n").await?;
                return Ok(SentAnswer::Whole);
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
    Ok(SentAnswer::Whole)
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

/// Reads one request; `None` if the client closed the connection instead.
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
