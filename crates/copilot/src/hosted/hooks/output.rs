//! Outputs of the hooks of a client, and the verdicts that follow from them.

use std::sync::Arc;

use allstop_agent::HookVerdict;
use allstop_tools::McpMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Output of a hook. Each hook uses some of these fields.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HookOutput {
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    modified_args: Option<Value>,
    modified_prompt: Option<Value>,
    modified_transformed_prompt: Option<Value>,
    modified_result: Option<Value>,
    additional_context: Option<Value>,
    /// Null removes the metadata, so null differs from an absent field.
    #[serde(default, deserialize_with = "present")]
    meta_to_use: Option<Value>,
}

/// Reads a field that may be null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Requested replacement of a text.
enum TextChange {
    Unchanged,
    Text(Arc<str>),
    /// The new value is not a text.
    Invalid,
}

impl TextChange {
    fn of(value: Option<&Value>) -> Self {
        match value {
            None | Some(Value::Null) => Self::Unchanged,
            Some(Value::String(text)) => Self::Text(text.as_str().into()),
            Some(_) => Self::Invalid,
        }
    }

    /// Change of a tool's result, which is a text or an object with a text for the model.
    fn of_result(result: Option<&Value>) -> Self {
        match result {
            Some(Value::Object(fields)) => match fields.get("textResultForLlm") {
                Some(text) => Self::of(Some(text)),
                None => Self::Invalid,
            },
            result => Self::of(result),
        }
    }
}

/// Content of a result whose hook answered with an invalid change.
const WITHHELD: &str =
    "The result is withheld: the hook postToolUse answered with a change that is not offered.";

impl HookOutput {
    /// Returns the parts of the output that have no effect in this server.
    pub(super) fn not_offered(&self) -> impl Iterator<Item = &'static str> {
        let parts = [
            ("modifiedArgs", &self.modified_args),
            ("additionalContext", &self.additional_context),
        ];
        let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        let parts = parts.into_iter().filter(move |(_, value)| given(value));
        parts.map(|(name, _)| name)
    }

    /// Returns the metadata for a request to an MCP server; `None` if the metadata stays unchanged.
    pub(super) fn meta(self) -> Result<Option<McpMeta>, &'static str> {
        match self.meta_to_use {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(McpMeta::Empty)),
            Some(Value::Object(fields)) => Ok(Some(McpMeta::Fields(Arc::new(fields)))),
            Some(_) => Err("`metaToUse` of the hook preMcpToolCall is not an object"),
        }
    }

    /// Returns the verdict for this output. If a hook decides about a call or a prompt, and its output is invalid, the
    /// call or prompt is denied.
    pub(super) fn verdict(self, hook: &str, default_verdict: HookVerdict) -> HookVerdict {
        let decision = self.permission_decision.as_ref().or(self.decision.as_ref());
        let decision = decision.map(String::as_str);
        let is_refusal = matches!(decision, Some("deny" | "block"));
        if hook == "agentStop" {
            return match self.reason {
                Some(reason) if is_refusal => HookVerdict::Prolong {
                    message: reason.into(),
                },
                _ => default_verdict,
            };
        }
        if is_refusal {
            let reason = self.permission_decision_reason.or(self.reason);
            let reason = reason.unwrap_or_else(|| format!("denied by the hook {hook}"));
            return HookVerdict::Deny { reason };
        }
        let decides = matches!(hook, "preToolUse" | "userPromptSubmitted");
        let change = match hook {
            // If the call were permitted, it would run without the requested change.
            "preToolUse" if self.modified_args.is_some() => TextChange::Invalid,
            "userPromptSubmitted" => TextChange::of(self.modified_prompt.as_ref()),
            "userPromptTransformed" => TextChange::of(self.modified_transformed_prompt.as_ref()),
            "postToolUse" => TextChange::of_result(self.modified_result.as_ref()),
            _ => TextChange::Unchanged,
        };
        match (decision, change) {
            (Some(other), _) if decides && !matches!(other, "allow" | "ask") => HookVerdict::Deny {
                reason: format!(
                    "the hook {hook} answered with the decision {other:?}, which is unknown"
                ),
            },
            (_, TextChange::Text(text)) => HookVerdict::Replace { text },
            // The unchanged text may contain parts that the hook wanted to remove.
            (_, TextChange::Invalid) if hook == "postToolUse" => HookVerdict::Replace {
                text: WITHHELD.into(),
            },
            (_, TextChange::Invalid) => HookVerdict::Deny {
                reason: format!("the hook {hook} answered with a change that is not offered"),
            },
            (Some("allow"), _) if hook == "preToolUse" => HookVerdict::Allow,
            (Some("ask"), _) => HookVerdict::Continue,
            _ => default_verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(hook: &str, output: Value) -> HookVerdict {
        let output: HookOutput = serde_json::from_value(output).expect("an output");
        output.verdict(hook, HookVerdict::Continue)
    }

    fn denies(hook: &str, output: Value) -> bool {
        matches!(verdict(hook, output), HookVerdict::Deny { .. })
    }

    #[test]
    fn decisions_that_are_not_understood_deny() {
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
            json!({ "decision": "block" })
        ));
    }

    #[test]
    fn changes_replace_a_text_or_deny() {
        let replaced = HookVerdict::Replace { text: "x".into() };
        for (hook, output) in [
            ("userPromptSubmitted", json!({ "modifiedPrompt": "x" })),
            (
                "userPromptTransformed",
                json!({ "modifiedTransformedPrompt": "x" }),
            ),
            ("postToolUse", json!({ "modifiedResult": "x" })),
            (
                "postToolUse",
                json!({ "modifiedResult": { "textResultForLlm": "x", "resultType": "success" } }),
            ),
        ] {
            assert_eq!(verdict(hook, output), replaced, "{hook}");
        }
        assert!(denies(
            "userPromptSubmitted",
            json!({ "modifiedPrompt": 1 })
        ));
        let withheld = HookVerdict::Replace {
            text: WITHHELD.into(),
        };
        let invalid = json!({ "modifiedResult": {} });
        assert_eq!(verdict("postToolUse", invalid), withheld);
    }

    #[test]
    fn block_with_a_reason_prolongs_the_turn() {
        let blocked = verdict(
            "agentStop",
            json!({ "decision": "block", "reason": "more" }),
        );
        let message = "more".into();
        assert_eq!(blocked, HookVerdict::Prolong { message });
        let without = verdict("agentStop", json!({ "decision": "block" }));
        assert_eq!(without, HookVerdict::Continue);
    }

    #[test]
    fn null_removes_the_metadata() {
        let meta = |output: Value| {
            let output: HookOutput = serde_json::from_value(output).expect("an output");
            output.meta()
        };
        assert_eq!(meta(json!({})), Ok(None));
        assert_eq!(meta(json!({ "metaToUse": null })), Ok(Some(McpMeta::Empty)));
        let fields = serde_json::Map::from_iter([("a".to_owned(), 1.into())]);
        assert_eq!(
            meta(json!({ "metaToUse": { "a": 1 } })),
            Ok(Some(McpMeta::Fields(Arc::new(fields))))
        );
        assert!(meta(json!({ "metaToUse": "a" })).is_err());
    }
}
