//! Requests in progress on a connection, from the head of a request to the end of its response.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;

/// Count of the requests of one connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionActivity(watch::Sender<usize>);

impl ConnectionActivity {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    fn begin(&self) -> CountedRequest {
        self.0.send_modify(|count| *count += 1);
        CountedRequest(self.clone())
    }

    /// Completes after this time if no request arrives within the time. Otherwise never completes.
    pub(crate) fn no_request_within(&self, max: Duration) -> impl Future<Output = ()> + use<> {
        // Subscribes here and not at the first poll, because a request could begin and end before that poll.
        let mut count = self.0.subscribe();
        async move {
            if tokio::time::timeout(max, count.changed()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Completes when the connection has had no request in progress for this time.
    pub(crate) async fn idle_for(&self, max: Duration) {
        let mut count = self.0.subscribe();
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
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// Counts a request until its response is sent or abandoned.
pub(crate) async fn count_request(
    State(activity): State<ConnectionActivity>,
    request: Request,
    next: Next,
) -> Response {
    let counted = activity.begin();
    let response = next.run(request).await;
    response.map(|body| {
        Body::new(CountedBody {
            body,
            _counted: counted,
        })
    })
}

/// Body of a response. The request counts as in progress until the body is dropped.
struct CountedBody {
    body: Body,
    _counted: CountedRequest,
}

impl HttpBody for CountedBody {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn idle_time_begins_after_the_last_request() {
        let activity = ConnectionActivity::new();
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
        let silent = ConnectionActivity::new();
        silent.no_request_within(MAX).await;
        let busy = ConnectionActivity::new();
        let waiting = tokio::time::timeout(10 * MAX, busy.no_request_within(MAX));
        let (ended, ()) = tokio::join!(waiting, async { drop(busy.begin()) });
        assert!(ended.is_err(), "it had a request");
    }
}
