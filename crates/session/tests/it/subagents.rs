//! Sub-agents of a session's agent. In the background, the sub-agents outlive the turn that started them, and each
//! sub-agent can be stopped alone.

use std::sync::Arc;

use allstop_agent::{Agent, AgentEvent, SubAgentBackground, SubAgents, TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_core::message::Arguments;
use allstop_core::record::{BackgroundKind, SessionRecord, TurnOrigin};
use allstop_model::ScriptedModel;
use allstop_session::{
    AgentRequest, AgentSource, OnBackgroundEnd, SessionAgent, SessionEventKind, SessionOptions,
    StopTarget,
};
use allstop_testkit::ToolFn;
use allstop_tools::OutputFolder;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::support::{fixture, tools, until, user};

mod nested;
mod promotion;

/// Source of scripted agents with a tool `wait`, which reports its start and waits for `go_on`.
#[derive(Debug)]
struct Starts {
    model: Arc<ScriptedModel>,
    waiting: mpsc::UnboundedSender<()>,
    folder: tempfile::TempDir,
    go_on: Arc<tokio::sync::Semaphore>,
}

impl AgentSource for Starts {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let (waiting, go_on) = (self.waiting.clone(), Arc::clone(&self.go_on));
            let wait = ToolFn::new("wait", move |call| {
                waiting.send(()).expect("the test waits");
                let go_on = Arc::clone(&go_on);
                async move {
                    tokio::select! {
                        permit = go_on.acquire() => permit.expect("never closed").forget(),
                        _ = call.scope.stopped_at("wait") => {}
                    }
                    "waited".to_owned()
                }
            });
            let agent = Agent::new(Arc::clone(&self.model)).tools(tools(vec![wait]));
            let options = SubAgents {
                background: Some(SubAgentBackground {
                    host: request.background,
                    output_folder: Arc::new(OutputFolder::new(self.folder.path())),
                }),
                ..SubAgents::default()
            };
            let agent = agent.build().with_sub_agents(options);
            let agent = agent.map_err(|error| TurnError {
                kind: TurnErrorKind::Bug,
                message: error.to_string(),
                hint: None,
            })?;
            Ok(SessionAgent {
                agent,
                resources: None,
            })
        })
    }
}

struct GuardrailStage {
    source: Starts,
    waiting: mpsc::UnboundedReceiver<()>,
    go_on: Arc<tokio::sync::Semaphore>,
}

const SCRIPT: &str = "
turns:
  - when: in the background
    replies:
      - {COST, calls: [{tool: agent, arguments: {prompt: research, background: true}}]}
      - {COST, text: it is on its way}
      - {COST, text: it has come}
  - when: research
    replies:
      - {COST, text: I have it looked up., calls: [{tool: agent, arguments: {prompt: look up}}]}
      - {COST, text: it is 42}
  - when: look up
    replies:
      - {COST, calls: [{tool: wait, arguments: {}}]}
      - {COST, text: forty-two}
  - when: both
    replies:
      - usage: {input_tokens: 10, output_tokens: 1}
        calls: [{tool: agent, arguments: {prompt: look up}}, {tool: agent, arguments: {prompt: research}}]
      - {COST, text: one of two}
  - when: in front
    replies:
      - {COST, calls: [{tool: agent, arguments: {prompt: research}}]}
      - {COST, text: it goes on}
      - {COST, text: it has come}
replies:
  - {COST, text: I see}
";

/// Tokens that each model call costs.
const COST: u64 = 11;

fn stage() -> GuardrailStage {
    let script = SCRIPT.replace("COST", "usage: {input_tokens: 10, output_tokens: 1}");
    let model = ScriptedModel::parse("agents", &script).expect("a script");
    let (tx, waiting) = mpsc::unbounded_channel();
    let go_on = Arc::new(tokio::sync::Semaphore::new(0));
    let source = Starts {
        model: Arc::new(model),
        waiting: tx,
        folder: tempfile::tempdir().expect("a folder"),
        go_on: Arc::clone(&go_on),
    };
    GuardrailStage {
        source,
        waiting,
        go_on,
    }
}

