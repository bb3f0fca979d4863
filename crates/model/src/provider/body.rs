//! Body of a request, in small pieces. The HTTP library sends the pieces that it has taken even after the call was
//! dropped, and closes the connection then. With one large piece, it would send the whole request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// Maximum bytes of a piece. The HTTP library takes up to 16 pieces ahead, so at most 128 KiB follow a dropped call. A
/// slow line sends them within the time in which the end of the connection is awaited.
const PIECE_BYTES_MAX: usize = 8 * 1024;

/// The bytes that are not sent yet.
pub(super) struct PiecewiseBody(Bytes);

impl PiecewiseBody {
    pub(super) fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }
}

impl Body for PiecewiseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.0.len().min(PIECE_BYTES_MAX);
        let piece = self.0.split_to(length);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    /// The exact size, so that the request has a `Content-Length`.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}
