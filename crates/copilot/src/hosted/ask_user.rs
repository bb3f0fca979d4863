//! The tool `ask_user`: the model asks the person who uses a client.

use std::sync::Arc;

use allstop_core::Effect;
use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::attached_clients::AttachedClients;
use super::client_work::ClientWork;

#[derive(Debug)]
pub(super) struct AskUserTool {
    spec: ToolSpec,
    attached_clients: Arc<AttachedClients>,
}

#[derive(Deserialize)]
struct UserAnswer {
    answer: String,
}

impl AskUserTool {
    pub(super) const NAME: &'static str = "ask_user";

    pub(super) fn new(attached_clients: Arc<AttachedClients>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "question": { "type": "string", "minLength": 1 },
                "choices": { "type": "array", "items": { "type": "string" } },
                "allowFreeform": { "type": "boolean" },
            },
            "required": ["question"],
        });
        Self {
            spec: ToolSpec::new(
                Self::NAME,
                "Asks the user a question and returns the answer.",
                Arc::new(schema),
            )
            .effect(Effect::ReadOnly),
            attached_clients,
        }
    }
}

impl Tool for AskUserTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        let client = self
            .attached_clients
            .latest(|client_options| client_options.user_input);
        Box::pin(async move {
            let client = client.ok_or_else(|| ToolError::new("no client can be asked"))?;
            let mut params = Map::new();
            if let Value::Object(arguments) = &*invocation.arguments {
                params.extend(arguments.clone());
            }
            let session = invocation.session_id.as_str();
            params.insert("sessionId".to_owned(), session.into());
            let scope = &invocation.scope;
            let work = WorkSpec::new(ItemKind::Remote, Self::NAME).effect(Effect::ReadOnly);
            let handler = ClientWork::register(scope, work)
                .map_err(|refused| ToolError::new(refused.to_string()))?;
            let asking = client.request::<UserAnswer>("userInput.request", &params);
            let answer = tokio::select! {
                biased;
                () = scope.stopped() => {
                    scope.stopped_at("ask_user").await;
                    return Err(ToolError::new("the question was withdrawn"));
                }
                answer = asking => answer,
            };
            handler.answered();
            let answer = answer.map_err(|error| ToolError::new(error.to_string()))?;
            Ok(answer.answer.into())
        })
    }
}
