//! Hooks of a client, which the agent of the session calls like its other hooks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use allstop_agent::{Hook, HookCx, HookEvent, HookVerdict};
use allstop_core::ToolCall;
use allstop_core::message::Arguments;
use allstop_core::receipt::ItemKind;
use allstop_core::record::CallOutcome;
use allstop_scope::WorkSpec;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::attached_clients::AttachedClients;
use super::client_tools::ClientTools;
use super::client_work::ClientWork;
use crate::translate::HostEvent;

/// Calls the hooks of one client: the client that attached last among the clients with hooks. Permits calls of the
/// clients' own tools without a permission question, unless a client must be asked.
#[derive(Debug)]
pub(crate) struct ClientHooks {
    pub(crate) name: Arc<str>,
    pub(crate) attached_clients: Arc<AttachedClients>,
    pub(crate) tools: Arc<ClientTools>,
    pub(crate) folder: PathBuf,
    /// Channel for warnings to the clients about unsupported parts of a hook's answer.
    pub(crate) host_events: broadcast::Sender<HostEvent>,
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
    modified_args: Option<Value>,
    modified_prompt: Option<Value>,
    modified_result: Option<Value>,
    additional_context: Option<Value>,
}

impl HookOutput {
    /// Returns the parts of the answer that have no effect in this server.
    fn not_offered(&self) -> impl Iterator<Item = &'static str> {
        let parts = [
            ("modifiedArgs", &self.modified_args),
            ("modifiedPrompt", &self.modified_prompt),
            ("modifiedResult", &self.modified_result),
            ("additionalContext", &self.additional_context),
        ];
        let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        let parts = parts.into_iter().filter(move |(_, value)| given(value));
        parts.map(|(name, _)| name)
    }
}

fn arguments_of(call: &ToolCall) -> Value {
    match &call.arguments {
        Arguments::Json(value) => Value::clone(value),
        Arguments::Malformed(text) => Value::from(&**text),
    }
}

/// Returns the name of the hook in the protocol, and its input.
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
    /// Returns the verdict for an event that no hook decides.
    fn default_verdict(&self, event: &HookEvent) -> HookVerdict {
        let HookEvent::ToolRequested { call } = event else {
            return HookVerdict::Continue;
        };
        // A program registers a tool because it wants the tool to be called. If the program also has a permission
        // handler, it expects a permission question before the call.
        let is_asked = self.attached_clients.has_permission_handler()
            && !self.tools.skips_permission(&call.name);
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
        let default_verdict = self.default_verdict(&event);
        let client = self
            .attached_clients
            .latest(|client_options| client_options.hooks);
        let (Some(client), Some((hook, input))) = (client, request_of(&event)) else {
            return std::future::ready(default_verdict).boxed();
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
        let decides = is_request || matches!(event, HookEvent::TurnStart { .. });
        let (scope, host_events) = (cx.scope.clone(), self.host_events.clone());
        async move {
            // The handler runs in the client. A stop cannot end the handler, and the protocol does not report the end
            // of the handler.
            let work = WorkSpec::new(ItemKind::Remote, format!("hook {hook} of the client"));
            let Ok(handler) = ClientWork::register(&scope, work) else {
                return default_verdict;
            };
            let answer = client.request::<HookAnswer>("hooks.invoke", &params).await;
            handler.answered();
            let output = match answer {
                Ok(answer) => answer.output.unwrap_or_default(),
                // Without the hook's decision, the call is denied.
                Err(error) if is_request => {
                    let reason = format!("the hook {hook} did not answer: {error}");
                    return HookVerdict::Deny { reason };
                }
                Err(error) => {
                    tracing::warn!(%error, hook, "a hook of a client");
                    return default_verdict;
                }
            };
            for part in output.not_offered() {
                let message = format!("`{part}` of the hook {hook} is not offered").into();
                // If no client is attached, the warning is not needed.
                drop(host_events.send(HostEvent::NotOffered { message }));
            }
            verdict(hook, output, decides, default_verdict)
        }
        .boxed()
    }
}

/// Returns the verdict for the answer of a hook. If a hook decides about a call or a prompt, and its answer is invalid,
/// the call or prompt is denied.
fn verdict(
    hook: &str,
    output: HookOutput,
    decides: bool,
    default_verdict: HookVerdict,
) -> HookVerdict {
    let decision = output
        .permission_decision
        .as_ref()
        .or(output.decision.as_ref());
    let decision = decision.map(String::as_str);
    let changes = output.modified_args.is_some() || output.modified_prompt.is_some();
    let deny = |reason: String| HookVerdict::Deny { reason };
    match decision {
        Some("deny" | "block") => deny(
            output
                .permission_decision_reason
                .or(output.reason)
                .unwrap_or_else(|| format!("denied by the hook {hook}")),
        ),
        // If the call were permitted, it would run without the requested change.
        _ if decides && changes => deny(format!(
            "the hook {hook} answered with a change, and changes are not offered"
        )),
        Some("allow") if hook == "preToolUse" => HookVerdict::Allow,
        Some("ask") => HookVerdict::Continue,
        Some(other) if decides => deny(format!(
            "the hook {hook} answered with the decision {other:?}, which is unknown"
        )),
        _ => default_verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_that_are_not_understood_deny() {
        let verdict = |hook, output: Value| {
            let output = serde_json::from_value(output).expect("an output");
            verdict(hook, output, hook != "postToolUse", HookVerdict::Continue)
        };
        let denies = |hook, output| matches!(verdict(hook, output), HookVerdict::Deny { .. });
        assert_eq!(
            verdict("preToolUse", json!({ "permissionDecision": "allow" })),
            HookVerdict::Allow
        );
        for open in ["preToolUse", "userPromptSubmitted", "postToolUse"] {
            assert_eq!(verdict(open, json!({})), HookVerdict::Continue);
        }
        for word in ["deny", "denied", "Deny", "perhaps", ""] {
            let output = json!({ "permissionDecision": word });
            assert!(denies("preToolUse", output), "{word:?}");
        }
        let cleaned = json!({ "permissionDecision": "allow", "modifiedArgs": {} });
        assert!(denies("preToolUse", cleaned));
        assert!(denies(
            "userPromptSubmitted",
            json!({ "modifiedPrompt": "x" })
        ));
        assert!(denies(
            "userPromptSubmitted",
            json!({ "decision": "block" })
        ));
        assert!(!denies("postToolUse", json!({ "modifiedResult": "x" })));
    }
}
