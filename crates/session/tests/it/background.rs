//! Ended background work: the model receives a note with the next message, or at once. Tasks stand in for agents and
//! shells.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::TurnError;
use allstop_core::receipt::{ConversationEffect, ItemKind, ItemState, NothingToStop};
use allstop_core::record::{SessionRecord, TurnOrigin};
use allstop_core::{Extent, Receipt, StopReason};
use allstop_model::{Pause, Reply, ScriptedModel};
use allstop_session::{
    AgentRequest, AgentSource, MessageHandle, OnBackgroundEnd, SessionAgent, SessionEventKind,
    SessionOptions, StopTarget,
};
use allstop_testkit::ToolFn;
use allstop_tools::background::{TaskSpec, start_task};
use allstop_tools::{BackgroundHost, BoundedOutput, OutputFolder, OutputLimits};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{LONG, agent, fixture, in_order, text_delta, tools, until, user};

/// An agent with a tool `build`, which starts work that ends when the gate opens.
#[derive(Debug)]
pub(crate) struct Builds {
    model: Arc<ScriptedModel>,
    gate: Arc<Semaphore>,
}

impl AgentSource for Builds {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let now = (Arc::clone(&request.background), Arc::clone(&self.gate));
            let later = (request.background, Arc::clone(&self.gate));
            let later = build_tool("build_later", later, LATER);
            let build = build_tool("build", now, Duration::ZERO);
            let agent = agent(&self.model).tools(tools(vec![build, later])).build();
            Ok(SessionAgent {
                agent,
                resources: None,
            })
        })
    }
}

/// Delay of the tool `build_later`, during which it ignores its scope.
const LATER: Duration = Duration::from_millis(20);

/// A tool that starts a build after this delay.
fn build_tool(
    name: &str,
    (host, gate): (Arc<allstop_agent::SessionBackground>, Arc<Semaphore>),
    delay: Duration,
) -> ToolFn {
    ToolFn::new(name, move |call| {
        let (host, gate) = (Arc::clone(&host), Arc::clone(&gate));
        async move {
            tokio::time::sleep(delay).await;
            let spec = TaskSpec::new(
                call.call_id.clone(),
                call.scope.clone(),
                "build",
                BoundedOutput::new(OutputLimits::default(), Arc::new(OutputFolder::new("/tmp"))),
                allstop_tools::CallLink::unwatched("call".into()),
            );
            let host: &dyn BackgroundHost = &*host;
            let started = start_task(host, spec, move |cx| async move {
                tokio::select! {
                    opened = gate.acquire() => opened.expect("never closed").forget(),
                    _ = cx.scope.stopped_at("gate") => return Err("stopped".to_owned()),
                }
                Ok("built".to_owned())
            });
            started.map_or_else(|refused| refused.to_string(), |work| work.id.to_string())
        }
    })
}

pub(crate) fn builds(replies: Vec<Reply>) -> (Builds, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let builds = Builds {
        model: in_order(replies),
        gate: Arc::clone(&gate),
    };
    (builds, gate)
}

pub(crate) fn asks_for_a_build() -> Vec<Reply> {
    vec![
        Reply::text("").call("build", json!({})),
        Reply::text("it builds"),
    ]
}

