//! The answer of a task while it arrives.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Guardrail, GuardrailStage, GuardrailVerdict, HookCx};
use allstop_model::{ModelError, ModelErrorKind, Pause, Reply};
use allstop_task::model::PartContent;
use allstop_task::{LiveItem, LiveSubscription, SubscriptionItem, TaskRecord, TaskState};
use futures::future::BoxFuture;
use serde_json::json;

use super::support::{AgentTasks, TestAgents, WorkTool, answer, soon};

/// The texts that a client shows one after the other, and the number of pieces.
#[derive(Debug, Default)]
struct Display {
    text: String,
    replaced: Vec<String>,
    pieces: usize,
    has_artifact: bool,
}

impl Display {
    async fn read(&mut self, live: &mut LiveSubscription, until: &str) {
        while until.is_empty() || !self.text.contains(until) {
            let Some(item) = soon(live.next()).await else {
                return;
            };
            match item.expect("memory") {
                LiveItem::Piece(piece) => {
                    assert!(
                        !self.has_artifact,
                        "no piece follows the artifact: {piece:?}"
                    );
                    assert_eq!(
                        (&*piece.artifact_id, piece.name.as_deref()),
                        ("answer", Some("answer"))
                    );
                    self.pieces += 1;
                    if !piece.append && !self.text.is_empty() {
                        self.replaced.push(std::mem::take(&mut self.text));
                    }
                    self.text.push_str(&piece.text);
                }
                LiveItem::Durable(SubscriptionItem::Update(update)) => {
                    if let TaskRecord::ArtifactUpdated { update, .. } = &*update.record {
                        assert!(update.is_last_chunk && !update.append, "{update:?}");
                        let PartContent::Text(text) = &update.artifact.parts[0].content else {
                            panic!("{update:?}");
                        };
                        self.text = text.to_string();
                        self.has_artifact = true;
                    }
                }
                LiveItem::Durable(SubscriptionItem::Snapshot(..)) => {}
            }
        }
    }
}

/// Runs one task to its end.
async fn shown(agents: TestAgents) -> (Display, AgentTasks, TaskState) {
    let tasks = AgentTasks::new(agents).await;
    let started = tasks.start("m1", "Hello").await;
    let id = started.task_id.clone();
    let mut display = Display::default();
    display
        .read(&mut started.subscription.with_live_text(), "")
        .await;
    let state = tasks.task(&id).await.status.state;
    (display, tasks, state)
}

fn pause() -> Pause {
    Pause::For(Duration::from_millis(100))
}

fn cut() -> ModelError {
    ModelError::new(ModelErrorKind::Disconnected, "cut".to_owned())
}

#[tokio::test(start_paused = true)]
async fn answer_is_shown_while_it_arrives() {
    let mut reply = Reply::default();
    for number in 0..20 {
        reply = reply.and_text(format!("{number} ")).pause(pause());
    }
    let (display, ..) = shown(TestAgents::new(vec![reply])).await;
    assert_eq!(display.pieces, 20);
    assert!(display.replaced.is_empty(), "{display:?}");
    assert!(display.has_artifact && display.text.ends_with("18 19 "));
}

/// Only the text of the last model call is the answer.
#[tokio::test(start_paused = true)]
async fn every_model_call_replaces_the_text() {
    let work = WorkTool::new();
    work.gate.add_permits(1);
    let agents = TestAgents::new(vec![
        Reply::text("Let me look.")
            .pause(pause())
            .call("work", json!({})),
        Reply::text("Half an ans").pause(pause()).fail(cut()),
        Reply::text("Three").pause(pause()).and_text(" files."),
    ]);
    let (display, ..) = shown(agents.tools(move |_| vec![work.tool()])).await;
    assert_eq!(display.replaced, ["Let me look.", "Half an ans"]);
    assert_eq!(display.text, "Three files.");
    assert!(display.has_artifact);
}

#[tokio::test(start_paused = true)]
async fn text_of_a_stopped_turn_is_withdrawn() {
    let reply = Reply::text("The key is")
        .pause(pause())
        .and_text(" 42")
        .pause(Pause::Forever);
    let tasks = AgentTasks::new(TestAgents::new(vec![reply])).await;
    let started = tasks.start("m1", "Hello").await;
    let id = started.task_id.clone();
    let (mut display, mut live) = (Display::default(), started.subscription.with_live_text());
    display.read(&mut live, "42").await;
    let outcome = tasks.cancel(&id).await;
    assert!(outcome.receipt.quiet());
    display.read(&mut live, "").await;
    assert_eq!(display.replaced, ["The key is 42"]);
    assert_eq!((display.text.as_str(), display.has_artifact), ("", false));
}

#[derive(Debug)]
struct SecretCheck(Arc<str>);

impl Guardrail for SecretCheck {
    fn name(&self) -> &Arc<str> {
        &self.0
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        stage == GuardrailStage::Output
    }

    fn check(
        &self,
        _: &HookCx,
        _: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        let verdict = if text.contains("secret") {
            let reason = "a secret".to_owned();
            GuardrailVerdict::Refuse { reason }
        } else {
            GuardrailVerdict::Pass
        };
        Box::pin(std::future::ready(verdict))
    }
}

/// The guardrail has to see the text first, so no piece of it is shown.
#[tokio::test(start_paused = true)]
async fn answer_with_a_guardrail_is_shown_only_after_its_check() {
    for (text, expected) in [
        ("all fine", TaskState::Completed),
        ("the secret", TaskState::Failed),
    ] {
        let reply = Reply::text(text)
            .pause(pause())
            .and_text(", bye")
            .pause(pause());
        let mut agents = TestAgents::new(vec![reply]);
        agents.guardrail = Some(Arc::new(SecretCheck("secrets".into())));
        let (display, tasks, state) = shown(agents).await;
        assert_eq!((display.pieces, state), (0, expected), "{display:?}");
        assert_eq!(display.has_artifact, state == TaskState::Completed);
        if display.has_artifact {
            let session = tasks.session();
            assert!(!session.is_busy());
            assert_eq!(display.text, "all fine, bye");
        }
    }
}

/// The next task of a context shows only its own answer.
#[tokio::test(start_paused = true)]
async fn waiting_task_shows_only_its_own_text() {
    let tasks = AgentTasks::new(TestAgents::new(vec![
        Reply::text("first").pause(pause()),
        Reply::text("second").pause(pause()),
    ]))
    .await;
    let first = tasks.start("m1", "Hello").await;
    let second = tasks.start("m2", "Hello again").await;
    let (of_first, of_second) = (first.task_id.clone(), second.task_id.clone());
    let mut displays = [Display::default(), Display::default()];
    let [one, two] = &mut displays;
    let (mut first, mut second) = (
        first.subscription.with_live_text(),
        second.subscription.with_live_text(),
    );
    tokio::join!(one.read(&mut first, ""), two.read(&mut second, ""));
    for (display, (id, text)) in displays
        .iter()
        .zip([(of_first, "first"), (of_second, "second")])
    {
        assert_eq!((display.pieces, display.text.as_str()), (1, text));
        assert!(display.replaced.is_empty());
        let task = tasks.task(&id).await;
        assert_eq!(answer(&task), text);
    }
}
