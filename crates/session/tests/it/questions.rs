//! Permission questions as events: answered once, by the first answer; removed by a stop.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{SubAgents, TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_model::{Reply, ScriptedModel};
use allstop_session::{
    AgentRequest, AgentSource, AnswerResult, OpenQuestion, SessionAgent, SessionEventKind,
    SessionOptions, StopTarget, Subscription,
};
use allstop_testkit::ToolFn;
use allstop_tools::{PermissionAnswer, PermissionPolicy};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LONG, agent, fixture, in_order, tools, until, user};

#[derive(Debug)]
struct Asks(Arc<ScriptedModel>);

impl AgentSource for Asks {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let write = ToolFn::new("send_mail", |_| async { "sent".to_owned() });
            let policy = Arc::new(PermissionPolicy::default());
            let agent = agent(&self.0)
                .tools(tools(vec![write]))
                .permissions(policy, request.prompter)
                .build();
            let agent = agent.with_sub_agents(SubAgents::default());
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

fn asks() -> Asks {
    Asks(in_order(vec![
        Reply::text("").call("send_mail", json!({})),
        Reply::text("done"),
    ]))
}

async fn question(events: &mut Subscription) -> OpenQuestion {
    until(events, |event| match &event.kind {
        SessionEventKind::PermissionAsked(question) => Some(question.clone()),
        _ => None,
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn first_answer_to_a_question_counts() {
    let fixture = fixture(asks(), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    assert_eq!(fixture.session.questions(), std::slice::from_ref(&asked));
    assert_eq!(
        fixture
            .session
            .answer(&"q_9".into(), PermissionAnswer::deny()),
        AnswerResult::NotFound
    );
    assert_eq!(
        fixture
            .session
            .answer(&asked.id, PermissionAnswer::AllowOnce),
        AnswerResult::Taken
    );
    assert_eq!(
        fixture.session.answer(&asked.id, PermissionAnswer::deny()),
        AnswerResult::TooLate
    );
    let outcome = sent.outcome().await;
    assert!(outcome.denials.is_empty() && &*outcome.output == "done");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stop_removes_the_question_without_a_denial() {
    let fixture = fixture(asks(), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    let receipt = fixture
        .session
        .stop(&StopTarget::Turn, user())
        .receipt()
        .await;
    assert!(receipt.quiet());
    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    assert!(outcome.denials.is_empty());
    assert!(fixture.session.questions().is_empty());
    assert_eq!(
        fixture
            .session
            .answer(&asked.id, PermissionAnswer::AllowOnce),
        AnswerResult::TooLate
    );
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn call_is_denied_at_once_without_subscribers() {
    let fixture = fixture(asks(), SessionOptions::default()).await;
    let outcome = fixture.session.send("go").unwrap().outcome().await;
    assert_eq!(outcome.denials.len(), 1);
    assert_eq!(&*outcome.output, "done");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn question_is_denied_after_the_last_subscriber_left() {
    let options = SessionOptions {
        unanswered_after: Some(Duration::from_secs(40)),
        ..SessionOptions::default()
    };
    let fixture = fixture(asks(), options).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    // With a subscriber the question waits.
    sleep(LONG).await;
    assert_eq!(fixture.session.questions().len(), 1);
    let left_at = Instant::now();
    drop(events);
    let outcome = sent.outcome().await;
    assert_eq!(left_at.elapsed().as_secs(), 40);
    assert_eq!(&*outcome.output, "done");
    let reason = &outcome.denials[0].reason;
    assert!(reason.contains("no terminal or client"), "{reason}");
    let late = fixture
        .session
        .answer(&asked.id, PermissionAnswer::AllowOnce);
    assert_eq!(late, AnswerResult::TooLate);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn returning_subscriber_gets_the_question_first_and_once() {
    let fixture = fixture(asks(), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    drop(events);
    // Each absence is timed separately.
    for _ in 0..3 {
        sleep(Duration::from_secs(40)).await;
        drop(fixture.session.subscribe(None));
    }
    let mut events = fixture.session.subscribe(None);
    let first = timeout(LONG, events.next()).await.expect("it is asked");
    let first = first.unwrap().unwrap();
    assert!(
        matches!(&first.kind, SessionEventKind::PermissionAsked(again) if *again == asked),
        "{first:?}"
    );
    assert_eq!(first.message.as_ref(), Some(&sent.id));
    sleep(LONG).await;
    let answer = fixture
        .session
        .answer(&asked.id, PermissionAnswer::AllowOnce);
    assert_eq!(answer, AnswerResult::Taken);
    assert!(sent.outcome().await.denials.is_empty());
    fixture.session.close().await;
    while let Some(event) = events.next().await.unwrap() {
        let again = matches!(event.kind, SessionEventKind::PermissionAsked(_));
        assert!(!again, "{event:?}");
    }
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn wait_result_lists_open_questions() {
    let options = SessionOptions {
        unanswered_after: None,
        ..SessionOptions::default()
    };
    let fixture = fixture(asks(), options).await;
    let mut events = fixture.session.subscribe(None);
    let waiting = fixture.session.send_and_wait("go", LONG);
    let leaving = async {
        let asked = question(&mut events).await;
        drop(events);
        asked
    };
    let (waited, asked) = tokio::join!(waiting, leaving);
    let waited = waited.unwrap();
    assert!(waited.timed_out);
    assert_eq!(waited.questions, [asked]);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn question_names_the_sub_agent_that_asks() {
    let task = json!({"prompt": "write to them"});
    let model = in_order(vec![
        Reply::text("").call("agent", task.clone()),
        Reply::text("").call("agent", task),
        Reply::text("").call("send_mail", json!({})),
        Reply::text("done"),
    ]);
    let fixture = fixture(Asks(model), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let _sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    assert_eq!(asked.agents.len(), 2, "{asked:?}");
    assert_eq!(fixture.session.running_calls(), asked.agents[..1]);
    fixture.close().await;
}
