//! Bodies of responses that end when the credentials of their request are revoked. An error at the end of a body gets
//! its specified status.

use std::pin::Pin;
use std::task::{Context, Poll};

use a2a_grpc::errors::a2a_error_to_status;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::response::Response;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::body::Frame;
use tonic::Code;

use super::{specify_status, with_condition};
use crate::errors;

/// Ends the body with the status `UNAUTHENTICATED` when the future resolves. A stream may otherwise outlive the access
/// of its client.
pub(super) fn until_revoked(response: Response, revoked: BoxFuture<'static, ()>) -> Response {
    response.map(|body| Body::new(RevocableBody { body, revoked }))
}

struct RevocableBody {
    body: Body,
    revoked: BoxFuture<'static, ()>,
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.body.is_end_stream() {
            return Poll::Ready(None);
        }
        if self.revoked.poll_unpin(cx).is_ready() {
            // The stream is dropped here, and the empty body prevents another poll of the future.
            self.body = Body::empty();
            return Poll::Ready(Some(Ok(Frame::trailers(revoked_trailers()))));
        }
        let mut polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            specify_status(trailers);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

fn revoked_trailers() -> HeaderMap {
    let status = a2a_error_to_status(&errors::revoked());
    let mut trailers = HeaderMap::new();
    if with_condition(&status, Code::Unauthenticated, errors::REVOKED_WORD)
        .add_header(&mut trailers)
        .is_err()
    {
        tracing::debug!("a status cannot be sent as trailers");
    }
    trailers
}
