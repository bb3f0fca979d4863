//! Messages of a client on a pipe. A message is a line. A line that is no message is answered with an error, unless it
//! may be a notification or an answer.

use futures::StreamExt as _;
use futures::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, Empty, empty};
use tokio_util::bytes::Bytes;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

/// Maximum size of a message, in bytes: the arguments of a command with each byte escaped are a fifth of it.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A mark at the start of a text, which some systems write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

type Message = RxJsonRpcMessage<RoleServer>;

/// Transport on a pair of pipes.
pub(crate) struct LineTransport<R, W: AsyncWrite> {
    lines: FramedRead<R, AnyDelimiterCodec>,
    writer: AsyncRwTransport<RoleServer, Empty, W>,
    /// Answer to a wrong line, until it is sent.
    reply: Option<BoxFuture<'static, std::io::Result<()>>>,
}

/// Answer to a line that is no message.
#[derive(Debug)]
pub(crate) struct WrongLine {
    error: Box<ErrorData>,
    id: Option<RequestId>,
}

impl WrongLine {
    /// The message that answers the line.
    pub(crate) fn into_answer(self) -> TxJsonRpcMessage<RoleServer> {
        TxJsonRpcMessage::<RoleServer>::error(*self.error, self.id)
    }

    fn without_id(error: ErrorData) -> Self {
        Self {
            error: Box::new(error),
            id: None,
        }
    }
}

impl<R, W> LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(input: R, output: W) -> Self {
        let codec =
            AnyDelimiterCodec::new_with_max_length(b"\n".into(), b"\n".into(), MESSAGE_BYTES_MAX);
        Self {
            lines: FramedRead::new(input, codec),
            writer: AsyncRwTransport::new_server(empty(), output),
            reply: None,
        }
    }

    /// The next line, parsed; `None` at the end of the input.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn next_line(&mut self) -> Option<Result<Option<Message>, WrongLine>> {
        match self.lines.next().await? {
            Ok(line) => Some(parse(&line)),
            Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => {
                // The reader ends once after an error, without a wait. Then it continues after the line.
                let _end = self.lines.next().await;
                let reason = format!("the message has more than {MESSAGE_BYTES_MAX} bytes");
                Some(Err(WrongLine::without_id(ErrorData::invalid_request(
                    reason, None,
                ))))
            }
            Err(AnyDelimiterCodecError::Io(error)) => {
                tracing::debug!(%error, "the input could not be read");
                None
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.writer.send(message)
    }

    async fn receive(&mut self) -> Option<Message> {
        loop {
            if let Some(reply) = &mut self.reply {
                let sent = reply.await;
                self.reply = None;
                sent.ok()?;
            }
            match self.next_line().await? {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(wrong) => {
                    self.reply = Some(Box::pin(self.writer.send(wrong.into_answer())));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.close().await
    }
}

/// Parses a line; `None` if it needs no answer.
pub(crate) fn parse(line: &Bytes) -> Result<Option<Message>, WrongLine> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    if line.is_empty() {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        let error = ErrorData::parse_error(format!("the message is no JSON: {error}"), None);
        WrongLine::without_id(error)
    })?;
    let wrong = |reason: &str, id: Option<RequestId>| WrongLine {
        error: Box::new(ErrorData::invalid_request(reason.to_owned(), None)),
        id,
    };
    let Value::Object(object) = &value else {
        return Err(wrong("a message is one JSON object; no batches", None));
    };
    // An answer, or an error without an id, needs no answer: two peers would answer each other without end.
    let is_answer = object.contains_key("result") || object.contains_key("error");
    let is_request = object.contains_key("id") && !is_answer;
    let id = object.get("id").map(RequestId::deserialize);
    let id = match id {
        Some(Err(_)) if is_request => {
            return Err(wrong("the id is no text and no whole number", None));
        }
        id => id.and_then(Result::ok),
    };
    match serde_json::from_slice(line) {
        Ok(message) => Ok(Some(message)),
        Err(_) if is_request || !(is_answer || object.contains_key("method")) => {
            Err(wrong("the message is no JSON-RPC 2.0 request", id))
        }
        Err(error) => {
            tracing::debug!(%error, "an unknown notification or answer");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], code: i32, id: Option<i64>) {
        let wrong = parse(&Bytes::copy_from_slice(line)).expect_err("a wrong line");
        assert_eq!(wrong.error.code.0, code, "{wrong:?}");
        assert_eq!(wrong.id, id.map(RequestId::Number), "{wrong:?}");
    }

    #[test]
    fn wrong_lines_have_an_answer() {
        check(b"garbage", -32700, None);
        check(
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
            -32700,
            None,
        );
        check("[".repeat(1_000).as_bytes(), -32700, None);
        check(b"[]", -32600, None);
        check(
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
            None,
        );
        check(b"{}", -32600, None);
        for id in ["null", "[1]", "1.5"] {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}");
            check(line.as_bytes(), -32600, None);
        }
        check(b"{\"id\":7,\"method\":\"ping\"}", -32600, Some(7));
    }

    #[test]
    fn notifications_and_answers_have_no_answer() {
        for line in [
            "",
            "\r",
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"m\"}}",
            "{\"jsonrpc\":\"2.0\",\"error\":7}",
        ] {
            let parsed = parse(&Bytes::copy_from_slice(line.as_bytes()));
            assert!(
                parsed
                    .is_ok_and(|message| message
                        .is_none_or(|message| matches!(message, Message::Error(_)))),
                "{line}"
            );
        }
    }

    #[test]
    fn marks_before_a_message_are_ignored() {
        let line = b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r";
        let parsed = parse(&Bytes::copy_from_slice(line)).expect("a message");
        assert!(matches!(parsed, Some(Message::Request(_))), "{parsed:?}");
    }
}