#[tokio::test(start_paused = true)]
async fn background_agent_outlives_its_turn_and_answers_later() {
    let mut stage = stage();
    let fixture = fixture(stage.source, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("in the background").unwrap();
    let first = first.outcome().await;
    assert_eq!(&*first.output, "it is on its way");
    stage.waiting.recv().await.expect("it runs on");
    let works = fixture.session.background();
    assert_eq!(works.len(), 1);
    assert_eq!(
        (works[0].kind(), &*works[0].name),
        (BackgroundKind::Agent, "research")
    );
    assert_eq!(
        works[0].output(),
        "I have it looked up.\n→ agent {\"prompt\":\"look up\"}\n"
    );
    stage.go_on.add_permits(1);
    until(&mut events, |event| {
        matches!(event.kind, SessionEventKind::SessionIdle { .. }).then_some(())
    })
    .await;
    fixture.session.send("and?").unwrap().outcome().await;
    let said = fixture.said().await;
    let note = said.iter().find(|said| said.starts_with("note: "));
    let note = note.expect("it is told");
    assert!(
        note.contains("bg_1") && note.contains("it is 42"),
        "{said:?}"
    );
    // Two calls of the turn that started the agents, two calls of each of the two agents, and the call of the last
    // turn.
    assert_eq!(fixture.state().await.metered().total_tokens(), 7 * COST);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn answer_of_a_background_agent_can_wake_the_model() {
    let mut stage = stage();
    let options = SessionOptions::default().on_background_end(OnBackgroundEnd::Wake);
    let fixture = fixture(stage.source, options).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("in the background").unwrap();
    first.outcome().await;
    stage.waiting.recv().await.expect("it runs on");
    stage.go_on.add_permits(1);
    until(&mut events, |event| {
        matches!(event.kind, SessionEventKind::SessionIdle { .. }).then_some(())
    })
    .await;
    let woken = fixture.records().await.into_iter().filter(|record| {
        let SessionRecord::TurnStarted { origin, .. } = record else {
            return false;
        };
        *origin == TurnOrigin::Background
    });
    assert_eq!(woken.count(), 1, "a separate turn");
    let said = fixture.said().await;
    assert!(
        said.iter().any(|said| said.contains("it is 42")),
        "{said:?}"
    );
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_background_agent_covers_it_and_its_sub_agents() {
    let mut stage = stage();
    let fixture = fixture(stage.source, SessionOptions::default()).await;
    for _ in 0..2 {
        let sent = fixture.session.send("in the background").unwrap();
        sent.outcome().await;
        stage.waiting.recv().await.expect("it runs on");
    }
    let target = StopTarget::Background("bg_1".into());
    let before = Instant::now();
    let receipt = fixture.session.stop(&target, user()).receipt().await;
    assert_eq!(before.elapsed().as_millis(), 0);
    assert!(receipt.quiet(), "{receipt:?}");
    let items = receipt.items().iter();
    let items: Vec<_> = items.map(|item| (&*item.id, item.state.as_str())).collect();
    assert_eq!(items[0], ("bg_1", "stopped"));
    assert!(
        items.iter().all(|(_, state)| *state == "stopped"),
        "{items:?}"
    );
    assert_eq!(
        items.len(),
        3,
        "and the agent below, and its call: {items:?}"
    );
    let works = fixture.session.background();
    let running: Vec<_> = works.iter().filter(|work| work.is_running()).collect();
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].id.as_str(), "bg_2");
    let receipt = fixture
        .session
        .stop(&StopTarget::Session, user())
        .receipt()
        .await;
    assert!(receipt.quiet() && !running[0].is_running(), "{receipt:?}");
    assert!(receipt.items().iter().any(|item| &*item.id == "bg_2"));
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn agent_stops_alone_and_turn_stop_counts_all_usage() {
    let mut stage = stage();
    let fixture = fixture(stage.source, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("both").unwrap();
    for _ in 0..2 {
        stage.waiting.recv().await.expect("both wait");
    }
    let prompts = Mutex::new(Vec::new());
    let call = until(&mut events, |event| match &event.kind {
        SessionEventKind::Live(AgentEvent::ToolRequested {
            call_id, arguments, ..
        }) => {
            let Arguments::Json(arguments) = arguments else {
                return None;
            };
            prompts.lock().push(arguments["prompt"].to_string());
            (arguments["prompt"] == "look up").then(|| call_id.clone())
        }
        _ => None,
    })
    .await;
    let receipt = fixture
        .session
        .stop(&StopTarget::Call(call.clone()), user());
    let receipt = receipt.receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(*receipt.items()[0].id, *call.as_str());
    assert_eq!(receipt.items()[0].state.as_str(), "stopped");
    let again = fixture.session.stop(&StopTarget::Call(call), user());
    let again = again.receipt().await;
    assert!(again.outcome().is_some(), "it has ended: {again:?}");

    let running = fixture.session.preview(&StopTarget::Turn);
    assert!(!running.items().is_empty(), "its sibling continues");
    let receipt = fixture
        .session
        .stop(&StopTarget::Turn, user())
        .receipt()
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    assert_eq!(outcome.usage.total_tokens(), 4 * COST);
    assert_eq!(fixture.state().await.metered().total_tokens(), 4 * COST);
    fixture.close().await;
}
