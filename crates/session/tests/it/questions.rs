//! Permission questions as events: answered once, by whoever is first; taken away by a stop.

use std::sync::Arc;

use allstop_agent::TurnError;
use allstop_core::StopReason;
use allstop_model::{Reply, ScriptedModel};
use allstop_session::{
    AgentRequest, AgentSource, Answered, OpenQuestion, SessionAgent, SessionEventKind,
    SessionOptions, StopTarget, Subscription,
};
use allstop_testkit::ToolFn;
use allstop_tools::{Answer, PermissionPolicy};
use serde_json::json;

use crate::support::{agent, fixture, in_order, tools, until, user};

#[derive(Debug)]
struct Asks(Arc<ScriptedModel>);

impl AgentSource for Asks {
    fn agent(&self, request: AgentRequest) -> Result<SessionAgent, TurnError> {
        let write = ToolFn::new("send_mail", |_| async { "sent".to_owned() });
        let policy = Arc::new(PermissionPolicy::default());
        let agent = agent(&self.0)
            .tools(tools(vec![write]))
            .permissions(policy, request.prompter)
            .build();
        Ok(SessionAgent { agent, kept: None })
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
async fn the_first_answer_counts() {
    let fixture = fixture(asks(), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    assert_eq!(fixture.session.questions(), std::slice::from_ref(&asked));
    assert_eq!(
        fixture.session.answer(&"q_9".into(), Answer::Deny),
        Answered::NotFound
    );
    assert_eq!(
        fixture.session.answer(&asked.id, Answer::AllowOnce),
        Answered::Taken
    );
    assert_eq!(
        fixture.session.answer(&asked.id, Answer::Deny),
        Answered::TooLate
    );
    let outcome = sent.outcome().await;
    assert!(outcome.denials.is_empty() && &*outcome.output == "done");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_the_question_away_and_is_no_denial() {
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
        fixture.session.answer(&asked.id, Answer::AllowOnce),
        Answered::TooLate
    );
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn where_nobody_watches_the_call_is_denied_and_not_waited_for() {
    let fixture = fixture(asks(), SessionOptions::default()).await;
    let outcome = fixture.session.send("go").unwrap().outcome().await;
    assert_eq!(outcome.denials.len(), 1);
    assert_eq!(&*outcome.output, "done");
    fixture.close().await;
}
