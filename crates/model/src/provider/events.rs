//! One call to a provider: its request, and the events of its answer.

use std::time::Duration;

use futures::Stream;
use futures::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout_at};

use super::answer::AnswerParts;
use super::body::PiecewiseBody;
use super::call_ids::CallIds;
use super::carrier::{CarriedRequest, CarriedResponse};
use super::client::ClientLease;
use super::error_context::ErrorContext;
use super::event_reader::{ERROR_BODY_BYTES_MAX, EventReader};
use super::protocol::{AnswerProgress, Protocol};
use super::target::ModelTarget;
use crate::{ModelError, ModelEvent, ModelRequest, RequestHeaders};

/// Maximum time to wait for the body of an error response. Its status has already arrived, and contains most of the
/// information.
const ERROR_BODY_WAIT_MAX: Duration = Duration::from_secs(5);

/// A model call whose request the provider has accepted. Dropping this value closes the connection, unless the answer
/// was complete.
pub(super) struct ProviderCall {
    reader: EventReader,
    answer: AnswerParts,
    protocol: Protocol,
    errors: ErrorContext,
    lease: ClientLease,
}

enum CallState {
    Running(Box<ProviderCall>),
    /// The answer is complete, and its connection is back in the pool. The last events are not yet returned.
    Complete(AnswerParts),
}

impl ProviderCall {
    /// Sends the request, and waits until the provider accepts it.
    pub(super) async fn begin(
        target: &ModelTarget,
        lease: ClientLease,
        request: ModelRequest,
    ) -> Result<Self, ModelError> {
        let access = target.access_for_call().await?;
        let errors = ErrorContext::new(target, &access);
        let protocol = target.protocol();
        let limits = target.answer_limits();
        let ids = CallIds::avoiding(&request.messages);
        let answer = AnswerParts::new(ids, limits.answer_bytes_max);
        let body = target.body(&request)?;
        let ModelRequest {
            session,
            headers,
            probe,
            ..
        } = request;
        let text = serde_json::to_string(&body).expect("a JSON value has a text");
        drop(body);
        let sent = lease
            .client()
            .post(access.url)
            .headers(all_headers(target.headers(), &headers))
            .header(CONTENT_TYPE, "application/json");
        let sent = protocol.authorize(sent, access.key.as_deref());
        let sent = match access.bearer {
            Some(bearer) => sent.header(AUTHORIZATION, bearer),
            None => sent,
        };
        let response = match target.carrier() {
            None => {
                let sent = sent.body(reqwest::Body::wrap(PiecewiseBody::new(text)));
                let response = sent.send().await;
                response.map_err(|error| errors.of_transport(&error))?
            }
            Some(carrier) => {
                let head = sent.build();
                let head = head.map_err(|error| errors.of_transport(&error))?;
                let request = CarriedRequest {
                    session,
                    probe,
                    ..CarriedRequest::of(&head, text)
                };
                let response = carrier.carry(request).await;
                let response = response.and_then(CarriedResponse::into_http);
                response.map_err(|error| errors.of_carrier(&error))?
            }
        };
        if !response.status().is_success() {
            let (status, headers) = (response.status(), response.headers().clone());
            let body = beginning_of(response).await;
            return Err(errors.of_status(status, &body, &headers));
        }
        Ok(Self {
            reader: EventReader::new(response, limits.event_bytes_max),
            answer,
            protocol,
            errors,
            lease,
        })
    }

    /// The events of the answer. No event follows an error or the end event.
    pub(super) fn into_events(self) -> impl Stream<Item = Result<ModelEvent, ModelError>> + Send {
        let state = CallState::Running(Box::new(self));
        stream::unfold(Some(state), |state| async move {
            match state? {
                CallState::Running(call) => match call.next().await {
                    Ok((event, state)) => Some((Ok(event), Some(state))),
                    // The call and its connection have been dropped.
                    Err(error) => Some((Err(error), None)),
                },
                CallState::Complete(mut answer) => {
                    let event = answer.next_event()?;
                    Some((Ok(event), Some(CallState::Complete(answer))))
                }
            }
        })
    }

    async fn next(mut self: Box<Self>) -> Result<(ModelEvent, CallState), ModelError> {
        loop {
            if let Some(event) = self.answer.next_event() {
                return Ok((event, CallState::Running(self)));
            }
            // The caller checks for a stop between the events that it gets. If the provider sends only events that add
            // nothing to the answer, the caller gets no event, so yield here.
            tokio::task::consume_budget().await;
            let data = self.reader.next().await;
            let progress = match data.map_err(|error| self.errors.of_read(error))? {
                Some(data) => self.protocol.take(&data, &mut self.answer),
                None if self.answer.is_finished() => Ok(AnswerProgress::Complete),
                None => return Err(self.errors.ended_early(self.reader.other_content())),
            };
            if progress.map_err(|error| self.errors.of_decode(error))? == AnswerProgress::Complete {
                return self.complete();
            }
        }
    }

    fn complete(self) -> Result<(ModelEvent, CallState), ModelError> {
        let Self {
            reader,
            mut answer,
            errors,
            lease,
            ..
        } = self;
        answer.end().map_err(|error| errors.of_decode(error))?;
        // Drop the response first, and return the client afterwards: the connection is idle only after the drop.
        drop(reader);
        lease.finish();
        let event = answer.next_event().expect("a complete answer has an end");
        Ok((event, CallState::Complete(answer)))
    }
}

/// Adds the headers of a request to the headers of its target.
fn all_headers(mut all: HeaderMap, of_request: &RequestHeaders) -> HeaderMap {
    for (name, value) in of_request.iter() {
        let name = HeaderName::try_from(name).ok();
        if let Some((name, mut value)) = name.zip(HeaderValue::try_from(value).ok()) {
            value.set_sensitive(true);
            all.insert(name, value);
        }
    }
    all
}

/// Reads the beginning of the body of an error response within the time limit. Then closes the connection.
async fn beginning_of(mut response: reqwest::Response) -> String {
    let until = Instant::now() + ERROR_BODY_WAIT_MAX;
    let mut body = Vec::new();
    while body.len() < ERROR_BODY_BYTES_MAX {
        match timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                let room = ERROR_BODY_BYTES_MAX - body.len();
                body.extend(chunk.iter().take(room));
            }
            _ => break,
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}
