//! Code of the embedding program that blocks its thread: it delays no deadline and no stop. Each test releases the code
//! only after the turn has ended.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use allstop_agent::{
    Agent, Deadlines, EventSink, Guardrail, GuardrailStage, GuardrailVerdict, Hook, HookCx,
    HookEvent, HookVerdict, RunHistory, RunRequest, Settings, TurnOutcome,
};
use allstop_core::turn::Conversation;
use allstop_core::{CauseKind, FinishReason, SessionId, StopReason};
use allstop_model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, Reply};
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::ToolFn;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::runtime::Builder;

use crate::{model, tools};

/// Blocks its thread until the test releases it.
#[derive(Debug)]
struct Gate(Mutex<Receiver<()>>);

impl Gate {
    fn new() -> (Arc<Self>, Sender<()>) {
        let (release, gate) = channel();
        (Arc::new(Self(Mutex::new(gate))), release)
    }

    fn block(&self) {
        // The sender is dropped if the test fails.
        let _released_or_dropped = self.0.lock().expect("not poisoned").recv();
    }
}

/// A model that blocks its thread before its answer.
#[derive(Debug)]
struct BlockingModel(Arc<Gate>);

impl Model for BlockingModel {
    fn name(&self) -> &'static str {
        "blocking"
    }

    fn stream(&self, _: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async {
            self.0.block();
            Ok(answer_of(vec![ModelEvent::Text("a ghost".into())]))
        })
    }
}

fn answer_of(mut events: Vec<ModelEvent>) -> ModelStream {
    events.push(ModelEvent::End(FinishReason::Done));
    ModelStream::new(futures::stream::iter(events.into_iter().map(Ok)))
}

/// A hook and a guardrail that block, either in the call or in the future that the call returns.
#[derive(Debug)]
struct BlockingCheck {
    name: Arc<str>,
    gate: Arc<Gate>,
    in_the_call: bool,
}

impl BlockingCheck {
    fn future<T: Send + 'static>(&self, verdict: T) -> BoxFuture<'static, T> {
        if self.in_the_call {
            self.gate.block();
        }
        let gate = (!self.in_the_call).then(|| Arc::clone(&self.gate));
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.block();
            }
            verdict
        })
    }
}

impl Hook for BlockingCheck {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        event.name() == "turn_start"
    }

    fn on(&self, _: &HookCx, _: HookEvent) -> BoxFuture<'static, HookVerdict> {
        self.future(HookVerdict::Continue)
    }
}

impl Guardrail for BlockingCheck {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        stage == GuardrailStage::Output
    }

    fn check(
        &self,
        _: &HookCx,
        _: GuardrailStage,
        _: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        self.future(GuardrailVerdict::Pass)
    }
}

fn settings() -> Settings {
    Settings::default().deadlines(Deadlines::default().turn(Duration::from_millis(50)))
}

fn bare() -> RunHistory {
    RunHistory::bare(SessionId::from("s1"), Arc::new(Conversation::default()))
}

/// Runs one turn with the options that every example uses. The program's runtime has one thread, which the turn blocks
/// until this function returns. The wait for the outcome has its own runtime, so that a failed test ends.
fn turn_beside_a_blocked_thread(agent: &Agent) -> TurnOutcome {
    let program = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let run = {
        let _inside = program.enter();
        let options = RootOptions::current().grace(Duration::from_millis(10));
        let request = RunRequest::new(bare(), "go");
        agent.start(&Scope::root("test", options), request, EventSink::none())
    };
    let waiting = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = waiting
        .block_on(async { tokio::time::timeout(Duration::from_secs(20), run.finish()).await });
    // The blocked thread is released only after this.
    program.shutdown_background();
    let outcome = outcome.expect("it ends in time");
    let mut turns = outcome.expect("the engine does not panic").turns;
    turns.pop().expect("one turn")
}

