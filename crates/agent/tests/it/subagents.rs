//! Sub-agents: agents that a tool call starts.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{
    Agent, AgentEvent, EventSink, Run, RunRequest, Settings, SubAgentLimits, SubAgents, TurnOutcome,
};
use allstop_core::turn::Budget;
use allstop_core::{CallId, Cause, CauseKind, Message, StopReason};
use allstop_model::{Model, ModelError, ModelRequest, ModelStream, ScriptedModel};
use allstop_testkit::ToolFn;
use allstop_tools::names::AGENT;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::{check_requests, ended, history, root, run, settings, tools};

/// Cost of each model call in these scripts.
const COST: u64 = 11;

fn script(turns: &str) -> Arc<ScriptedModel> {
    let turns = turns.replace("COST", "usage: {input_tokens: 10, output_tokens: 1}");
    let script = format!("turns:\n{turns}");
    let model = ScriptedModel::parse("agents", &script).expect("a script");
    Arc::new(model.keeping_requests())
}

fn limits(limits: SubAgentLimits) -> SubAgents {
    SubAgents {
        limits,
        ..SubAgents::default()
    }
}

fn agent(
    model: Arc<dyn Model>,
    with: Vec<ToolFn>,
    settings: Settings,
    sub_agents: SubAgents,
) -> Agent {
    let agent = Agent::new(model).tools(tools(with)).settings(settings);
    let agent = agent.build().with_sub_agents(sub_agents);
    agent.expect("no other tool has the name")
}

/// Creates a tool that reports its start, and then either reacts to a stop or ignores the stop.
fn waits(name: &str, hears: bool) -> (ToolFn, mpsc::UnboundedReceiver<()>) {
    let (tx, rx) = mpsc::unbounded_channel();
    let tool = ToolFn::new(name, move |call| {
        tx.send(()).expect("a receiver");
        async move {
            if hears {
                call.scope.stopped_at("waits").await;
                return "stopped early".to_owned();
            }
            std::future::pending().await
        }
    });
    (tool, rx)
}

fn results(turn: &TurnOutcome) -> Vec<String> {
    let messages = turn.conversation.messages.iter();
    let result = |message: &Arc<Message>| match &**message {
        Message::Tool(result) => Some(result.content.to_string()),
        _ => None,
    };
    messages.filter_map(result).collect()
}

const NESTED: &str = "
  - {when: go, replies: [{COST, calls: [{tool: agent, arguments: {prompt: level one}}]}]}
  - {when: level one, replies: [{COST, calls: [{tool: agent, arguments: {prompt: level two}}]}]}
  - {when: level two, replies: [{COST, calls: [{tool: agent, arguments: {prompt: level three}}]}]}
  - {when: level three, replies: [{COST, calls: [{tool: waits, arguments: {}}]}]}
";

fn three_levels() -> SubAgents {
    limits(SubAgentLimits::default().depth_max(3))
}

#[tokio::test(start_paused = true)]
async fn sub_agent_is_metered_with_its_turn() {
    let model = script(
        "
  - when: go
    replies:
      - {COST, calls: [{tool: agent, arguments: {prompt: count}}]}
      - {COST, text: There are 42.}
  - when: count
    replies:
      - {COST, text: Let me look., calls: [{tool: look, arguments: {at: all}}]}
      - {COST, text: '42'}
",
    );
    let look = ToolFn::new("look", |_| async { "many".to_owned() });
    let agent = agent(model.clone(), vec![look], settings(), SubAgents::default());
    let shown = Arc::new(Mutex::new(String::new()));
    let sink = {
        let shown = Arc::clone(&shown);
        EventSink::observer(move |event| {
            if let AgentEvent::ToolOutput { text, .. } = event {
                shown.lock().push_str(text);
            }
        })
    };
    let scope = root();
    let run = agent.start(&scope, RunRequest::new(history().await, "go"), sink);
    let (turn, history) = ended(run.finish().await.unwrap());
    assert_eq!(&*turn.output, "There are 42.");
    assert_eq!(results(&turn), ["42"]);
    assert_eq!(*shown.lock(), "Let me look.\n→ look {\"at\":\"all\"}\n42\n");
    assert_eq!((turn.usage.total_tokens(), turn.steps), (4 * COST, 2));
    let allstop_agent::RunHistory::Logged(session) = &history else {
        unreachable!("it is in a log")
    };
    let state = session.state();
    assert_eq!(state.conversation().usage, turn.usage, "committed");
    assert_eq!(state.metered(), turn.usage, "metered");
    assert!(scope.is_quiet());
    check_requests(&model);
    let of_child = &model.requests()[1];
    assert_eq!(
        of_child.messages.len(),
        1,
        "a sub-agent sees only its prompt"
    );
}

