//! Helpers shared by the tests.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Message;
use allstop_model::{
    Model, ModelError, ModelEvent, ModelRequest, ProviderModel, ProviderOptions, ToolDeclaration,
};
use futures::StreamExt;
use serde_json::json;

use crate::openai_server::{OpenAiServer, ServerAnswer};

/// Time limit that is long enough for a busy machine. Only a failing test waits until this limit.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn model_at(url: &str) -> ProviderModel {
    let options = ProviderOptions::default().base_url(url.to_owned());
    ProviderModel::new("some::model-high", options).unwrap()
}

pub(crate) fn ask(text: &str) -> ModelRequest {
    ModelRequest::new(vec![Arc::new(Message::user(text))])
}

pub(crate) fn shell_tool() -> ToolDeclaration {
    ToolDeclaration {
        name: "shell".into(),
        description: "Runs a command.".into(),
        input_schema: Arc::new(json!({
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        })),
    }
}

/// All events of a call. If the call fails, also its error.
pub(crate) async fn all_of(
    model: &dyn Model,
    request: ModelRequest,
) -> (Vec<ModelEvent>, Option<ModelError>) {
    let mut seen = Vec::new();
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return (seen, Some(error)),
    };
    while let Some(event) = stream.events.next().await {
        match event {
            Ok(event) => seen.push(event),
            Err(error) => {
                assert!(
                    stream.events.next().await.is_none(),
                    "something followed {error}"
                );
                return (seen, Some(error));
            }
        }
    }
    (seen, None)
}

/// Error of a call to a server that gives this answer.
pub(crate) async fn failure_of(answer: ServerAnswer) -> ModelError {
    let server = OpenAiServer::start([answer]);
    let (_, error) = tokio::time::timeout(PATIENCE, all_of(&model_at(&server.url()), ask("hi")))
        .await
        .expect("the call ends");
    error.expect("the call fails")
}

pub(crate) fn text_of(events: &[ModelEvent]) -> String {
    events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Text(text) => Some(&**text),
            _ => None,
        })
        .collect()
}
