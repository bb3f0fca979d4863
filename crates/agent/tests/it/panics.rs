//! Code of the embedding program that panics: the turn names it, and the run keeps its earlier turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use allstop_agent::{
    Agent, AgentBuilder, EventSink, Guardrail, GuardrailStage, GuardrailVerdict, Hook, HookCx,
    HookEvent, HookVerdict, Prompt, RunHistory, RunOutcome, RunRequest, TurnErrorKind,
};
use allstop_core::turn::Conversation;
use allstop_core::{SessionId, StopReason};
use allstop_model::{Model, ModelError, ModelRequest, ModelStream, Reply};
use allstop_testkit::ToolFn;
use allstop_tools::{PermissionAnswer, PermissionPolicy, PermissionQuestion, Prompter};
use futures::future::BoxFuture;
use serde_json::json;

use crate::{model, root, tools};

/// Runs two turns. The conversation is in memory, so that a lost run would lose the first turn.
async fn two_turns(agent: AgentBuilder, events: EventSink) -> RunOutcome {
    let conversation = Arc::new(Conversation::default());
    let history = RunHistory::bare(SessionId::from("s1"), conversation);
    let mut request = RunRequest::new(history, "first");
    request.prompts.push_back(Prompt::from("second"));
    let run = agent.build().start(&root(), request, events);
    run.finish().await.expect("the engine does not panic")
}

fn two_answers() -> Arc<dyn Model> {
    model(vec![Reply::text("one"), Reply::text("two")])
}

/// Panics at the second turn, in one of its functions.
#[derive(Debug)]
struct Panicking {
    name: Arc<str>,
    at: &'static str,
    calls: AtomicUsize,
}

impl Panicking {
    fn new(at: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name: "embedder".into(),
            at,
            calls: AtomicUsize::new(0),
        })
    }

    fn panic_at(&self, at: &str) {
        let is_first = self.at != at || self.calls.fetch_add(1, Ordering::Relaxed) == 0;
        assert!(is_first, "in {at}");
    }
}

impl Hook for Panicking {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        let wanted = event.name() == "turn_start";
        if wanted {
            self.panic_at("wants");
        }
        wanted
    }

    fn on(&self, _: &HookCx, _: HookEvent) -> BoxFuture<'static, HookVerdict> {
        self.panic_at("on");
        Box::pin(std::future::ready(HookVerdict::Continue))
    }
}

impl Guardrail for Panicking {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        stage == GuardrailStage::Input
    }

    fn check(
        &self,
        _: &HookCx,
        _: GuardrailStage,
        _: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        self.panic_at("check");
        Box::pin(std::future::ready(GuardrailVerdict::Pass))
    }
}

impl Model for Panicking {
    fn name(&self) -> &'static str {
        "embedder"
    }

    fn stream(&self, _: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        self.panic_at("stream");
        let script = model(vec![Reply::text("one")]);
        Box::pin(async move { script.stream(ModelRequest::new(Vec::new())).await })
    }
}

/// The second turn failed, and the conversation has the first turn.
fn assert_first_turn_is_kept(outcome: &RunOutcome) {
    assert_eq!(outcome.turns.len(), 2);
    assert_eq!(outcome.turns[0].stop_reason, StopReason::Completed);
    let conversation = outcome.history.conversation();
    assert_eq!(conversation.turns, 1);
    assert_eq!(conversation.messages.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn hook_that_panics_in_any_function_denies() {
    for at in ["on", "wants"] {
        let agent = Agent::new(two_answers()).hook(Panicking::new(at));
        let outcome = two_turns(agent, EventSink::none()).await;
        let error = outcome.turns[1].error.as_ref().unwrap();
        assert_eq!(error.kind, TurnErrorKind::Hook, "{at}");
        assert_eq!(error.message, "the hook embedder panicked", "{at}");
        assert_first_turn_is_kept(&outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn guardrail_that_panics_before_its_future_refuses() {
    let agent = Agent::new(two_answers()).guardrail(Panicking::new("check"));
    let outcome = two_turns(agent, EventSink::none()).await;
    assert_eq!(outcome.turns[1].stop_reason, StopReason::Guardrail);
    let cause = outcome.turns[1].cause.as_ref().unwrap().to_string();
    assert!(cause.contains("the guardrail embedder panicked"), "{cause}");
    assert_first_turn_is_kept(&outcome);
}

#[tokio::test(start_paused = true)]
async fn model_that_panics_fails_its_turn_alone() {
    let outcome = two_turns(Agent::new(Panicking::new("stream")), EventSink::none()).await;
    let error = outcome.turns[1].error.as_ref().unwrap();
    assert_eq!(error.kind, TurnErrorKind::Panicked);
    assert_eq!(error.message, "the model embedder panicked");
    assert_first_turn_is_kept(&outcome);
}

#[tokio::test(start_paused = true)]
async fn clock_and_observer_that_panic_change_no_turn() {
    let agent = Agent::new(two_answers()).clock(Arc::new(|| panic!("in the clock")));
    let events = EventSink::observer(|_| panic!("in the observer"));
    let outcome = two_turns(agent, events).await;
    assert_eq!(outcome.turns[1].stop_reason, StopReason::Completed);
    assert_eq!(outcome.history.conversation().turns, 2);
}

#[derive(Debug)]
struct PanickingPrompter;

impl Prompter for PanickingPrompter {
    fn ask(&self, _: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        panic!("in the prompter");
    }
}

#[tokio::test(start_paused = true)]
async fn prompter_that_panics_denies() {
    let replies = vec![Reply::text("").call("t", json!({})), Reply::text("ok")];
    let tool = ToolFn::new("t", |_| async { "ran".to_owned() });
    let agent = Agent::new(model(replies))
        .tools(tools(vec![tool]))
        .permissions(
            Arc::new(PermissionPolicy::default()),
            Arc::new(PanickingPrompter),
        );
    let request = RunRequest::new(
        RunHistory::bare(SessionId::from("s1"), Arc::new(Conversation::default())),
        "go",
    );
    let run = agent.build().start(&root(), request, EventSink::none());
    let outcome = run.finish().await.unwrap();
    let [denial] = &*outcome.turns[0].denials else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        denial.reason,
        "permission was denied: the prompter panicked"
    );
}
