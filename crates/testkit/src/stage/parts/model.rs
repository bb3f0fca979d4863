//! A model with points: at the request, and at each thing that arrives.

use std::sync::Arc;

use allstop_core::Message;
use allstop_core::receipt::ItemKind;
use allstop_model::{FinishReason, Model, ModelError, ModelEvent, ModelRequest, ModelStream};
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};

use super::{INSIDE, PartWatch};
use crate::observe::{Moment, NEXT_MESSAGE, WitnessedAnswer};

#[derive(Debug)]
pub(crate) struct WatchedModel {
    pub(crate) inner: Arc<dyn Model>,
    pub(crate) watch: PartWatch,
}

impl Model for WatchedModel {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let watch = self.watch.clone();
            watch.witness.note_request(request.messages.clone());
            let alive = watch.witness.begin(ItemKind::ModelCall, "");
            if asks_for_the_next(&request.messages) {
                request.probe.no_connection();
                return Ok(ModelStream::new(stream::iter(next_answer())));
            }
            let opening = self.inner.stream(request);
            let opened = watch.around("model_request", "".into(), opening).await?;
            let open = (opened.events, watch, alive, WitnessedAnswer::default());
            let events = stream::unfold(open, |mut open| async move {
                let (events, watch, _, answer) = &mut open;
                watch.points.reach(Moment::Before, "model_chunk", "");
                tokio::time::sleep(INSIDE).await;
                let event = events.next().await?;
                let name = event.as_ref().map_or("error", name_of);
                watch.witness.note_received();
                watch.points.reach(Moment::Inside, "model_chunk", name);
                match &event {
                    Ok(ModelEvent::Usage(usage)) => watch.witness.note_usage(*usage),
                    Ok(ModelEvent::Text(text)) => answer.text.push_str(text),
                    Ok(ModelEvent::ToolCall(call)) => answer.calls.push(call.clone()),
                    Ok(ModelEvent::End(_)) => watch.witness.note_answer(std::mem::take(answer)),
                    _ => {}
                }
                Some((event, open))
            });
            Ok(ModelStream::new(events))
        })
    }
}

/// The message after the explored ones is answered without the scenario's own model.
fn asks_for_the_next(messages: &[Arc<Message>]) -> bool {
    let newest = messages.iter().rev().find_map(|message| match &**message {
        Message::User { text } => Some(text),
        _ => None,
    });
    newest.is_some_and(|text| &**text == NEXT_MESSAGE)
}

fn next_answer() -> [Result<ModelEvent, ModelError>; 2] {
    [
        Ok(ModelEvent::Text("the next answer".into())),
        Ok(ModelEvent::End(FinishReason::Done)),
    ]
}

fn name_of(event: &ModelEvent) -> &'static str {
    match event {
        ModelEvent::Text(_) => "text",
        ModelEvent::Reasoning(_) => "reasoning",
        ModelEvent::ToolCallProgress { .. } => "tool_call_progress",
        ModelEvent::ToolCall(_) => "tool_call",
        ModelEvent::Usage(_) => "usage",
        ModelEvent::End(_) => "end",
    }
}
