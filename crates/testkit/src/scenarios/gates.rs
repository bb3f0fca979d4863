//! Gates between the model and the outside world: permission questions, hooks and guardrails.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use allstop_agent::{
    AgentBuilder, Guardrail, GuardrailStage as At, GuardrailVerdict, Hook, HookCx, HookEvent,
    HookVerdict,
};
use allstop_model::Reply;
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{PermissionAnswer, PermissionPolicy, PermissionQuestion, Prompter};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::sleep;

use super::parts::{agent, deaf};
use crate::explore::{RunStage, Scenario};

pub(super) fn all() -> [Scenario; 6] {
    [
        Scenario::new("permission_question", |stage| {
            let slow = stage.prompter(DelayedPrompter(PermissionAnswer::AllowOnce));
            stage.agent(posting(stage).permissions(asking(), slow), "Post it.")
        }),
        Scenario::new("permission_denied", |stage| {
            let denies = stage.prompter(FixedAnswer(PermissionAnswer::deny()));
            stage.agent(posting(stage).permissions(asking(), denies), "Post it.")
        }),
        Scenario::new("hook", |stage| {
            let hook = stage.hook(ScriptedHook {
                moment: None,
                verdict: HookVerdict::Continue,
            });
            stage.agent(posting(stage).hook(hook), "Post it.")
        }),
        Scenario::new("hook_denies", |stage| {
            let reason = "not here".to_owned();
            let hook = stage.hook(ScriptedHook {
                moment: Some("tool_start"),
                verdict: HookVerdict::Deny { reason },
            });
            stage.agent(posting(stage).hook(hook), "Post it.")
        }),
        Scenario::new("guardrail", |stage| {
            let guardrail = stage.guardrail(WordGuardrail("nothing like this"));
            stage.agent(posting(stage).guardrail(guardrail), "Post it.")
        }),
        Scenario::new("guardrail_refusal", |stage| {
            let guardrail = stage.guardrail(WordGuardrail("Posted"));
            stage.agent(posting(stage).guardrail(guardrail), "Post it.")
        }),
    ]
}

/// An agent that calls the tool `post` and then reports that it has done so.
fn posting(stage: &RunStage) -> AgentBuilder {
    let replies = vec![
        Reply::text("").call("post", json!({})).usage(8, 4),
        Reply::text("Posted.").usage(12, 2),
    ];
    agent(
        stage,
        replies,
        [deaf("post", Duration::from_millis(3), "201")],
    )
}

fn asking() -> Arc<PermissionPolicy> {
    Arc::new(PermissionPolicy::default())
}

/// Prompter that answers permission questions after a delay.
#[derive(Debug)]
struct DelayedPrompter(PermissionAnswer);

impl Prompter for DelayedPrompter {
    fn ask(&self, _: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(async {
            sleep(Duration::from_secs(7)).await;
            self.0.clone()
        })
    }
}

#[derive(Debug)]
struct ScriptedHook {
    /// Moment at which the hook returns its verdict; `None` for all moments.
    moment: Option<&'static str>,
    verdict: HookVerdict,
}

impl Hook for ScriptedHook {
    fn name(&self) -> &Arc<str> {
        static NAME: LazyLock<Arc<str>> = LazyLock::new(|| "audit".into());
        &NAME
    }

    fn wants(&self, event: &HookEvent) -> bool {
        self.moment.is_none_or(|moment| moment == event.name())
    }

    fn on(&self, _: &HookCx, _: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let verdict = self.verdict.clone();
        Box::pin(async {
            sleep(Duration::from_millis(2)).await;
            verdict
        })
    }
}

/// Refuses inputs and outputs that contain this text.
#[derive(Debug)]
struct WordGuardrail(&'static str);

impl Guardrail for WordGuardrail {
    fn name(&self) -> &Arc<str> {
        static NAME: LazyLock<Arc<str>> = LazyLock::new(|| "words".into());
        &NAME
    }

    fn wants(&self, _: At) -> bool {
        true
    }

    fn check(&self, _: &HookCx, _: At, text: Arc<str>) -> BoxFuture<'static, GuardrailVerdict> {
        let refuses = text.contains(self.0);
        Box::pin(async move {
            sleep(Duration::from_millis(2)).await;
            if refuses {
                let reason = "it has been said".to_owned();
                GuardrailVerdict::Refuse { reason }
            } else {
                GuardrailVerdict::Pass
            }
        })
    }
}
