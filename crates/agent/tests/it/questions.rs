//! Permission questions of parallel calls: asked together, answered in any order.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, AgentEvent, Deadlines, EventSink, RunRequest, Settings, TurnOutcome};
use allstop_core::receipt::{ItemKind, WaitReason};
use allstop_core::{CallId, Cause, CauseKind, Effect, Message, StopReason};
use allstop_model::Reply;
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::ToolFn;
use allstop_tools::{PermissionAnswer, PermissionPolicy, PermissionQuestion, Prompter};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::{LONG, agent, ended, history, model, root, tools};

/// A question that waits for the test's answer.
struct Asked {
    call: String,
    answer: oneshot::Sender<PermissionAnswer>,
}

impl Asked {
    fn answer(self, answer: PermissionAnswer) {
        self.answer.send(answer).expect("the question is open");
    }

    /// Waits until the agent withdraws the question.
    async fn withdrawn(&mut self) {
        let closed = timeout(LONG, self.answer.closed()).await;
        closed.expect("the question is withdrawn");
    }
}

#[derive(Debug)]
struct Person(mpsc::UnboundedSender<Asked>);

impl Prompter for Person {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        let (answer, answered) = oneshot::channel();
        let call = question.call_id.to_string();
        self.0.send(Asked { call, answer }).expect("a test");
        Box::pin(async move { answered.await.expect("an answer") })
    }
}

/// An agent, the questions that it asks, and the calls that have started.
struct Fixture {
    agent: Agent,
    asked: mpsc::UnboundedReceiver<Asked>,
    started: mpsc::UnboundedReceiver<String>,
}

impl Fixture {
    /// `look` needs no permission; `mail` and `alone` do, and `alone` never runs beside another call.
    fn new(step: Reply) -> Self {
        Self::with_deadlines(step, Deadlines::default())
    }

    fn with_deadlines(step: Reply, deadlines: Deadlines) -> Self {
        let model = model(vec![step, Reply::text("done")]);
        let (tx, asked) = mpsc::unbounded_channel();
        let (start, started) = mpsc::unbounded_channel();
        let tool = |name: &str| {
            let start = start.clone();
            ToolFn::new(name, move |call| {
                let start = start.clone();
                async move {
                    start.send(call.call_id.to_string()).expect("a test");
                    call.call_id.to_string()
                }
            })
        };
        let look = tool("look").effect(Effect::ReadOnly);
        let registry = tools(vec![look, tool("mail"), tool("alone").alone()]);
        let settings = Settings::default().deadlines(deadlines);
        let agent = agent(&model)
            .settings(settings)
            .tools(registry)
            .permissions(Arc::new(PermissionPolicy::default()), Arc::new(Person(tx)))
            .build();
        Self {
            agent,
            asked,
            started,
        }
    }

    async fn question(&mut self) -> Asked {
        let asked = timeout(LONG, self.asked.recv()).await;
        asked.expect("a question").expect("the agent")
    }

    async fn start(&mut self) -> String {
        let started = timeout(LONG, self.started.recv()).await;
        started.expect("a start").expect("the agent")
    }

    /// Waits until all other work waits, too, because the paused clock moves only then. Expects that no call started.
    async fn no_start(&mut self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(self.started.try_recv().is_err());
    }
}

fn calls(names: &[&str]) -> Reply {
    let reply = Reply::text("");
    let numbered = names.iter().enumerate();
    numbered.fold(reply, |reply, (n, name)| {
        reply.call(*name, json!({ "n": n }))
    })
}

/// Returns the results in the conversation, in the order of the calls.
fn results(turn: &TurnOutcome) -> Vec<String> {
    let messages = turn.conversation.messages.iter();
    let results = messages.filter_map(|message| match &**message {
        Message::Tool(result) => Some(result.content.to_string()),
        _ => None,
    });
    results.collect()
}

#[tokio::test(start_paused = true)]
async fn questions_of_a_step_are_asked_together() {
    let mut fixture = Fixture::new(calls(&["mail", "mail", "mail"]));
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let one = fixture.question().await;
    let two = fixture.question().await;
    let three = fixture.question().await;
    let (first, third) = (one.call.clone(), three.call.clone());
    // The answers come in the opposite order, and one of them is a denial.
    three.answer(PermissionAnswer::AllowOnce);
    assert_eq!(fixture.start().await, third);
    two.answer(PermissionAnswer::deny());
    one.answer(PermissionAnswer::AllowOnce);
    assert_eq!(fixture.start().await, first);
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert_eq!(turn.denials.len(), 1);
    let denied = "the call did not run: permission was denied";
    assert_eq!(results(&turn), [first.as_str(), denied, third.as_str()]);
}