#[tokio::test(start_paused = true)]
async fn background_end_is_noted_once_with_the_next_message() {
    let mut replies = asks_for_a_build();
    replies.extend([Reply::text("I see"), Reply::text("fine")]);
    let (source, gate) = builds(replies);
    let fixture = fixture(source, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    fixture.session.send("build it").unwrap().outcome().await;
    gate.add_permits(1);
    until(&mut events, |event| {
        matches!(event.kind, SessionEventKind::SessionIdle { .. }).then_some(())
    })
    .await;
    fixture.session.send("and now?").unwrap().outcome().await;
    fixture.session.send("good").unwrap().outcome().await;
    let said = fixture.said().await;
    let notes: Vec<usize> = (0..said.len())
        .filter(|at| said[*at].starts_with("note: "))
        .collect();
    assert_eq!(notes.len(), 1, "{said:?}");
    assert!(
        said[notes[0]].contains("bg_1") && said[notes[0]].contains("built"),
        "{said:?}"
    );
    assert_eq!(said[notes[0] + 1], "user: and now?");
    let records = fixture.records().await;
    let ends = records
        .iter()
        .filter(|record| matches!(record, SessionRecord::BackgroundEnded { .. }));
    assert_eq!(ends.count(), 1, "the terminal state is recorded once");
    fixture.close().await;
}

/// A rolled-back turn has not informed the model, so the note is sent again.
#[tokio::test(start_paused = true)]
async fn note_of_a_stopped_turn_is_sent_again() {
    let mut replies = asks_for_a_build();
    replies.push(Reply::text("half").pause(allstop_model::Pause::Forever));
    replies.push(Reply::text("whole"));
    let (source, gate) = builds(replies);
    let fixture = fixture(source, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let waited = fixture
        .session
        .send_and_wait("build it", std::time::Duration::from_secs(1));
    assert!(waited.await.unwrap().timed_out);
    gate.add_permits(1);
    until(&mut events, |event| {
        matches!(event.kind, SessionEventKind::SessionIdle { .. }).then_some(())
    })
    .await;
    let stopped = fixture.session.send("and now?").unwrap();
    until(&mut events, |event| {
        matches!(&event.kind, SessionEventKind::Live(allstop_agent::AgentEvent::TextDelta { text }) if &**text == "half").then_some(())
    })
    .await;
    fixture
        .session
        .stop(&StopTarget::Turn, user())
        .receipt()
        .await;
    assert_eq!(stopped.outcome().await.stop_reason, StopReason::Cancelled);
    fixture.session.send("well?").unwrap().outcome().await;
    let said = fixture.said().await;
    assert_eq!(
        said.iter()
            .filter(|said| said.starts_with("note: "))
            .count(),
        1,
        "{said:?}"
    );
    assert_eq!(said.last().unwrap(), "model: whole");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn background_end_wakes_the_model_under_that_policy() {
    let mut replies = asks_for_a_build();
    replies.push(Reply::text("it is built"));
    let (source, gate) = builds(replies);
    let options = SessionOptions::default().on_background_end(OnBackgroundEnd::Wake);
    let fixture = fixture(source, options).await;
    let mut events = fixture.session.subscribe(None);
    fixture.session.send("build it").unwrap().outcome().await;
    gate.add_permits(1);
    let mut turns = 0;
    until(&mut events, |event| {
        if let SessionEventKind::AssistantIdle { .. } = event.kind {
            turns += 1;
        }
        (turns == 2).then_some(())
    })
    .await;
    let said = fixture.said().await;
    assert!(said[said.len() - 2].starts_with("note: "), "{said:?}");
    assert_eq!(said.last().unwrap(), "model: it is built");
    let woken = fixture
        .records()
        .await
        .into_iter()
        .find_map(|record| match record {
            SessionRecord::TurnStarted {
                origin: TurnOrigin::Background,
                message,
                ..
            } => Some(message),
            _ => None,
        });
    assert_eq!(
        woken,
        Some(None),
        "a separate turn, which no message caused"
    );
    fixture.close().await;
}

/// If a call ignores the stop and then tries to start background work, this work does not start.
#[tokio::test(start_paused = true)]
async fn background_work_of_a_deaf_call_is_refused_after_a_stop() {
    for is_of_message in [false, true] {
        let (source, _gate) = builds(vec![Reply::text("").call("build_later", json!({}))]);
        let fixture = fixture(source, SessionOptions::default()).await;
        let sent = fixture.session.send("build it").unwrap();
        tokio::time::sleep(LATER / 2).await;
        let target = if is_of_message {
            StopTarget::MessageWork(sent.id.clone())
        } else {
            StopTarget::TurnAndBackground
        };
        let receipt = fixture.session.stop(&target, user()).receipt().await;
        assert!(receipt.quiet(), "{receipt:?}");
        sent.outcome().await;
        tokio::time::sleep(LATER * 2).await;
        let works = fixture.session.background();
        assert!(works.iter().all(|work| !work.is_running()), "{works:?}");
        fixture.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_message_covers_only_its_turn_and_work() {
    let mut replies = asks_for_a_build();
    replies.push(Reply::text("").call("build", json!({})));
    replies.push(Reply::text("half").pause(Pause::Forever));
    let (source, _gate) = builds(replies);
    let fixture = fixture(source, SessionOptions::default()).await;
    let first = fixture.session.send("build it").unwrap();
    first.outcome().await;
    let mut events = fixture.session.subscribe(None);
    let second = fixture.session.send("build it").unwrap();
    text_delta(&mut events).await;
    let running = |sent: &MessageHandle| {
        let works = fixture.session.background_of(&sent.id).into_iter();
        works.map(|work| work.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        (running(&first), running(&second)),
        (vec!["bg_1".to_owned()], vec!["bg_2".to_owned()])
    );
    let all_of = |sent: &MessageHandle| StopTarget::MessageWork(sent.id.clone());
    let ids = |receipt: &Receipt| {
        let items = receipt.items().iter();
        let mut ids: Vec<_> = items.map(|item| item.id.to_string()).collect();
        ids.sort();
        ids
    };
    let preview = fixture.session.preview(&all_of(&second));
    assert_eq!(ids(&preview), ["bg_2", "step_2"]);

    let receipt = fixture
        .session
        .stop(&all_of(&second), user())
        .receipt()
        .await;
    assert_eq!(ids(&receipt), ["bg_2", "step_2"], "{receipt:?}");
    assert_eq!(receipt.request().extent, Extent::Subtree);
    assert_eq!(second.outcome().await.stop_reason, StopReason::Cancelled);
    assert_eq!(running(&first), ["bg_1"]);

    let receipt = fixture
        .session
        .stop(&all_of(&first), user())
        .receipt()
        .await;
    assert_eq!(ids(&receipt), ["bg_1"], "{receipt:?}");
    assert!(fixture.session.background_of(&first.id).is_empty());
    let again = fixture
        .session
        .stop(&all_of(&first), user())
        .receipt()
        .await;
    assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn each_stop_extent_covers_exactly_its_work() {
    let mut replies = asks_for_a_build();
    replies.extend(asks_for_a_build());
    replies.extend(asks_for_a_build());
    let (source, _gate) = builds(replies);
    let fixture = fixture(source, SessionOptions::default()).await;
    let sent = fixture.session.send("build it").unwrap();
    sent.outcome().await;
    fixture.session.send("build it").unwrap().outcome().await;
    let running = || {
        let works = fixture.session.background();
        works
            .iter()
            .filter(|work| work.is_running())
            .map(|work| work.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(running(), ["bg_1", "bg_2"]);
    let preview = fixture.session.preview(&StopTarget::TurnAndBackground);
    assert!(preview.is_preview() && preview.items().len() == 2);
    assert_eq!(running().len(), 2, "a preview stops nothing");
    // No turn runs, so a stop of the turn and its preview find nothing.
    let preview = fixture.session.preview(&StopTarget::Turn);
    let receipt = fixture
        .session
        .stop(&StopTarget::Turn, user())
        .receipt()
        .await;
    assert_eq!(preview.outcome(), receipt.outcome());
    assert_eq!(preview.items(), receipt.items());
    assert_eq!(preview.request().target, receipt.request().target);

    let one = StopTarget::Background("bg_1".into());
    let receipt = fixture.session.stop(&one, user()).receipt().await;
    assert!(receipt.quiet() && receipt.outcome().is_none());
    assert_eq!(running(), ["bg_2"]);
    let again = fixture.session.stop(&one, user()).receipt().await;
    assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
    // A preview agrees with a stop, also about ended and unknown work. An ended turn has no message to stop.
    for (target, outcome) in [
        (one, NothingToStop::AlreadyEnded),
        (
            StopTarget::Message(sent.id.clone()),
            NothingToStop::NotFound,
        ),
        (
            StopTarget::Background("bg_9".into()),
            NothingToStop::NotFound,
        ),
    ] {
        let preview = fixture.session.preview(&target);
        let receipt = fixture.session.stop(&target, user()).receipt().await;
        assert_eq!(preview.outcome(), Some(outcome), "{target:?}");
        assert_eq!(receipt.outcome(), Some(outcome), "{target:?}");
    }

    let receipt = fixture
        .session
        .stop(&StopTarget::TurnAndBackground, user())
        .receipt()
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
    let stopped = |state: &ItemState| matches!(state, ItemState::Stopped { .. });
    assert!(
        receipt.items().iter().any(|item| stopped(&item.state)),
        "{receipt:?}"
    );
    assert!(running().is_empty());

    // The session continues, and can start background work again.
    fixture.session.send("build it").unwrap().outcome().await;
    assert_eq!(running(), ["bg_3"]);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn wait_resolves_when_the_background_task_ends() {
    let (source, gate) = builds(asks_for_a_build());
    let fixture = fixture(source, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let session = fixture.session.clone();
    let opens = async {
        until(&mut events, |event| {
            matches!(&event.kind, SessionEventKind::AssistantIdle { running, .. } if running.len() == 1).then_some(())
        })
        .await;
        gate.add_permits(1);
    };
    let (waited, ()) = tokio::join!(session.send_and_wait("build it", LONG), opens);
    let waited = waited.unwrap();
    assert!(!waited.timed_out && waited.running.is_empty());
    fixture.close().await;
}

/// The end of one piece of work causes a change event, but does not end the wait for all work.
#[tokio::test(start_paused = true)]
async fn wait_lasts_until_the_last_background_task_ends() {
    let mut replies = asks_for_a_build();
    replies.extend(asks_for_a_build());
    let (source, gate) = builds(replies);
    let fixture = fixture(source, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    fixture.session.send("build it").unwrap().outcome().await;
    let session = fixture.session.clone();
    let wait = session.send_and_wait("build it", LONG);
    let mut wait = std::pin::pin!(wait);
    let first_ends = async {
        until(&mut events, |event| {
            matches!(&event.kind, SessionEventKind::AssistantIdle { running, .. } if running.len() == 2).then_some(())
        })
        .await;
        gate.add_permits(1);
        until(&mut events, |event| match &event.kind {
            SessionEventKind::BackgroundChanged { running } if running.len() == 1 => {
                Some(running[0].id.clone())
            }
            _ => None,
        })
        .await
    };
    let left = tokio::select! {
        biased;
        waited = &mut wait => panic!("one task still runs: {waited:?}"),
        left = first_ends => left,
    };
    let works = fixture.session.background();
    assert!(
        works
            .iter()
            .any(|work| work.id == left && work.is_running())
    );
    gate.add_permits(1);
    let waited = wait.await.unwrap();
    assert!(!waited.timed_out && waited.running.is_empty(), "{waited:?}");
    assert!(waited.outcome.is_some_and(|outcome| outcome.is_completed()));
    fixture.close().await;
}

/// A session can stop all work of the process. One receipt covers this work, including the session's own turn.
#[tokio::test(start_paused = true)]
async fn process_stop_covers_every_session_in_one_receipt() {
    let mut replies = asks_for_a_build();
    replies.push(Reply::text("half").pause(Pause::Forever));
    replies.push(Reply::text("other").pause(Pause::Forever));
    let (source, _gate) = builds(replies);
    let fixture = fixture(source, SessionOptions::default()).await;
    let other = fixture.sessions.create(Some("s2".into()), "/tmp").await;
    let other = other.expect("a second session");
    fixture.session.send("build it").unwrap().outcome().await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("and now?").unwrap();
    assert_eq!(text_delta(&mut events).await, "half");
    let mut events = other.subscribe(None);
    let beside = other.send("beside it").unwrap();
    assert_eq!(text_delta(&mut events).await, "other");

    let stopping = fixture.session.stop(&StopTarget::Process, user());
    let now = stopping.account_now();
    assert_eq!(now.request().extent, Extent::Process);
    // The turn engine has not acknowledged the stop yet.
    assert_eq!(now.conversation(), ConversationEffect::Unknown);
    let receipt = stopping.receipt().await;
    assert_eq!(receipt.request().extent, Extent::Process);
    assert_eq!(&*receipt.request().target, "test", "the host's scope");
    assert!(receipt.quiet() && receipt.cancel_observed(), "{receipt:?}");
    let of_kind = |kind: ItemKind| {
        let items = receipt.items().iter();
        items.filter(|item| item.kind == kind).count()
    };
    assert_eq!(of_kind(ItemKind::ModelCall), 2, "{receipt:?}");
    assert_eq!(of_kind(ItemKind::Background), 1, "{receipt:?}");
    assert_eq!(receipt.items().len(), 3, "{receipt:?}");
    assert!(fixture.root.is_quiet());

    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    assert_eq!(receipt.conversation(), ConversationEffect::Unchanged);
    assert_eq!(receipt.usage(), outcome.usage);
    assert!(outcome.usage.output_tokens > 0 && outcome.usage.estimated);
    let beside = beside.outcome().await;
    assert_eq!(beside.stop_reason, StopReason::Cancelled);
    for session in [&fixture.session, &other] {
        assert!(
            session.send("more").is_err(),
            "no message is accepted any more"
        );
        session.close().await;
    }
    fixture.state().await;
}
