//! Hooks of a client, which the agent of the session calls like its other hooks.

mod mcp_call;
mod output;
mod request;

use std::path::PathBuf;
use std::sync::Arc;

use allstop_agent::{Hook, HookCx, HookEvent, HookVerdict};
use allstop_core::ToolCall;
use allstop_core::message::Arguments;
use allstop_core::record::CallOutcome;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::attached_clients::AttachedClient;
use super::client_tools::ClientTools;
use super::feed::now;
pub(super) use mcp_call::HookedMcpTool;
use request::HookRequestError;
pub(super) use request::HookRequests;

/// Calls the hooks of one client: the client that attached last among the clients with hooks. Permits calls of the
/// clients' own tools without a permission question, unless a client must be asked.
#[derive(Debug)]
pub(crate) struct ClientHooks {
    pub(crate) name: Arc<str>,
    pub(crate) tools: Arc<ClientTools>,
    pub(crate) requests: HookRequests,
    /// File with the log of the session; `None` if the log is not in a file.
    pub(crate) store_file: Option<PathBuf>,
}

fn arguments_of(call: &ToolCall) -> Value {
    match &call.arguments {
        Arguments::Json(value) => Value::clone(value),
        Arguments::Malformed(text) => Value::from(&**text),
    }
}

impl ClientHooks {
    /// Returns the name of the hook in the protocol, and its input.
    fn request_of(&self, event: &HookEvent) -> Option<(&'static str, Value)> {
        Some(match event {
            HookEvent::TurnStart { input } => ("userPromptSubmitted", json!({ "prompt": input })),
            HookEvent::ToolRequested { call } => (
                "preToolUse",
                json!({
                    "toolName": call.name,
                    "toolArgs": arguments_of(call),
                    "toolCallId": call.id,
                }),
            ),
            HookEvent::ToolEnd {
                call,
                outcome,
                content,
            } => {
                let mut input = json!({
                    "toolName": call.name,
                    "toolArgs": arguments_of(call),
                    "toolCallId": call.id,
                });
                let is_success = *outcome == CallOutcome::Succeeded;
                let (name, key, value) = if is_success {
                    let result = json!({ "textResultForLlm": content, "resultType": "success" });
                    ("postToolUse", "toolResult", result)
                } else {
                    ("postToolUseFailure", "error", Value::from(&**content))
                };
                if let Value::Object(input) = &mut input {
                    input.insert(key.to_owned(), value);
                }
                (name, input)
            }
            HookEvent::FinalAnswer { prolonged, .. } => (
                "agentStop",
                json!({
                    "stopReason": "end_turn",
                    "transcriptPath": self.store_file,
                    "stop_hook_active": *prolonged > 0,
                }),
            ),
            HookEvent::SessionStart { resumed } => {
                let source = if *resumed { "resume" } else { "new" };
                ("sessionStart", json!({ "source": source }))
            }
            HookEvent::SessionEnd => ("sessionEnd", json!({ "reason": "complete" })),
            HookEvent::Error { message } => (
                "errorOccurred",
                json!({
                    "error": { "name": "Error", "message": message },
                    "errorContext": "system",
                    "recoverable": true,
                }),
            ),
            _ => return None,
        })
    }

    /// Returns the verdict for an event that no hook decides.
    fn default_verdict(&self, event: &HookEvent) -> HookVerdict {
        let HookEvent::ToolRequested { call } = event else {
            return HookVerdict::Continue;
        };
        // A program registers a tool because it wants the tool to be called. If the program also has a permission
        // handler, it expects a permission question before the call.
        let is_asked = self.requests.attached_clients.has_permission_handler()
            && !self.tools.skips_permission(&call.name);
        if self.tools.has(&call.name) && !is_asked {
            HookVerdict::Allow
        } else {
            HookVerdict::Continue
        }
    }
}

/// Prompt with the generated context of the official runtime. Allstop sends this context in the system prompt.
fn transformed(prompt: &str) -> String {
    format!("<current_datetime>{}</current_datetime>\n\n{prompt}", now())
}

/// Calls the hook for the prompt with its context, after the hook for the prompt.
async fn transform(
    requests: &HookRequests,
    (client, cx): (&AttachedClient, &HookCx),
    prompt: &str,
    verdict: HookVerdict,
) -> HookVerdict {
    let hook = "userPromptTransformed";
    let input = json!({ "prompt": prompt, "transformedPrompt": transformed(prompt) });
    match requests.call(client, cx, hook, input).await {
        Ok(output) => output.verdict(hook, verdict),
        Err(HookRequestError::Stopped) => verdict,
        Err(HookRequestError::NoAnswer(error)) => {
            tracing::warn!(%error, hook, "a hook of a client");
            verdict
        }
    }
}

impl Hook for ClientHooks {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        self.request_of(event).is_some()
    }

    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let default_verdict = self.default_verdict(&event);
        // The prompts and answers of sub-agents are not those of the user.
        let is_of_turn = matches!(
            event,
            HookEvent::TurnStart { .. } | HookEvent::FinalAnswer { .. }
        );
        let is_inside = is_of_turn && !self.requests.is_of_session(cx);
        let request = self.request_of(&event).filter(|_| !is_inside);
        let (Some(client), Some((hook, input))) = (self.requests.client(), request) else {
            return std::future::ready(default_verdict).boxed();
        };
        let (requests, cx) = (self.requests.clone(), cx.clone());
        async move {
            let output = requests.call(&client, &cx, hook, input).await;
            let verdict = match output {
                Ok(output) => output.verdict(hook, default_verdict),
                Err(HookRequestError::Stopped) => return default_verdict,
                // Without the hook's decision, the call is denied.
                Err(HookRequestError::NoAnswer(error)) if hook == "preToolUse" => {
                    let reason = format!("the hook {hook} did not answer: {error}");
                    return HookVerdict::Deny { reason };
                }
                Err(HookRequestError::NoAnswer(error)) => {
                    tracing::warn!(%error, hook, "a hook of a client");
                    default_verdict
                }
            };
            match (event, &verdict) {
                (HookEvent::TurnStart { .. }, HookVerdict::Deny { .. }) => verdict,
                (HookEvent::TurnStart { .. }, HookVerdict::Replace { text }) => {
                    let prompt = Arc::clone(text);
                    transform(&requests, (&client, &cx), &prompt, verdict).await
                }
                (HookEvent::TurnStart { input }, _) => {
                    transform(&requests, (&client, &cx), &input, verdict).await
                }
                _ => verdict,
            }
        }
        .boxed()
    }
}