#[tokio::test(start_paused = true)]
async fn stop_of_the_turn_stops_three_levels_at_once() {
    let model = script(NESTED);
    let (tool, mut waiting) = waits("waits", true);
    let agent = agent(model.clone(), vec![tool], settings(), three_levels());
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = agent.start(&scope, request, EventSink::none());
    waiting.recv().await.expect("the deepest one waits");
    let before = Instant::now();
    let receipt = run.stop(Cause::new(CauseKind::User)).await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(receipt.quiet() && receipt.cancel_observed(), "{receipt:?}");
    let items = receipt.items().iter();
    let items: Vec<_> = items
        .map(|item| (&*item.name, item.state.as_str()))
        .collect();
    let stopped = |name| (name, "stopped");
    assert_eq!(
        items,
        [
            stopped("agent"),
            stopped("agent"),
            stopped("agent"),
            stopped("waits")
        ]
    );
    assert!(scope.is_quiet());
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    assert_eq!(turn.usage.total_tokens(), 4 * COST);
}

#[tokio::test(start_paused = true)]
async fn forced_stop_loses_no_usage() {
    let model = script(NESTED);
    let (tool, mut waiting) = waits("waits", false);
    let agent = agent(model.clone(), vec![tool], settings(), three_levels());
    let scope = root();
    let request = RunRequest::new(history().await, "go");
    let run = agent.start(&scope, request, EventSink::none());
    waiting.recv().await.expect("the deepest one waits");
    let receipt = run.stop(Cause::new(CauseKind::User)).await;
    assert!(receipt.quiet(), "{receipt:?}");
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.usage.total_tokens(), 4 * COST);
    assert!(scope.is_quiet());
}

/// Starts a run. When `calls` calls have started, returns the run, its scope, and the prompt and id of each call.
async fn start_and_see(
    agent: &Agent,
    calls: usize,
) -> (Run, allstop_scope::Scope, Vec<(String, CallId)>) {
    let (sink, mut events) = EventSink::channel();
    let scope = root();
    let run = agent.start(&scope, RunRequest::new(history().await, "go"), sink);
    let mut seen = Vec::new();
    let mut started = 0;
    while started < calls {
        match events.recv().await.expect("the run goes on") {
            AgentEvent::ToolRequested {
                call_id,
                arguments: allstop_core::message::Arguments::Json(arguments),
                ..
            } => {
                let prompt = arguments["prompt"].as_str().unwrap_or_default();
                seen.push((prompt.to_owned(), call_id));
            }
            AgentEvent::ToolStarted { .. } => started += 1,
            _ => {}
        }
    }
    (run, scope, seen)
}

