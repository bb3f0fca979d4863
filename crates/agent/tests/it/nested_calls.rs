//! Calls that a sub-agent makes: their effects are known after a crash, a stop and a rollback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_agent::{Agent, EventSink, RunHistory, RunRequest, Settings, SubAgents, TurnOutcome};
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{Conversation, SessionState, StopPolicy};
use allstop_core::{Cause, CauseKind, Message, SessionId, StopReason, Timestamp};
use allstop_log::{Log, MemoryLog};
use allstop_model::ScriptedModel;
use allstop_testkit::{FaultyLog, LogFault, ToolFn};
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{PermissionAnswer, PermissionPolicy};
use tokio::sync::mpsc;

use crate::{ended, history, history_on, records, root, tools};

/// A sub-agent pays, and then hangs in its second call.
const SHOPS: &str = "
turns:
  - when: go
    replies:
      - calls: [{tool: agent, arguments: {prompt: shop}}]
      - {text: Done.}
  - when: shop
    replies:
      - calls: [{tool: pay, arguments: {command: 17 euros}}]
      - calls: [{tool: hang, arguments: {command: wait}}]
      - {text: Paid.}
";

fn script(text: &str) -> Arc<ScriptedModel> {
    let model = ScriptedModel::parse("agents", text).expect("a script");
    Arc::new(model.keeping_requests())
}

fn agent(model: &Arc<ScriptedModel>, with: Vec<ToolFn>, settings: Settings) -> Agent {
    let agent = Agent::new(Arc::clone(model)).tools(tools(with));
    let yes = Arc::new(FixedAnswer(PermissionAnswer::AllowOnce));
    let agent = agent.permissions(Arc::new(PermissionPolicy::default()), yes);
    let agent = agent.settings(settings).build();
    let agent = agent.with_sub_agents(SubAgents::default());
    agent.expect("no other tool has the name")
}

fn pay() -> ToolFn {
    ToolFn::new("pay", |_| async { "receipt 17".to_owned() })
}

/// A tool that reports its start and never returns.
fn hang() -> (ToolFn, mpsc::Receiver<()>) {
    let (tx, rx) = mpsc::channel(1);
    let tool = ToolFn::new("hang", move |_| {
        let tx = tx.clone();
        async move {
            tx.send(()).await.expect("a receiver");
            std::future::pending().await
        }
    });
    (tool, rx)
}

fn bare() -> RunHistory {
    RunHistory::bare(SessionId::from("s1"), Arc::new(Conversation::default()))
}

fn with_policy(stop_policy: StopPolicy) -> Settings {
    Settings::default().stop_policy(stop_policy)
}

/// Runs [`SHOPS`], and stops the turn while the sub-agent hangs.
async fn stopped_shopping(history: RunHistory, policy: StopPolicy) -> (TurnOutcome, RunHistory) {
    let (hang, mut hanging) = hang();
    let agent = agent(&script(SHOPS), vec![pay(), hang], with_policy(policy));
    let request = RunRequest::new(history, "go");
    let run = agent.start(&root(), request, EventSink::none());
    hanging.recv().await.expect("the sub-agent hangs");
    drop(run.stop(Cause::new(CauseKind::User)));
    let (turn, history) = ended(run.finish().await.expect("no panic"));
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    (turn, history)
}

/// Runs a turn whose sub-agent, or the agent itself, calls `hang` again. Returns the requests as text.
async fn repeat(history: RunHistory, replies: &str) -> (TurnOutcome, String) {
    let model = script(replies);
    let hang = ToolFn::new("hang", |_| async { "ran".to_owned() });
    let agent = agent(&model, vec![hang], Settings::default());
    let request = RunRequest::new(history, "again");
    let run = agent.start(&root(), request, EventSink::none());
    let (turn, _) = ended(run.finish().await.expect("no panic"));
    (turn, format!("{:?}", model.requests()))
}

