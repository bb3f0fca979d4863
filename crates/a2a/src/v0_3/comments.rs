//! Comments of silent streams, in the form that the Python client of version 0.3 can read.

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::TryStreamExt as _;

/// A comment with a blank line.
const COMMENT: &[u8] = b":\n\n";
/// A comment without a blank line.
const BARE_COMMENT: &[u8] = b":\n";

/// Removes the blank lines after comments. The library of the client (`httpx-sse`) treats a blank line after an event
/// with an id as a further event without data, and `tasks/resubscribe` of the client fails for such an event.
pub(crate) fn with_bare_comments(response: Response) -> Response {
    response.map(|body| {
        let chunks = body.into_data_stream().map_ok(|chunk| {
            if chunk == COMMENT {
                Bytes::from_static(BARE_COMMENT)
            } else {
                chunk
            }
        });
        Body::from_stream(chunks)
    })
}

#[cfg(test)]
mod tests {
    use a2a::JsonRpcId;
    use axum::body::to_bytes;
    use futures::StreamExt as _;
    use futures::stream;
    use tokio::time::{Duration, sleep};

    use crate::events::NumberedEvent;
    use crate::streaming::{EventForm, sse};

    /// The stream is silent for three comments, and ends.
    #[tokio::test(start_paused = true)]
    async fn comments_of_a_silent_stream_have_no_blank_lines() {
        let id = || JsonRpcId::Number(1);
        for (form, comment) in [
            (EventForm::JsonRpcV03(id()), ":\n"),
            (EventForm::JsonRpc(id()), ":\n\n"),
        ] {
            let silence = stream::once(sleep(Duration::from_secs(13)));
            let events = silence.filter_map(async |()| None::<NumberedEvent>);
            let body = sse(events.boxed(), form).into_body();
            let text = to_bytes(body, 100).await.unwrap();
            assert_eq!(text, comment.repeat(3));
        }
    }
}
