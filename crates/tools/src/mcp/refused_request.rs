//! HTTP responses that prove that the server has not executed a request.

use http::StatusCode;
use reqwest::Response;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse};

use super::call_answer::CallAnswer;
use super::http_client::{HttpClient, HttpResult};
use super::url_query::without_queries;

/// True if a server or a proxy answers with this status only in place of the execution. Other errors of a client are no
/// proof: a proxy also answers with 408 or 499 while the server executes the request.
fn proves_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::LENGTH_REQUIRED
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::UPGRADE_REQUIRED
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    )
}

impl HttpClient {
    /// Reads the response to a message, and ends the call of a refused request.
    pub(super) async fn answer_to(
        &self,
        message: &ClientJsonRpcMessage,
        response: Response,
        needs_answer: bool,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let status = response.status();
        let answer = self.answer(response, needs_answer).await;
        if let Err(StreamableHttpError::UnexpectedServerResponse(why)) = &answer
            && proves_refusal(status)
        {
            self.end_refused_call(message, why);
        }
        answer
    }

    /// Ends the call of a refused request. A call without this end would send a needless cancellation, and its outcome
    /// would be unknown.
    fn end_refused_call(&self, message: &ClientJsonRpcMessage, why: &str) {
        if let JsonRpcMessage::Request(request) = message {
            let refused = CallAnswer::Refused(without_queries(why));
            // Fails if the request is no call, or its caller has gone.
            drop(self.calls.answer(&request.id, refused));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_during_an_execution_prove_no_refusal() {
        for (status, expected) in [
            (403, true),
            (413, true),
            (429, true),
            (200, false),
            (408, false),
            (499, false),
            (500, false),
            (502, false),
            (504, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(proves_refusal(status), expected, "{status}");
        }
    }
}
