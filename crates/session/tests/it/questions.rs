//! Permission questions as events: only the first answer counts, and a stop removes the question.

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
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LONG, agent, fixture, in_order, tools, until, user};

/// Agents with a tool `send_mail`, which needs permission.
#[derive(Debug)]
struct Asks {
    model: Arc<ScriptedModel>,
    /// Arguments of each call of the tool.
    mails: Arc<Mutex<Vec<Arc<Value>>>>,
}

impl Asks {
    fn new(model: Arc<ScriptedModel>) -> Self {
        let mails = Arc::default();
        Self { model, mails }
    }
}

impl AgentSource for Asks {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let mails = Arc::clone(&self.mails);
            let write = ToolFn::new("send_mail", move |call| {
                mails.lock().push(call.arguments);
                async { "sent".to_owned() }
            });
            let policy = Arc::new(PermissionPolicy::default());
            let agent = agent(&self.model)
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
    Asks::new(in_order(vec![
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
    let options = SessionOptions::default().unanswered_after(Duration::from_secs(40));
    let fixture = fixture(asks(), options).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    // With a subscriber, the question stays open.
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
    let options = SessionOptions::default().unanswered_after(None);
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
    let fixture = fixture(Asks::new(model), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let _sent = fixture.session.send("go").unwrap();
    let asked = question(&mut events).await;
    assert_eq!(asked.agents.len(), 2, "{asked:?}");
    assert_eq!(fixture.session.running_calls(), asked.agents[..1]);
    fixture.close().await;
}

/// Three sub-agents ask at the same time. The answers arrive in another order.
#[tokio::test(start_paused = true)]
async fn answer_goes_to_the_question_with_its_id() {
    let write = |to: &str| Reply::text("").call("send_mail", json!({ "to": to }));
    let task = || json!({"prompt": "write to them"});
    let three = Reply::text("").call("agent", task()).call("agent", task());
    let model = in_order(vec![
        three.call("agent", task()),
        write("ann"),
        write("ben"),
        write("cleo"),
        Reply::text("done"),
        Reply::text("done"),
        Reply::text("done"),
        Reply::text("all done"),
    ]);
    let source = Asks::new(model);
    let mails = Arc::clone(&source.mails);
    let fixture = fixture(source, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(question(&mut events).await);
    }
    let allowed = Arc::clone(&open[1].question.arguments);
    for (index, answer) in [
        (1, PermissionAnswer::AllowOnce),
        (1, PermissionAnswer::deny()),
        (0, PermissionAnswer::deny()),
    ] {
        let asked = open.remove(index);
        let taken = fixture.session.answer(&asked.id, answer.clone());
        assert_eq!(taken, AnswerResult::Taken);
        assert_eq!(fixture.session.questions(), open);
        let answered = until(&mut events, |event| match &event.kind {
            SessionEventKind::PermissionAnswered { id, answer } => {
                Some((id.clone(), answer.clone()))
            }
            _ => None,
        });
        assert_eq!(answered.await, (asked.id, Some(answer)));
    }
    assert_eq!(&*sent.outcome().await.output, "all done");
    assert_eq!(*mails.lock(), [allowed]);
    fixture.close().await;
}

/// Regression: the other question read as withdrawn.
#[tokio::test(start_paused = true)]
async fn answer_for_the_session_answers_equal_questions() {
    let step = Reply::text("").call("send_mail", json!({ "to": 1 }));
    let step = step.call("send_mail", json!({ "to": 2 }));
    let asks = Asks::new(in_order(vec![step, Reply::text("done")]));
    let fixture = fixture(asks, SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let (one, _two) = (question(&mut events).await, question(&mut events).await);
    let answer = PermissionAnswer::AllowForSession;
    let taken = fixture.session.answer(&one.id, answer.clone());
    assert_eq!(taken, AnswerResult::Taken);
    for _ in 0..2 {
        let given = until(&mut events, |event| match &event.kind {
            SessionEventKind::PermissionAnswered { answer, .. } => Some(answer.clone()),
            _ => None,
        });
        assert_eq!(given.await, Some(answer.clone()));
    }
    assert!(sent.outcome().await.is_completed());
    fixture.close().await;
}
