//! Hooks, guardrails and permission questions: their answers, refusals and panics, and stops while they run.

use std::sync::Arc;

use allstop_agent::{
    Agent, EventSink, Guardrail, GuardrailStage, GuardrailVerdict, Hook, HookCx, HookEvent,
    HookVerdict, RunRequest, TurnErrorKind,
};
use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent, Message, StopReason};
use allstop_model::Reply;
use allstop_scope::{StopRequest, WorkSpec};
use allstop_testkit::ToolFn;
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{PermissionAnswer, PermissionPolicy, PermissionQuestion, Prompter};
use futures::future::BoxFuture;
use serde_json::json;

use crate::{agent, ended, history, model, root, run, tools};

#[derive(Debug, Clone, Copy)]
enum Does {
    Continues,
    Allows,
    Denies,
    Panics,
    Hangs,
    /// Denies the event after a stop has reached the hook.
    DeniesUnderAStop,
}

fn stop(cx: &HookCx) {
    let cause = Cause::new(CauseKind::User);
    let _receipt = cx.scope.stop(StopRequest::new(Extent::Turn, cause));
}

#[derive(Debug)]
struct TestHook {
    name: Arc<str>,
    on: &'static str,
    does: Does,
}

impl TestHook {
    fn new(on: &'static str, does: Does) -> Arc<Self> {
        Arc::new(Self {
            name: "test-hook".into(),
            on,
            does,
        })
    }
}

impl Hook for TestHook {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        event.name() == self.on
    }

    fn on(&self, cx: &HookCx, _event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let (does, cx) = (self.does, cx.clone());
        Box::pin(async move {
            match does {
                Does::Continues => HookVerdict::Continue,
                Does::Allows => HookVerdict::Allow,
                Does::Denies => HookVerdict::Deny {
                    reason: "not on a Saturday".to_owned(),
                },
                Does::Panics => panic!("in a hook"),
                Does::Hangs => std::future::pending().await,
                Does::DeniesUnderAStop => {
                    stop(&cx);
                    let reason = "killed by signal 15".to_owned();
                    HookVerdict::Deny { reason }
                }
            }
        })
    }
}

impl Guardrail for TestHook {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        (self.on == "input") == (stage == GuardrailStage::Input)
    }

    fn check(
        &self,
        cx: &HookCx,
        _: GuardrailStage,
        _: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        let (does, cx) = (self.does, cx.clone());
        Box::pin(async move {
            match does {
                Does::Continues | Does::Allows => GuardrailVerdict::Pass,
                Does::Denies => GuardrailVerdict::Refuse {
                    reason: "secret".to_owned(),
                },
                Does::Panics => panic!("in a guardrail"),
                Does::Hangs => std::future::pending().await,
                Does::DeniesUnderAStop => {
                    stop(&cx);
                    let reason = "killed by signal 15".to_owned();
                    GuardrailVerdict::Refuse { reason }
                }
            }
        })
    }
}

fn one_call() -> Arc<allstop_model::ScriptedModel> {
    model(vec![
        Reply::text("").call("t", json!({})),
        Reply::text("ok"),
    ])
}

fn tool() -> allstop_tools::ToolRegistry {
    tools(vec![ToolFn::new("t", |_| async { "ran".to_owned() })])
}

#[tokio::test(start_paused = true)]
async fn call_denied_by_a_hook_gets_a_result_and_the_turn_continues() {
    for does in [Does::Denies, Does::Panics] {
        let model = one_call();
        let agent = agent(&model)
            .tools(tool())
            .hook(TestHook::new("tool_start", does))
            .build();
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Completed);
        assert_eq!(turn.denials.len(), 1);
        let Message::Tool(result) = &*turn.conversation.messages[2] else {
            panic!()
        };
        assert!(result.is_error && !result.content.contains("ran"));
    }
}

/// A person would deny each call, but the hook answers before the person is asked.
#[tokio::test(start_paused = true)]
async fn hook_at_the_request_of_a_call_decides_before_a_person() {
    let nothing: [&str; 0] = [];
    for (does, denied, runs) in [
        (Does::Continues, &nothing[..], false),
        (Does::Allows, &nothing[..], true),
        (Does::Allows, &["t"][..], false),
        (Does::Denies, &nothing[..], false),
    ] {
        let model = one_call();
        let policy = PermissionPolicy::parse(&nothing, &nothing, denied).unwrap();
        let agent = agent(&model)
            .tools(tool())
            .hook(TestHook::new("tool_requested", does))
            .permissions(
                Arc::new(policy),
                Arc::new(FixedAnswer(PermissionAnswer::deny())),
            )
            .build();
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Completed);
        assert_eq!(turn.denials.is_empty(), runs, "{does:?}, denied {denied:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hook_failure_outside_a_call_ends_the_turn_with_an_error() {
    for on in ["turn_start", "model_start", "model_end", "tool_end"] {
        let model = one_call();
        let agent = agent(&model)
            .tools(tool())
            .hook(TestHook::new(on, Does::Denies))
            .build();
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Error, "{on}");
        assert_eq!(turn.error.unwrap().kind, TurnErrorKind::Hook);
        assert!(turn.conversation.messages.is_empty());
    }
    let model = one_call();
    let hook = TestHook::new("turn_end", Does::Denies);
    let agent = agent(&model).tools(tool()).hook(hook).build();
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed, "the ending stands");
}

#[tokio::test(start_paused = true)]
async fn guardrails_check_input_and_output_and_fail_closed() {
    for (on, does) in [
        ("input", Does::Denies),
        ("input", Does::Panics),
        ("output", Does::Denies),
        ("output", Does::Panics),
    ] {
        let model = model(vec![Reply::text("the secret is 42")]);
        let agent = agent(&model).guardrail(TestHook::new(on, does)).build();
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Guardrail, "{on} {does:?}");
        assert_eq!(turn.cause.unwrap().kind, CauseKind::Guardrail);
        assert_eq!(model.requests().len(), usize::from(on == "output"));
        assert!(turn.conversation.messages.is_empty() && turn.output.is_empty());
    }
}

