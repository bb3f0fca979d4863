//! Requests in progress on a connection, from the head of a request to the end of its response, and the parts of their
//! responses that the client has not taken.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_host::{Place, UnsentBytes};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;

/// Size of the end that is split off a frame, in bytes: all streams of a connection together have at most 100 KiB of them.
const TAIL_BYTES: usize = 1024;

/// Requests of one connection, and its place in the server.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionActivity {
    count: watch::Sender<usize>,
    place: Place,
}

impl ConnectionActivity {
    pub(crate) fn new(place: Place) -> Self {
        let count = watch::Sender::new(0);
        Self { count, place }
    }

    fn begin(&self) -> CountedRequest {
        self.count.send_modify(|count| {
            *count += 1;
            self.place.set_busy(true);
        });
        CountedRequest(self.clone())
    }

    /// Completes after this time if no request arrives within the time. Otherwise never completes.
    pub(crate) fn no_request_within(&self, max: Duration) -> impl Future<Output = ()> + use<> {
        // Subscribes here and not at the first poll, because a request could begin and end before that poll.
        let mut count = self.count.subscribe();
        async move {
            if tokio::time::timeout(max, count.changed()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Completes when the connection has had no request in progress for this time.
    pub(crate) async fn idle_for(&self, max: Duration) {
        let mut count = self.count.subscribe();
        loop {
            // `wait_for` fails only if all senders are dropped, and `self` holds a sender.
            drop(count.wait_for(|count| *count == 0).await);
            if tokio::time::timeout(max, count.changed()).await.is_err() {
                return;
            }
        }
    }
}

/// Request that is counted until this value is dropped.
struct CountedRequest(ConnectionActivity);

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| {
            *count -= 1;
            self.0.place.set_busy(*count > 0);
        });
    }
}

/// Marks that a request was admitted, so its connection keeps its place when other connections have had no such request.
pub(crate) fn prove_connection(request: &Request) {
    // A request that a test sends to a router has no connection.
    if let Some(place) = request.extensions().get::<Place>() {
        place.prove();
    }
}

/// Counts a request until its response is sent or abandoned. If the client does not take the other responses of its
/// connection, refuses the response.
pub(crate) async fn count_request(
    State(activity): State<ConnectionActivity>,
    mut request: Request,
    next: Next,
) -> Response {
    let counted = activity.begin();
    request.extensions_mut().insert(activity.place.clone());
    let response = next.run(request).await;
    let (head, mut body) = response.into_parts();
    // HTTP/2 takes the first frame only after the client has taken other frames. It counts as unsent before that.
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
    let Ok(unsent) = activity.place.hold(data_len(&first)) else {
        let message = "take the other responses of this connection first";
        let refusal = (
            StatusCode::SERVICE_UNAVAILABLE,
            [(RETRY_AFTER, "1")],
            message,
        );
        return refusal.into_response();
    };
    let body = CountedBody {
        first,
        body,
        unsent: Some(unsent),
        tail: None,
        counted,
    };
    Response::from_parts(head, Body::new(body))
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

fn data_len(polled: &PolledFrame) -> usize {
    match polled {
        Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
        _ => 0,
    }
}

/// Body of a response. The request counts as in progress until the body is dropped.
struct CountedBody {
    /// Result of the first poll, until it is taken.
    first: PolledFrame,
    body: Body,
    /// The last frame, until the connection asks for the next one.
    unsent: Option<UnsentBytes>,
    /// End of the last frame, which is sent separately.
    tail: Option<Bytes>,
    counted: CountedRequest,
}

impl CountedBody {
    /// Splits the end off a frame. Over HTTP/2 the library takes a whole frame into its buffer and asks for the next one
    /// at once, but it waits for the client before it takes that one. So the frame is counted until only its end is
    /// unsent.
    fn split(&mut self, polled: PolledFrame) -> PolledFrame {
        let Poll::Ready(Some(Ok(frame))) = polled else {
            return polled;
        };
        let mut data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        if data.len() > TAIL_BYTES {
            // A copy, because the end would otherwise keep the memory of the whole frame.
            let tail = data.split_off(data.len() - TAIL_BYTES);
            self.tail = Some(Bytes::copy_from_slice(&tail));
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        if self.first.is_ready() {
            let first = std::mem::replace(&mut self.first, Poll::Pending);
            return self.split(first);
        }
        if let Some(tail) = self.tail.take() {
            return Poll::Ready(Some(Ok(Frame::data(tail))));
        }
        self.unsent = None;
        if self.body.is_end_stream() {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() {
            let Ok(unsent) = self.counted.0.place.hold(data_len(&polled)) else {
                let error = axum::Error::new("the client does not take its responses");
                return Poll::Ready(Some(Err(error)));
            };
            self.unsent = Some(unsent);
        }
        self.split(polled)
    }

    /// False as long as a frame is unsent. The library drops the body after the last frame, before the client has taken
    /// the frame. True for an empty body: the head of an error over gRPC must be the end of its stream.
    fn is_end_stream(&self) -> bool {
        match &self.first {
            Poll::Ready(frame) => frame.is_none(),
            Poll::Pending => {
                self.tail.is_none() && self.unsent.is_none() && self.body.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let tail = self.tail.as_ref().map_or(0, Bytes::len);
        let first = (data_len(&self.first) + tail) as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + first);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + first);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use axum::middleware::from_fn_with_state;
    use tower::ServiceExt as _;

    use super::*;

    const MAX: Duration = Duration::from_mins(1);

    async fn activity() -> ConnectionActivity {
        let places = allstop_host::Places::new(crate::server::PLACE_LIMITS);
        ConnectionActivity::new(places.take().await.place().clone())
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_begins_after_the_last_request() {
        let activity = activity().await;
        let start = tokio::time::Instant::now();
        let first = activity.begin();
        let idle = activity.idle_for(MAX);
        let requests = async {
            tokio::time::sleep(10 * MAX).await; // a long request
            drop(first);
            tokio::time::sleep(MAX / 2).await;
            drop(activity.begin()); // a short request
            start.elapsed()
        };
        let ((), last) = tokio::join!(idle, requests);
        assert_eq!(start.elapsed(), last + MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn first_request_has_a_time_limit() {
        let silent = activity().await;
        silent.no_request_within(MAX).await;
        let busy = activity().await;
        let waiting = tokio::time::timeout(10 * MAX, busy.no_request_within(MAX));
        let (ended, ()) = tokio::join!(waiting, async { drop(busy.begin()) });
        assert!(ended.is_err(), "it had a request");
    }

    /// The last frame of a body counts as unsent until the connection asks for the next one, also if the frame is small.
    #[tokio::test]
    async fn small_body_is_counted_until_it_is_taken() {
        let count = from_fn_with_state(activity().await, count_request);
        let routes = axum::Router::new()
            .fallback(|| async { "hello" })
            .layer(count);
        let response = routes.oneshot(Request::new(Body::empty())).await;
        let mut body = response.expect("infallible").into_body();
        let mut next = async || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(next().await.is_some());
        assert!(!body.is_end_stream());
        let end = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(end.is_none() && body.is_end_stream());
    }

    /// An error over gRPC is a head without a body. Its clients need the end of the stream in the head.
    #[tokio::test]
    async fn empty_body_ends_with_its_head() {
        let count = from_fn_with_state(activity().await, count_request);
        let routes = axum::Router::new().fallback(|| async {}).layer(count);
        let response = routes
            .oneshot(Request::new(Body::empty()))
            .await
            .expect("infallible");
        assert!(response.body().is_end_stream());
    }
}