#[tokio::test(start_paused = true)]
async fn allowed_call_does_not_wait_for_the_questions_of_others() {
    let mut fixture = Fixture::new(calls(&["mail", "look"]));
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let asked = fixture.question().await;
    assert_ne!(fixture.start().await, asked.call);
    fixture.no_start().await;
    let id = asked.call.clone();
    asked.answer(PermissionAnswer::AllowOnce);
    assert_eq!(fixture.start().await, id);
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn call_that_runs_alone_keeps_its_place() {
    let mut fixture = Fixture::new(calls(&["mail", "alone", "look"]));
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let (mail, alone) = (fixture.question().await, fixture.question().await);
    let ids = (mail.call.clone(), alone.call.clone());
    alone.answer(PermissionAnswer::AllowOnce);
    // The call before it has no answer yet, and the call after it must not overtake it.
    fixture.no_start().await;
    mail.answer(PermissionAnswer::AllowOnce);
    assert_eq!(fixture.start().await, ids.0);
    assert_eq!(fixture.start().await, ids.1);
    assert!(![ids.0, ids.1].contains(&fixture.start().await));
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn stop_ends_all_questions_of_a_step() {
    let mut fixture = Fixture::new(calls(&["mail", "mail"]));
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let (one, two) = (fixture.question().await, fixture.question().await);
    // An answer and a stop at the same time: the call does not start past the barrier.
    let _stop = run.stop(Cause::new(CauseKind::User));
    drop(one.answer.send(PermissionAnswer::AllowOnce));
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    assert!(turn.denials.is_empty() && turn.receipt.unwrap().quiet());
    assert!(two.answer.is_closed(), "the question was withdrawn");
    assert!(fixture.started.try_recv().is_err());
    assert!(turn.conversation.messages.is_empty());
}

/// While one call runs and another one waits for an answer, a stop ends both.
#[tokio::test(start_paused = true)]
async fn stop_ends_a_running_call_and_the_question_of_another() {
    let model = model(vec![calls(&["hang", "mail"])]);
    let (tx, mut asked) = mpsc::unbounded_channel();
    let (start, mut started) = mpsc::unbounded_channel();
    let hang = ToolFn::new("hang", move |_| {
        start.send(()).expect("a test");
        std::future::pending::<String>()
    });
    let mail = ToolFn::new("mail", async |_| "sent".to_owned());
    let agent = agent(&model)
        .tools(tools(vec![hang.effect(Effect::ReadOnly), mail]))
        .permissions(Arc::new(PermissionPolicy::default()), Arc::new(Person(tx)))
        .build();
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = agent.start(&scope, request, EventSink::none());
    let asked: Asked = asked.recv().await.expect("a question");
    started.recv().await.expect("a start");
    let receipt = run.stop(Cause::new(CauseKind::User)).receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    assert!(turn.denials.is_empty());
    assert!(asked.answer.is_closed());
}

#[tokio::test(start_paused = true)]
async fn permission_for_the_session_answers_the_questions_that_it_covers() {
    let mut fixture = Fixture::new(calls(&["mail", "alone", "mail"]));
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let (one, other) = (fixture.question().await, fixture.question().await);
    let mut two = fixture.question().await;
    one.answer(PermissionAnswer::AllowForSession);
    fixture.start().await;
    two.withdrawn().await;
    assert!(!other.answer.is_closed(), "it asks about another tool");
    other.answer(PermissionAnswer::deny());
    assert_eq!(fixture.start().await, two.call);
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.denials.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stop_of_one_call_withdraws_only_its_question() {
    let mut fixture = Fixture::new(calls(&["mail", "mail"]));
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let (mut one, two) = (fixture.question().await, fixture.question().await);
    let id = CallId::from(one.call.as_str());
    let stop = run.controls().stop_call(&id, Cause::new(CauseKind::User));
    assert!(stop.expect("the call").receipt().await.quiet());
    one.withdrawn().await;
    assert!(!two.answer.is_closed());
    two.answer(PermissionAnswer::AllowOnce);
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let stopped = "the call did not run: it was stopped before it ran";
    assert_eq!(results(&turn)[0], stopped);
}

/// The inactivity limit measures the work, not the person.
#[tokio::test(start_paused = true)]
async fn open_question_is_no_inactivity() {
    let deadlines = Deadlines::default().inactivity(Duration::from_secs(5));
    let mut fixture = Fixture::with_deadlines(calls(&["mail"]), deadlines);
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let asked = fixture.question().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    asked.answer(PermissionAnswer::AllowOnce);
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Completed);
}

/// The admissions of a step run on several threads, but a person gets the questions in the order of the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn questions_come_in_the_order_of_the_calls() {
    for _ in 0..20 {
        let mut fixture = Fixture::new(calls(&["mail"; 8]));
        let scope = Scope::root("test", RootOptions::current());
        let (sink, mut events) = EventSink::channel();
        let request = RunRequest::new(history().await, "go");
        let run = fixture.agent.start(&scope, request, sink);
        let mut requested = Vec::new();
        while requested.len() < 8 {
            if let AgentEvent::ToolRequested { call_id, .. } = events.recv().await.expect("events")
            {
                requested.push(call_id.to_string());
            }
        }
        let mut open = Vec::new();
        for _ in 0..8 {
            open.push(fixture.question().await);
        }
        let asked: Vec<_> = open.iter().map(|asked| asked.call.clone()).collect();
        assert_eq!(asked, requested);
        for asked in open {
            asked.answer(PermissionAnswer::deny());
        }
        let _ended = run.finish().await.expect("a finished run");
    }
}

#[tokio::test(start_paused = true)]
async fn call_with_an_open_question_waits_for_permission() {
    let mut fixture = Fixture::new(calls(&["mail"]));
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = fixture.agent.start(&scope, request, EventSink::none());
    let asked = fixture.question().await;
    let waits_for = |scope: &Scope| {
        let items = scope.running();
        let call = items.iter().find(|item| item.kind == ItemKind::ToolCall);
        call.and_then(|item| item.waits_for)
    };
    assert_eq!(waits_for(&scope), Some(WaitReason::Permission));
    asked.answer(PermissionAnswer::AllowOnce);
    let _ended = run.finish().await.expect("a finished run");
    assert_eq!(waits_for(&scope), None);
}
