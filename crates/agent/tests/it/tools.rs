//! Tools that change while an agent runs: the declarations that the model receives, and the calls that the model may
//! make.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop_agent::SubAgents;
use allstop_model::{ModelRequest, Reply, ScriptedModel};
use allstop_testkit::ToolFn;
use allstop_tools::{Tool, ToolSource};
use serde_json::json;

use super::{agent, history, model, root, run, tools};

/// A source with two tools. Each version contains the next of the tools `first`, `second` and `third`, and a tool whose
/// name is already taken.
#[derive(Debug, Default)]
struct Changing(AtomicU64);

impl ToolSource for Changing {
    fn version(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let names = ["first", "second", "third"];
        let at = usize::try_from(self.version()).expect("a small number");
        let tool = |name| Arc::new(ToolFn::new(name, |_| async { "done".to_owned() })) as _;
        vec![tool(names[at]), tool("change")]
    }
}

/// Returns a tool that changes the source, and the source.
fn changing() -> (ToolFn, Arc<Changing>) {
    let source = Arc::new(Changing::default());
    let changes = Arc::clone(&source);
    let change = ToolFn::new("change", move |_| {
        let changes = Arc::clone(&changes);
        async move {
            changes.0.fetch_add(1, Ordering::SeqCst);
            "changed".to_owned()
        }
    });
    (change, source)
}

fn names(request: &ModelRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| &*tool.name).collect()
}

#[tokio::test(start_paused = true)]
async fn next_model_call_sees_changed_tools() {
    let (change, source) = changing();
    let model = model(vec![
        Reply::text("").call("change", json!({})),
        Reply::text("")
            .call("first", json!({}))
            .call("second", json!({})),
        Reply::text("done"),
    ]);
    let agent = agent(&model)
        .tools(tools(vec![change]))
        .tool_source(source)
        .build();
    let (turn, _history) = run(agent, &root(), history().await, "go").await;
    let requests = model.requests();
    let told: Vec<_> = requests.iter().map(names).collect();
    assert_eq!(
        told,
        [
            ["change", "first"],
            ["change", "second"],
            ["change", "second"]
        ]
    );
    let messages = format!("{:?}", turn.conversation.messages);
    assert!(
        messages.contains("unknown tool \\\"first\\\"; known tools: change, second"),
        "{messages}"
    );
    assert_eq!(messages.matches("\"done\"").count(), 2, "{messages}");
}

#[tokio::test(start_paused = true)]
async fn sub_agents_see_changed_tools_but_no_excluded_ones() {
    let (change, source) = changing();
    let script = "turns:
  - {when: go, replies: [{calls: [{tool: agent, arguments: {prompt: look}}]}, {text: done}]}
  - {when: look, replies: [{calls: [{tool: change}]}, {calls: [{tool: change}]}, {text: changed}]}
";
    let model = ScriptedModel::parse("agents", script).expect("a script");
    let model = Arc::new(model.keeping_requests());
    let sub_agents = SubAgents {
        excluded: vec!["second".into(), "agent".into()],
        ..SubAgents::default()
    };
    let agent = agent(&model)
        .tools(tools(vec![change]))
        .tool_source(source)
        .build();
    let agent = agent.with_sub_agents(sub_agents).expect("names differ");
    let _ended = run(agent, &root(), history().await, "go").await;
    let requests = model.requests();
    let told: Vec<_> = requests.iter().map(names).collect();
    assert_eq!(told[0], ["change", "agent", "first"]);
    assert_eq!(told[1], ["change", "first"]);
    assert_eq!(told[2], ["change"]);
    assert_eq!(told[3], ["change", "third"]);
    assert_eq!(told[4], ["change", "agent", "third"]);
}
