//! The first request of a connection over HTTP.

use http::StatusCode;
use reqwest::RequestBuilder;
use rmcp::model::{JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::StreamableHttpPostResponse;
use tokio::time::timeout;

use super::discovery;
use super::http_client::{HttpClient, HttpResult};
use super::limits::DISCOVERY_WAIT;

impl HttpClient {
    /// Sends the first request of a connection. An answer that shows an earlier server is replaced by an error.
    pub(super) async fn discover(
        &self,
        post: RequestBuilder,
        id: &RequestId,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let not_known = |why| {
            let message = discovery::no_discovery(id.clone(), why);
            Ok(StreamableHttpPostResponse::Json(message, None))
        };
        let answered = timeout(DISCOVERY_WAIT, async {
            let response = self.send(post).await?;
            let status = response.status();
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return self.answer(response, true).await;
            }
            let answer = match self.answer(response, true).await {
                Ok(StreamableHttpPostResponse::Sse(events, session)) => {
                    let answer = StreamableHttpPostResponse::Sse(events, session);
                    answer.expect_initialized().await
                }
                Ok(answer) => answer.expect_initialized().await,
                Err(error) => Err(error),
            };
            match answer {
                // A refusal before the body was read has no id, or another one.
                Ok((JsonRpcMessage::Error(error), _)) if !status.is_success() => {
                    let message = ServerJsonRpcMessage::error(error.error, Some(id.clone()));
                    Ok(StreamableHttpPostResponse::Json(message, None))
                }
                Ok((message, session)) => Ok(StreamableHttpPostResponse::Json(message, session)),
                Err(error) if self.loss.reason().is_some() => Err(error),
                Err(_) => not_known("it does not know server/discover"),
            }
        });
        match answered.await {
            Ok(answer) => answer,
            Err(_elapsed) => not_known("it did not answer server/discover"),
        }
    }
}
