//! Bodies of HTTP/1 requests that are answered before they are read, for example because the request has no credentials.
//!
//! The next request of a connection comes after the whole body. If a body was not read, the library closes the connection
//! without a word, and a client that reuses the connection loses its next request. So the server reads a short rest of the
//! body, and announces the close if it does not (RFC 9112, section 9.6).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, Version};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

/// Maximum size of the rest that is read.
const REST_BYTES_MAX: usize = 64 * 1024;

/// Maximum time for the rest: it usually follows the head of the request immediately.
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// Answers a request. Over HTTP/1, the connection can take the next request after that, or the response announces its
/// end.
pub(crate) async fn answer_whole_request(request: Request, next: Next) -> Response {
    if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    // This client sends the body only after the server has asked for it.
    let waits = request.headers().contains_key(EXPECT);
    let (unread, mut rest) = oneshot::channel();
    let request = request.map(|body| {
        Body::new(LentBody {
            body,
            unread: Some(unread),
        })
    });
    let mut response = next.run(request).await;
    // A body that is still in use has not come back.
    if let Ok(rest) = rest.try_recv()
        && !rest.is_end_stream()
        && (waits || !ends_soon(rest).await)
    {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

async fn ends_soon(rest: Body) -> bool {
    let read = tokio::time::timeout(REST_TIME_MAX, to_bytes(rest, REST_BYTES_MAX)).await;
    matches!(read, Ok(Ok(_)))
}

/// Body that is sent back when it is dropped.
struct LentBody {
    body: Body,
    unread: Option<oneshot::Sender<Body>>,
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take() {
            // The response may have been dropped meanwhile.
            drop(unread.send(std::mem::take(&mut self.body)));
        }
    }
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