#[derive(Debug)]
struct NeverAnswers(tokio::sync::mpsc::UnboundedSender<()>);

impl Prompter for NeverAnswers {
    fn ask(&self, _question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        self.0.send(()).expect("a receiver");
        Box::pin(std::future::pending())
    }
}

fn asking(agent: allstop_agent::AgentBuilder, prompter: Arc<dyn Prompter>) -> Agent {
    agent
        .permissions(Arc::new(PermissionPolicy::default()), prompter)
        .build()
}

#[tokio::test(start_paused = true)]
async fn denied_permission_is_not_a_stop_and_approval_runs_the_call() {
    for (answer, denials) in [
        (PermissionAnswer::deny(), 1),
        (PermissionAnswer::AllowOnce, 0),
        (PermissionAnswer::AllowForSession, 0),
    ] {
        let model = one_call();
        let agent = asking(agent(&model).tools(tool()), Arc::new(FixedAnswer(answer)));
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Completed);
        assert_eq!(turn.denials.len(), denials);
    }
}

#[tokio::test(start_paused = true)]
async fn stop_ends_questions_hooks_and_guardrails_without_a_denial() {
    for what in ["question", "turn_start", "tool_start", "input"] {
        let (tx, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let model = one_call();
        let builder = agent(&model).tools(tool());
        let agent = match what {
            "question" => asking(builder, Arc::new(NeverAnswers(tx.clone()))),
            "input" => builder.guardrail(TestHook::new(what, Does::Hangs)).build(),
            hook => builder.hook(TestHook::new(hook, Does::Hangs)).build(),
        };
        let scope = root();
        let run = agent.start(
            &scope,
            RunRequest::new(history().await, "go"),
            EventSink::none(),
        );
        if what == "question" {
            asked.recv().await.unwrap();
        } else {
            while scope.running().is_empty() {
                tokio::task::yield_now().await;
            }
        }
        let began = tokio::time::Instant::now();
        let _stop = run.stop(Cause::new(CauseKind::User));
        let (turn, _) = ended(run.finish().await.unwrap());
        assert_eq!(turn.stop_reason, StopReason::Cancelled, "{what}");
        assert!(turn.denials.is_empty(), "{what}");
        assert!(turn.receipt.unwrap().quiet(), "{what}");
        assert_eq!(began.elapsed(), std::time::Duration::ZERO, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn denial_during_a_stop_counts_as_the_stop() {
    for what in ["turn_start", "model_start", "input"] {
        let model = one_call();
        let hook = TestHook::new(what, Does::DeniesUnderAStop);
        let builder = agent(&model).tools(tool());
        let agent = match what {
            "input" => builder.guardrail(hook).build(),
            _ => builder.hook(hook).build(),
        };
        let (turn, _) = run(agent, &root(), history().await, "go").await;
        assert_eq!(turn.stop_reason, StopReason::Cancelled, "{what}");
        assert!(turn.error.is_none(), "{what}: {:?}", turn.error);
    }
}

#[tokio::test(start_paused = true)]
async fn hook_is_called_at_every_point() {
    let model = one_call();
    let mut builder = agent(&model).tools(tool());
    for on in [
        "turn_start",
        "model_start",
        "model_end",
        "tool_start",
        "tool_end",
        "turn_end",
    ] {
        builder = builder.hook(TestHook::new(on, Does::Continues));
    }
    let (turn, _) = run(builder.build(), &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
}

/// A hook that runs at the end of a turn. After a stop, the hook needs some time to end, like a command.
#[derive(Debug)]
struct EndsSlowly {
    name: Arc<str>,
    running: tokio::sync::mpsc::UnboundedSender<()>,
}

const TIDYING: std::time::Duration = std::time::Duration::from_millis(300);

impl Hook for EndsSlowly {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        event.name() == "turn_end"
    }

    fn on(&self, cx: &HookCx, _event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let (cx, running) = (cx.clone(), self.running.clone());
        Box::pin(async move {
            let work = WorkSpec::new(ItemKind::Process, "tidy up");
            let work = cx.scope.spawn(work, move |cx| async move {
                running.send(()).expect("a receiver");
                cx.stopped_at("idle").await;
                tokio::time::sleep(TIDYING).await;
            });
            let _ended = work.expect("nothing is stopped").await;
            HookVerdict::Continue
        })
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_turn_end_hook_gets_its_grace_and_a_receipt() {
    let model = model(vec![Reply::text("ok")]);
    let (running, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let name = "tidy".into();
    let agent = agent(&model)
        .hook(Arc::new(EndsSlowly { name, running }))
        .build();
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = agent.start(&scope, request, EventSink::none());
    runs.recv().await.expect("the hook runs");
    let began = tokio::time::Instant::now();
    let stop = run.stop(Cause::new(CauseKind::User));
    let (turn, _) = ended(run.finish().await.unwrap());
    assert!(began.elapsed() >= TIDYING, "{:?}", began.elapsed());
    assert_eq!(turn.stop_reason, StopReason::Completed);
    // The turn had ended, so only the stop has a receipt.
    assert!(turn.receipt.is_none());
    let receipt = stop.receipt().await;
    assert!(receipt.quiet() && receipt.cancel_observed(), "{receipt:?}");
    let tidied = receipt.items().iter().find(|item| &*item.name == "tidy up");
    assert_eq!(tidied.expect("a named item").state.as_str(), "stopped");
}
