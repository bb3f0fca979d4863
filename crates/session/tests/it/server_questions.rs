//! Questions of tools' servers as events: a client with a form answers them, and a stop or the end of the client closes
//! them.

use std::sync::Arc;

use allstop_agent::TurnError;
use allstop_core::{Effect, StopReason};
use allstop_model::{Reply, ScriptedModel};
use allstop_session::{
    AgentRequest, AgentSource, AnswerResult, OpenServerQuestion, SessionAgent, SessionEventKind,
    SessionOptions, StopTarget, Subscription,
};
use allstop_testkit::ToolFn;

use allstop_tools::{FormAnswer, PermissionPolicy, ServerQuestion, ToolInvocation, WantedInput};
use futures::future::BoxFuture;
use serde_json::{Map, json};

use crate::support::{Fixture, agent, fixture, in_order, tools, until, user};

/// Agents with a tool `ask`, whose result is the answer to its question.
#[derive(Debug)]
struct Asks(Arc<ScriptedModel>);

impl AgentSource for Asks {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let policy = Arc::new(PermissionPolicy::default());
            let agent = agent(&self.0)
                .tools(tools(vec![
                    ToolFn::new("ask", ask).effect(Effect::ReadOnly),
                ]))
                .permissions(policy, request.prompter)
                .build();
            Ok(SessionAgent {
                agent,
                resources: None,
            })
        })
    }
}

async fn ask(call: ToolInvocation) -> String {
    let prompter = call.link.prompter().expect("the call belongs to a session");
    let question = ServerQuestion {
        session_id: call.session_id.clone(),
        call_id: call.call_id.clone(),
        server: "s".into(),
        message: "Your name?".into(),
        wanted: WantedInput::Form(Vec::new()),
    };
    tokio::select! {
        answer = prompter.answer_server(question) => format!("{answer:?}"),
        cause = call.scope.stopped_at("question") => cause.to_string(),
    }
}

async fn asking() -> Fixture {
    let model = in_order(vec![
        Reply::text("").call("ask", json!({})),
        Reply::text("done"),
    ]);
    fixture(Asks(model), SessionOptions::default()).await
}

async fn question(events: &mut Subscription) -> OpenServerQuestion {
    until(events, |event| match &event.kind {
        SessionEventKind::ServerAsked(question) => Some(OpenServerQuestion::clone(question)),
        _ => None,
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn first_answer_of_a_client_with_a_form_counts() {
    let fixture = asking().await;
    let session = &fixture.session;
    let _client = session.form_client();
    let mut events = session.subscribe(None);
    let sent = session.send("go").unwrap();
    let asked = question(&mut events).await;
    assert_eq!(session.server_questions(), std::slice::from_ref(&asked));
    let answer = FormAnswer::Accept(Map::new());
    assert_eq!(
        session.answer_server(&"form_9".into(), answer.clone()),
        AnswerResult::NotFound
    );
    assert_eq!(
        session.answer_server(&asked.id, answer),
        AnswerResult::Taken
    );
    assert_eq!(
        session.answer_server(&asked.id, FormAnswer::Decline),
        AnswerResult::TooLate
    );
    assert_eq!(&*sent.outcome().await.output, "done");
    assert!(
        fixture
            .said()
            .await
            .iter()
            .any(|said| said.contains("Accept({})"))
    );
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stop_removes_the_question() {
    let fixture = asking().await;
    let session = &fixture.session;
    let _client = session.form_client();
    let mut events = session.subscribe(None);
    let sent = session.send("go").unwrap();
    let asked = question(&mut events).await;
    let receipt = session.stop(&StopTarget::Turn, user()).receipt().await;
    assert!(receipt.quiet());
    assert_eq!(sent.outcome().await.stop_reason, StopReason::Cancelled);
    assert!(session.server_questions().is_empty());
    assert_eq!(
        session.answer_server(&asked.id, FormAnswer::Decline),
        AnswerResult::TooLate
    );
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn question_without_a_client_counts_as_unanswered() {
    for leaves_later in [true, false] {
        let fixture = asking().await;
        let session = &fixture.session;
        // Other subscribers have no form.
        let mut events = session.subscribe(None);
        let client = leaves_later.then(|| session.form_client());
        let sent = session.send("go").unwrap();
        if let Some(client) = client {
            question(&mut events).await;
            drop(client);
        }
        assert_eq!(&*sent.outcome().await.output, "done");
        assert!(
            fixture
                .said()
                .await
                .iter()
                .any(|said| said.contains("Unanswered"))
        );
        fixture.close().await;
    }
}