#[tokio::test(start_paused = true)]
async fn start_of_a_nested_call_is_durable_before_it_runs() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let reading = Arc::clone(&log);
    let look = ToolFn::new("look", move |call| {
        let log = Arc::clone(&reading);
        async move {
            let records = records(&*log).await;
            let mut starts = records.iter().filter_map(|record| match record {
                SessionRecord::CallStarted { call, .. } => Some(&call.id),
                _ => None,
            });
            let is_durable = starts.any(|id| *id == call.call_id);
            format!("{} is durable: {is_durable}", call.call_id)
        }
    });
    let model = script(
        "
turns:
  - {when: go, replies: [{calls: [{tool: agent, arguments: {prompt: one}}]}, {text: ok}]}
  - {when: one, replies: [{calls: [{tool: agent, arguments: {prompt: two}}]}, {text: ok}]}
  - when: two
    replies:
      - calls: [{tool: look, arguments: {at: left}}, {tool: look, arguments: {at: right}}]
      - {text: ok}
",
    );
    let agent = Agent::new(Arc::clone(&model)).tools(tools(vec![look]));
    let sub_agents = SubAgents {
        limits: allstop_agent::SubAgentLimits::default().depth_max(2),
        ..SubAgents::default()
    };
    let agent = agent.build().with_sub_agents(sub_agents).expect("tools");
    let request = RunRequest::new(history_on(Arc::clone(&log)).await, "go");
    let run = agent.start(&root(), request, EventSink::none());
    let (turn, _) = ended(run.finish().await.expect("no panic"));
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let requests = format!("{:?}", model.requests());
    assert_eq!(
        requests.matches("is durable: true").count(),
        2,
        "{requests}"
    );
    let ends = records(&*log)
        .await
        .into_iter()
        .filter_map(|record| match record {
            SessionRecord::CallFinished { id, outcome, .. } if id.as_str().contains('/') => {
                Some(outcome)
            }
            _ => None,
        });
    assert_eq!(ends.collect::<Vec<_>>(), [CallOutcome::Succeeded; 3]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_stopped_sub_agent_reach_the_next_turn() {
    for history in [bare(), history().await] {
        let (turn, history) = stopped_shopping(history, StopPolicy::Rollback).await;
        let lost = turn.lost.as_ref().expect("calls with effects").to_string();
        for part in ["pay `17 euros`: completed", "hang `wait`: outcome unknown"] {
            assert!(lost.contains(part), "{lost}");
        }
        let (_, requests) = repeat(history, "turns: [{when: again, replies: [{text: ok}]}]").await;
        assert!(requests.contains("pay `17 euros`: completed"), "{requests}");
        assert!(requests.contains("receipt 17"), "{requests}");
    }
}

#[tokio::test(start_paused = true)]
async fn kept_turn_names_the_calls_of_its_sub_agent_once() {
    let (turn, history) = stopped_shopping(bare(), StopPolicy::Keep).await;
    assert!(turn.lost.is_none(), "{:?}", turn.lost);
    let results = turn.conversation.messages.iter();
    let results = results.filter_map(|message| match &**message {
        Message::Tool(result) => Some(&*result.content),
        _ => None,
    });
    let results: Vec<&str> = results.collect();
    assert_eq!(results.len(), 1);
    assert!(
        results[0].contains("\n- pay `17 euros`: completed"),
        "{results:?}"
    );
    let (_, requests) = repeat(history, "turns: [{when: again, replies: [{text: ok}]}]").await;
    assert_eq!(requests.matches("pay `17 euros`").count(), 1, "{requests}");
}

#[tokio::test(start_paused = true)]
async fn crash_does_not_hide_the_calls_of_a_sub_agent() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let (hang, mut hanging) = hang();
    let agent = agent(&script(SHOPS), vec![pay(), hang], Settings::default());
    let request = RunRequest::new(history_on(Arc::clone(&log)).await, "go");
    let run = agent.start(&root(), request, EventSink::none());
    hanging.recv().await.expect("the sub-agent hangs");
    // The records that a crash would leave.
    let mut state = SessionState::fold(&records(&*log).await).expect("a legal log");
    let receipt = state.crash_receipt().expect("an open turn");
    let items = receipt.items().iter();
    let items: Vec<_> = items
        .map(|item| (&*item.name, item.state.as_str()))
        .collect();
    assert_eq!(
        items,
        [
            ("agent", "unknown"),
            ("pay", "finished"),
            ("hang", "unknown")
        ]
    );
    for record in state.recovery_records(Timestamp::from_unix_ms(0)) {
        state.apply(&record).expect("recovery is legal");
    }
    let lost = &state.conversation().lost;
    assert_eq!(lost.len(), 1);
    assert!(
        lost[0].to_string().contains("pay `17 euros`: completed"),
        "{lost:?}"
    );
    drop(run.stop(Cause::new(CauseKind::User)));
    ended(run.finish().await.expect("no panic"));
}

