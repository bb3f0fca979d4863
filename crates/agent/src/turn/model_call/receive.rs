//! Receives an answer: data that arrives after a stop is counted, but not shown.

use allstop_model::{
    CALLS_MAX, FinishReason, Model, ModelError, ModelErrorKind, ModelEvent, ModelRequest,
    TokenLimits, stream_within,
};
use allstop_scope::Scope;
use futures::StreamExt as _;

use super::partial::PartialAnswer;
use crate::event::EventSink;

/// Receives an answer into `partial`. Each item of the returned stream is a sign of activity, and contains the number
/// of bytes so far. The stream ends with the answer.
pub(super) fn receive<'a>(
    model: &'a dyn Model,
    request: ModelRequest,
    limits: TokenLimits,
    partial: &'a mut PartialAnswer,
    delivery: LiveDelivery<'a>,
) -> impl futures::Stream<Item = Result<usize, ModelError>> + 'a {
    enum ReceiveState<'a> {
        Connecting(ModelRequest, &'a mut PartialAnswer),
        Receiving(allstop_model::ModelStream, &'a mut PartialAnswer),
        Over,
    }
    futures::stream::unfold(
        ReceiveState::Connecting(request, partial),
        move |state| async move {
            match state {
                ReceiveState::Connecting(request, partial) => {
                    match stream_within(model, request, limits).await {
                        Ok(stream) => {
                            partial.checkpoint = "first_token";
                            Some((Ok(0), ReceiveState::Receiving(stream, partial)))
                        }
                        Err(error) => Some((Err(error), ReceiveState::Over)),
                    }
                }
                ReceiveState::Receiving(mut stream, partial) => match stream.events.next().await {
                    None => Some((Err(cut()), ReceiveState::Over)),
                    Some(Err(error)) => Some((Err(error), ReceiveState::Over)),
                    Some(Ok(ModelEvent::End(finish))) => {
                        let is_empty = partial.text.is_empty() && partial.calls.is_empty();
                        if finish == FinishReason::ContentFilter && is_empty {
                            return Some((Err(filtered()), ReceiveState::Over));
                        }
                        partial.finish = finish;
                        None
                    }
                    Some(Ok(ModelEvent::ToolCall(_))) if partial.calls.len() >= CALLS_MAX => {
                        Some((Err(too_many_calls()), ReceiveState::Over))
                    }
                    Some(Ok(event)) => {
                        partial.checkpoint = "stream_chunk";
                        delivery.take(event, partial);
                        Some((Ok(partial.bytes), ReceiveState::Receiving(stream, partial)))
                    }
                },
                ReceiveState::Over => None,
            }
        },
    )
}

/// Destination of live events. Events are sent only while no stop covers the scope.
#[derive(Clone, Copy)]
pub(super) struct LiveDelivery<'a> {
    pub(super) unless_stopped: &'a Scope,
    pub(super) events: &'a EventSink,
}

impl LiveDelivery<'_> {
    fn take(self, event: ModelEvent, partial: &mut PartialAnswer) {
        let bytes_before = partial.bytes;
        if self.unless_stopped.is_stopped() {
            // The data was in transit when the stop was accepted.
            partial.take(event, &EventSink::none());
            partial.bytes_after_stop += partial.bytes - bytes_before;
        } else {
            partial.take(event, self.events);
        }
    }
}

fn cut() -> ModelError {
    ModelError::new(
        ModelErrorKind::Disconnected,
        "the answer is incomplete: the stream ended early".to_owned(),
    )
}

fn too_many_calls() -> ModelError {
    ModelError::new(
        ModelErrorKind::Protocol,
        format!("the model requested more than {CALLS_MAX} calls at once"),
    )
}

fn filtered() -> ModelError {
    ModelError::new(
        ModelErrorKind::Invalid,
        "the provider's content filter refused to answer".to_owned(),
    )
}