fn assert_ended_by_the_deadline(turn: &TurnOutcome, blocked: &str) {
    assert_eq!(turn.stop_reason, StopReason::Timeout, "{blocked}");
    let cause = turn.cause.as_ref().expect("it did not complete");
    assert_eq!(cause.kind, CauseKind::Deadline, "{blocked}");
    assert!(turn.conversation.messages.is_empty(), "{blocked}");
    let receipt = turn.receipt.as_ref().expect("work was stopped");
    let states: Vec<_> = receipt
        .items()
        .iter()
        .map(|item| item.state.as_str())
        .collect();
    assert_eq!(states, ["still_running"], "{blocked}: {receipt:?}");
}

#[test]
fn deadline_ends_a_turn_whose_model_blocks_its_thread() {
    let (gate, release) = Gate::new();
    let agent = Agent::new(Arc::new(BlockingModel(gate))).settings(settings());
    let turn = turn_beside_a_blocked_thread(&agent.build());
    assert_ended_by_the_deadline(&turn, "model");
    drop(release);
}

#[test]
fn deadline_ends_a_turn_whose_hook_blocks_its_thread() {
    for in_the_call in [false, true] {
        let (gate, release) = Gate::new();
        let name = "check".into();
        let hook = Arc::new(BlockingCheck {
            name,
            gate,
            in_the_call,
        });
        let agent = Agent::new(model(vec![Reply::text("ok")])).settings(settings());
        let turn = turn_beside_a_blocked_thread(&agent.hook(hook).build());
        assert_ended_by_the_deadline(&turn, "hook");
        drop(release);
    }
}

#[test]
fn deadline_ends_a_turn_whose_guardrail_blocks_its_thread() {
    for in_the_call in [false, true] {
        let (gate, release) = Gate::new();
        let name = "check".into();
        let guardrail = Arc::new(BlockingCheck {
            name,
            gate,
            in_the_call,
        });
        let agent = Agent::new(model(vec![Reply::text("ok")])).settings(settings());
        let turn = turn_beside_a_blocked_thread(&agent.guardrail(guardrail).build());
        assert_ended_by_the_deadline(&turn, "guardrail");
        drop(release);
    }
}

#[test]
fn deadline_ends_a_turn_whose_tool_blocks_the_only_thread() {
    let (gate, release) = Gate::new();
    let tool = ToolFn::new("t", move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.block();
            "late".to_owned()
        }
    });
    let calls = model(vec![Reply::text("").call("t", json!({}))]);
    let agent = Agent::new(calls)
        .tools(tools(vec![tool]))
        .settings(settings());
    let turn = turn_beside_a_blocked_thread(&agent.build());
    assert_ended_by_the_deadline(&turn, "tool");
    drop(release);
}

/// A model that computes on its thread, without yielding, until a time after the deadline of the turn. Then it answers
/// at once.
#[derive(Debug)]
struct ComputingModel {
    events: usize,
    event_takes: Duration,
}

impl Model for ComputingModel {
    fn name(&self) -> &'static str {
        "computing"
    }

    fn stream(&self, _: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let takes = self.event_takes;
        let pieces = (0..self.events).map(move |_| {
            let until = Instant::now() + takes;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            Ok(ModelEvent::Text("token ".into()))
        });
        let end = std::iter::once(Ok(ModelEvent::End(FinishReason::Done)));
        let events = futures::stream::iter(pieces.chain(end));
        Box::pin(async { Ok(ModelStream::new(events)) })
    }
}

/// All runs on one thread here, so that the timer of the deadline is late: the clock is compared at each piece of the
/// answer, and before the commit.
#[tokio::test]
async fn answer_after_the_deadline_is_not_committed_although_the_timer_is_late() {
    for (events, event_takes) in [(40, 5), (1, 200)] {
        let event_takes = Duration::from_millis(event_takes);
        let agent = Agent::new(Arc::new(ComputingModel {
            events,
            event_takes,
        }))
        .settings(settings())
        .build();
        let scope = Scope::root("test", RootOptions::single_runtime());
        let run = agent.start(&scope, RunRequest::new(bare(), "go"), EventSink::none());
        let turn = run.finish().await.unwrap().turns.pop().unwrap();
        assert_eq!(turn.stop_reason, StopReason::Timeout, "{events} events");
        assert!(turn.conversation.messages.is_empty(), "{events} events");
    }
}