#[tokio::test(start_paused = true)]
async fn one_sub_agent_stops_alone_and_its_siblings_continue() {
    let model = script(
        "
  - when: go
    replies:
      - usage: {input_tokens: 10, output_tokens: 1}
        calls:
          - {tool: agent, arguments: {prompt: hang}}
          - {tool: agent, arguments: {prompt: first}}
          - {tool: agent, arguments: {prompt: second}}
      - {COST, text: Two of three.}
  - {when: hang, replies: [{COST, calls: [{tool: waits, arguments: {}}]}]}
  - {when: first, replies: [{COST, text: one, stall: first_token, stall_for: 5s}]}
  - {when: second, replies: [{COST, text: two, stall: first_token, stall_for: 5s}]}
",
    );
    let (tool, mut waiting) = waits("waits", true);
    let agent = agent(model.clone(), vec![tool], settings(), SubAgents::default());
    let (run, scope, calls) = start_and_see(&agent, 3).await;
    waiting.recv().await.expect("a waiting call");
    let (_, hanging) = calls.iter().find(|(prompt, _)| prompt == "hang").unwrap();
    let stop = run
        .controls()
        .stop_call(hanging, Cause::new(CauseKind::User));
    let receipt = stop.expect("it runs").await;
    assert!(receipt.quiet(), "{receipt:?}");
    let item = &receipt.items()[0];
    assert_eq!((&*item.name, item.state.as_str()), ("agent", "stopped"));
    assert_eq!(*item.id, *hanging.as_str());
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let results = results(&turn);
    assert!(
        results[0].starts_with("the call was stopped: user"),
        "{results:?}"
    );
    assert_eq!(results[1..], ["one", "two"]);
    assert_eq!(turn.usage.total_tokens(), 5 * COST);
    assert!(scope.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn running_limit_holds_and_an_ended_agent_frees_a_slot() {
    let model = script(
        "
  - when: go
    replies:
      - calls:
          - {tool: agent, arguments: {prompt: slow}}
          - {tool: agent, arguments: {prompt: slow}}
          - {tool: agent, arguments: {prompt: slow}}
      - calls: [{tool: agent, arguments: {prompt: slow}}]
      - {text: done}
  - {when: slow, replies: [{text: ready, stall: first_token, stall_for: 5s}]}
",
    );
    let two = limits(SubAgentLimits::default().running_max(2));
    let agent = agent(model.clone(), Vec::new(), settings(), two);
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    let results = results(&turn);
    assert_eq!(results[..2], ["ready", "ready"]);
    assert!(
        results[2].starts_with("2 agents are running"),
        "{results:?}"
    );
    assert_eq!(results[3], "ready");
    assert_eq!(turn.stop_reason, StopReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn depth_limit_and_excluded_tools_hold_at_every_level() {
    let model = script(
        "
  - {when: go, replies: [{calls: [{tool: agent, arguments: {prompt: level one}}]}, {text: done}]}
  - {when: level one, replies: [{calls: [{tool: agent, arguments: {prompt: level two}}]}, {text: one}]}
  - {when: level two, replies: [{calls: [{tool: agent, arguments: {prompt: level three}}]}, {text: two}]}
",
    );
    let tool = |name| ToolFn::new(name, |_| async { String::new() });
    let options = SubAgents {
        excluded: vec!["write".into()],
        ..SubAgents::default()
    };
    let with = vec![tool("read"), tool("write")];
    let agent = agent(model.clone(), with, settings(), options);
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(&*turn.output, "done");
    let tools: Vec<Vec<String>> = model.requests().iter().map(names).collect();
    assert_eq!(tools[0], ["read", "write", "agent"]);
    assert_eq!(tools[1], ["read", "agent"]);
    assert_eq!(tools[2], ["read"], "at the limit of 2 there is no `agent`");
    let last = &model.requests()[3];
    let Message::Tool(result) = &**last.messages.last().unwrap() else {
        panic!()
    };
    assert!(result.is_error && result.content.contains("unknown tool"));
}

fn names(request: &ModelRequest) -> Vec<String> {
    let names = request.tools.iter().map(|tool| tool.name.to_string());
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn parallel_sub_agents_never_overdraw_the_budget() {
    let call = |at| format!("          - {{tool: agent, arguments: {{prompt: split {at}}}}}");
    let fan_out: Vec<String> = (0..6).map(call).collect();
    let fan_out = fan_out.join("\n");
    let script_text = format!(
        "
  - when: go
    replies:
      - calls:
{fan_out}
      - {{text: done}}
  - when: split
    replies:
      - calls: [{{tool: agent, arguments: {{prompt: leaf}}}}, {{tool: agent, arguments: {{prompt: leaf}}}}]
      - {{text: both}}
  - when: leaf
    replies: [{{calls: [{{tool: look, arguments: {{}}}}]}}, {{text: leaf}}]
"
    );
    let mut completed = 0;
    for limit in (100..8_000).step_by(150) {
        let budget = Budget::of_tokens(limit);
        let check = {
            let budget = Arc::clone(&budget);
            move || {
                let used = budget.spent_tokens() + budget.reserved_tokens();
                assert!(used <= limit, "{used} at a limit of {limit}");
            }
        };
        let look = {
            let check = check.clone();
            ToolFn::new("look", move |_| {
                check();
                async { String::new() }
            })
        };
        let settings = Settings::default()
            .budget(Arc::clone(&budget))
            .output_tokens_max(20);
        let options = limits(SubAgentLimits::default().running_max(100));
        let agent = agent(script(&script_text), vec![look], settings, options);
        let scope = root();
        let request = RunRequest::new(history().await, "go");
        let run = agent.start(&scope, request, EventSink::observer(move |_| check()));
        let (turn, _) = ended(run.finish().await.unwrap());
        assert!(scope.is_quiet());
        drop(agent);
        assert_eq!(budget.reserved_tokens(), 0, "all reservations are released");
        assert_eq!(budget.spent_tokens(), turn.usage.total_tokens());
        assert!(budget.spent_tokens() <= limit);
        completed += u32::from(turn.stop_reason == StopReason::Completed);
    }
    assert!(completed > 10, "{completed} completed");
}

/// A model that panics if the prompt contains "panic".
#[derive(Debug)]
struct Panics(Arc<ScriptedModel>);

impl Model for Panics {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let prompt = &*request.messages[0];
        let bad = matches!(prompt, Message::User { text, .. } if text.contains("panic"));
        assert!(!bad || request.messages.len() < 3, "as asked");
        self.0.stream(request)
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_sub_agent_is_an_error_of_its_call_only() {
    let model = script(
        "
  - when: go
    replies:
      - {COST, calls: [{tool: agent, arguments: {prompt: panic}}, {tool: agent, arguments: {prompt: calm}}]}
      - {COST, text: done}
  - {when: panic, replies: [{COST, calls: [{tool: look, arguments: {}}]}]}
  - {when: calm, replies: [{COST, text: fine}]}
",
    );
    let budget = Budget::of_tokens(100_000);
    let settings = Settings::default().budget(Arc::clone(&budget));
    let look = ToolFn::new("look", |_| async { String::new() });
    let one = limits(SubAgentLimits::default());
    let model: Arc<dyn Model> = Arc::new(Panics(model));
    let agent = agent(model, vec![look], settings, one);
    let scope = root();
    let (turn, _) = run(agent, &scope, history().await, "go").await;
    let lost = "the agent ended without an answer, error: the model script::agents panicked\n\
                Its calls, which may have changed something:\n- look: completed";
    assert_eq!(results(&turn), [lost, "fine"]);
    assert_eq!(
        turn.usage.total_tokens(),
        4 * COST,
        "its earlier usage counts"
    );
    assert_eq!(budget.reserved_tokens(), 0);
    assert!(scope.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn activity_of_the_deepest_agent_resets_all_inactivity_limits() {
    let words: String = (0..40).map(|_| "{text: word, after: 1s}, ").collect();
    let model = script(&format!(
        "
  - {{when: go, replies: [{{calls: [{{tool: agent, arguments: {{prompt: level one}}}}]}}, {{text: done}}]}}
  - {{when: level one, replies: [{{calls: [{{tool: agent, arguments: {{prompt: level two}}}}]}}, {{text: one}}]}}
  - {{when: level two, replies: [{{chunks: [{words}]}}]}}
"
    ));
    let mut settings = settings();
    settings.deadlines.inactivity = Some(Duration::from_secs(5));
    let agent = agent(model, Vec::new(), settings, SubAgents::default());
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(turn.stop_reason, StopReason::Completed, "{:?}", turn.cause);
}

#[tokio::test(start_paused = true)]
async fn agent_tool_itself_can_be_excluded() {
    let model = script(
        "
  - {when: go, replies: [{calls: [{tool: agent, arguments: {prompt: level one}}]}, {text: done}]}
  - {when: level one, replies: [{text: one}]}
",
    );
    let options = SubAgents {
        excluded: vec![AGENT.into()],
        ..SubAgents::default()
    };
    let agent = agent(model.clone(), Vec::new(), settings(), options);
    let (turn, _) = run(agent, &root(), history().await, "go").await;
    assert_eq!(&*turn.output, "done");
    assert!(model.requests()[1].tools.is_empty());
}

#[test]
fn second_tool_named_agent_is_refused() {
    let model = script("  - {replies: [{text: hi}]}");
    let own = ToolFn::new(AGENT, |_| async { String::new() });
    let agent = Agent::new(model).tools(tools(vec![own])).build();
    agent
        .with_sub_agents(SubAgents::default())
        .map(drop)
        .expect_err("the name is taken");
}
