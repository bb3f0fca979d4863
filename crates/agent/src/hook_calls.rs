//! Calls of the hooks, each with a span.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::catch_panic;
use tracing::Instrument as _;

use crate::hook::{Hook, HookCx, HookEvent, HookVerdict};
use crate::parts::AgentParts;
use crate::spans::WorkSpan;
use crate::user_code::{self, UserCodeResult};

/// Result of calling the hooks.
pub(crate) enum HookResult {
    Continue,
    /// At least one hook allows the requested call.
    Allowed,
    /// The hooks have changed the text of the event; or, at a final answer, a hook prolongs the turn with this message.
    Changed(Arc<str>),
    Denied(String),
    Stopped,
}

/// Calls every hook that wants the event, in order, until a hook denies.
pub(crate) async fn call_hooks(parts: &AgentParts, cx: &HookCx, event: &HookEvent) -> HookResult {
    let mut event = event.clone();
    let mut result = HookResult::Continue;
    for hook in &parts.hooks {
        match catch_panic("Hook::wants", || hook.wants(&event)) {
            Some(true) => {}
            Some(false) => continue,
            None => return HookResult::Denied(panicked(hook)),
        }
        let name = Arc::clone(hook.name());
        let span = WorkSpan::hook(parts, &name, event.name());
        let handling = {
            let (hook, cx, event) = (Arc::clone(hook), cx.clone(), event.clone());
            async move { hook.on(&cx, event).await }.instrument(span.span.clone())
        };
        match user_code::run(&cx.scope, ItemKind::Hook, name, event.name(), handling).await {
            UserCodeResult::Answered(HookVerdict::Replace { text })
                if event.replace_text(&text) =>
            {
                span.record_verdict("replace");
                result = HookResult::Changed(text);
            }
            UserCodeResult::Answered(HookVerdict::Prolong { message })
                if matches!(event, HookEvent::FinalAnswer { .. }) =>
            {
                span.record_verdict("prolong");
                return HookResult::Changed(message);
            }
            UserCodeResult::Answered(
                HookVerdict::Continue | HookVerdict::Replace { .. } | HookVerdict::Prolong { .. },
            ) => span.record_verdict("continue"),
            UserCodeResult::Answered(HookVerdict::Allow) => {
                span.record_verdict("allow");
                result = HookResult::Allowed;
            }
            UserCodeResult::Answered(HookVerdict::Deny { reason }) => {
                span.record_verdict("deny");
                return HookResult::Denied(reason);
            }
            UserCodeResult::Panicked => return HookResult::Denied(panicked(hook)),
            UserCodeResult::Stopped => return HookResult::Stopped,
        }
    }
    result
}

/// True if at least one hook wants the event. A hook whose `wants` panics counts as one.
pub(crate) fn is_wanted(hooks: &[Arc<dyn Hook>], event: &HookEvent) -> bool {
    hooks
        .iter()
        .any(|hook| catch_panic("Hook::wants", || hook.wants(event)) != Some(false))
}

fn panicked(hook: &Arc<dyn Hook>) -> String {
    format!("the hook {} panicked", hook.name())
}