/// Neither the agent nor a sub-agent repeats an uncertain call of an earlier sub-agent without a person.
#[tokio::test(start_paused = true)]
async fn repetition_of_a_nested_call_needs_a_person() {
    let by_itself = "
turns:
  - when: again
    replies: [{calls: [{tool: hang, arguments: {command: wait}}]}, {text: ok}]
";
    let by_a_sub_agent = "
turns:
  - {when: again, replies: [{calls: [{tool: agent, arguments: {prompt: more}}]}, {text: ok}]}
  - when: more
    replies: [{calls: [{tool: hang, arguments: {command: wait}}]}, {text: ok}]
";
    for replies in [by_itself, by_a_sub_agent] {
        let (_, history) = stopped_shopping(history().await, StopPolicy::Rollback).await;
        let (turn, requests) = repeat(history, replies).await;
        assert_eq!(turn.stop_reason, StopReason::Completed);
        assert!(requests.contains("may have had its effect"), "{requests}");
        assert!(!requests.contains("\"ran\""), "{requests}");
    }
}

/// A time limit ends the sub-agent, and the turn continues. The model learns which calls the sub-agent has made.
#[tokio::test(start_paused = true)]
async fn result_of_a_cut_sub_agent_names_its_calls() {
    let (hang, mut hanging) = hang();
    let model = script(SHOPS);
    let agent = agent(&model, vec![pay(), hang], Settings::default());
    let run = agent.start(
        &root(),
        RunRequest::new(history().await, "go"),
        EventSink::none(),
    );
    hanging.recv().await.expect("the sub-agent hangs");
    let calls = run.controls().running_calls();
    let stop = run
        .controls()
        .stop_call(&calls[0], Cause::new(CauseKind::User));
    drop(stop.expect("it runs").await);
    let (turn, history) = ended(run.finish().await.expect("no panic"));
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let requests = format!("{:?}", model.requests());
    assert!(
        requests.contains("- pay `17 euros`: completed"),
        "{requests}"
    );
    let RunHistory::Logged(session) = &history else {
        unreachable!("it is in a log")
    };
    assert!(session.state().conversation().lost.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nested_call_does_not_run_if_its_start_cannot_be_written() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let arming = Arc::clone(&log);
    let arm = ToolFn::new("arm", move |_| {
        arming.fail_at("call_started", LogFault::Refuse);
        async { "armed".to_owned() }
    });
    let has_paid = Arc::new(AtomicBool::new(false));
    let paying = Arc::clone(&has_paid);
    let pay = ToolFn::new("pay", move |_| {
        paying.store(true, Ordering::Relaxed);
        async { "receipt 17".to_owned() }
    });
    let model = script(
        "
turns:
  - {when: go, replies: [{calls: [{tool: agent, arguments: {prompt: shop}}]}, {text: ok}]}
  - when: shop
    replies:
      - calls: [{tool: arm, arguments: {}}]
      - calls: [{tool: pay, arguments: {command: 17 euros}}]
      - {text: Paid.}
",
    );
    let agent = agent(&model, vec![arm, pay], Settings::default());
    let scope = root();
    let history = history_on(Arc::clone(&log) as _).await;
    let run = agent.start(&scope, RunRequest::new(history, "go"), EventSink::none());
    log.reached().await;
    let mut outcome = run.finish().await.expect("no panic");
    let turn = outcome.turns.pop().expect("a turn");
    assert_eq!(turn.stop_reason, StopReason::Error);
    assert!(!has_paid.load(Ordering::Relaxed));
    assert!(scope.is_quiet());
}

/// The receipt proves the end of the call, so a repetition needs no person.
#[tokio::test(start_paused = true)]
async fn nested_call_that_was_stopped_has_a_known_outcome() {
    let (tx, mut hanging) = mpsc::channel(1);
    let hang = ToolFn::new("hang", move |call| {
        let tx = tx.clone();
        async move {
            tx.send(()).await.expect("a receiver");
            call.scope.stopped_at("hang").await;
            "stopped early".to_owned()
        }
    });
    let agent = agent(&script(SHOPS), vec![pay(), hang], Settings::default());
    let request = RunRequest::new(history().await, "go");
    let run = agent.start(&root(), request, EventSink::none());
    hanging.recv().await.expect("the sub-agent hangs");
    let receipt = run.stop(Cause::new(CauseKind::User)).await;
    let (turn, _) = ended(run.finish().await.expect("no panic"));
    let lost = turn.lost.as_ref().expect("calls with effects").to_string();
    let items = receipt.items().iter();
    let hang = items.filter(|item| &*item.name == "hang");
    let states: Vec<_> = hang.map(|item| item.state.as_str()).collect();
    assert_eq!(states, ["stopped"]);
    assert!(lost.contains("hang `wait`: was stopped"), "{lost}");
}
