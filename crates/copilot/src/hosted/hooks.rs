//! Hooks of a client, as hooks of the session's agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use allstop_agent::{Hook, HookCx, HookEvent, HookVerdict};
use allstop_core::ToolCall;
use allstop_core::message::Arguments;
use allstop_core::record::CallOutcome;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::client_tools::ClientTools;
use super::roster::Roster;

/// Calls the hooks of the latest client that has any, and lets calls of the clients' own tools pass without a question
/// where nobody is to be asked.
#[derive(Debug)]
pub(crate) struct ClientHooks {
    pub(crate) name: Arc<str>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) tools: Arc<ClientTools>,
    pub(crate) folder: PathBuf,
}

#[derive(Deserialize)]
struct HookAnswer {
    output: Option<HookOutput>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookOutput {
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
}

fn arguments_of(call: &ToolCall) -> Value {
    match &call.arguments {
        Arguments::Json(value) => Value::clone(value),
        Arguments::Malformed(text) => Value::from(&**text),
    }
}

/// Name of the hook on the wire, and its input.
fn request_of(event: &HookEvent) -> Option<(&'static str, Value)> {
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

impl ClientHooks {
    /// Decision about a requested call without a hook.
    fn unasked(&self, event: &HookEvent) -> HookVerdict {
        let HookEvent::ToolRequested { call } = event else {
            return HookVerdict::Continue;
        };
        // A program that registers a tool means it to be called; one with a permission handler wants to be asked.
        let is_asked =
            self.roster.has_permission_handler() && !self.tools.skips_permission(&call.name);
        if self.tools.has(&call.name) && !is_asked {
            HookVerdict::Allow
        } else {
            HookVerdict::Continue
        }
    }
}

impl Hook for ClientHooks {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        matches!(event, HookEvent::ToolRequested { .. }) || request_of(event).is_some()
    }

    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let unasked = self.unasked(&event);
        let client = self.roster.latest(|wishes| wishes.hooks);
        let (Some(client), Some((hook, input))) = (client, request_of(&event)) else {
            return std::future::ready(unasked).boxed();
        };
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = at.map_or(0, |since| since.as_millis() as u64);
        let mut all = Map::from_iter([
            ("sessionId".to_owned(), cx.session_id.as_str().into()),
            ("timestamp".to_owned(), at.into()),
            ("cwd".to_owned(), self.folder.to_string_lossy().into()),
        ]);
        if let Value::Object(input) = input {
            all.extend(input);
        }
        let params = json!({ "sessionId": cx.session_id, "hookType": hook, "input": all });
        let is_request = matches!(event, HookEvent::ToolRequested { .. });
        async move {
            let answer = client.request::<HookAnswer>("hooks.invoke", &params).await;
            let output = match answer {
                Ok(answer) => answer.output.unwrap_or_default(),
                // What the hook was to decide is not decided.
                Err(error) if is_request => {
                    let reason = format!("the hook {hook} did not answer: {error}");
                    return HookVerdict::Deny { reason };
                }
                Err(error) => {
                    tracing::warn!(%error, hook, "a hook of a client");
                    return unasked;
                }
            };
            let decision = output.permission_decision.or(output.decision);
            match decision.as_deref() {
                Some("deny" | "block") => HookVerdict::Deny {
                    reason: output
                        .permission_decision_reason
                        .or(output.reason)
                        .unwrap_or_else(|| format!("denied by the hook {hook}")),
                },
                Some("allow") if is_request => HookVerdict::Allow,
                Some("ask") => HookVerdict::Continue,
                _ => unasked,
            }
        }
        .boxed()
    }
}
