//! The parts of a process run: its simulated system, its model, its tools, and the agents of its sessions.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, SubAgentBackground, SubAgents, TurnError};
use allstop_core::Message;
use allstop_model::{Model, ModelError, ModelRequest, ModelStream, Pause, Reply, ScriptedModel};
use allstop_scope::Scope;
use allstop_session::{
    AgentRequest, AgentSource, CompactionLimits, OnBackgroundEnd, SessionAgent, SessionOptions,
    Sessions,
};
use allstop_tools::{
    OutputFolder, PermissionPolicy, Prompter, ShellConfig, ShellTool, Tool, ToolRegistry,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::SoakState;
use crate::scenarios::{deaf, listening};
use crate::stage::PartWatch;
use crate::{Behaviour, FaultyLog, SimulatedSystem};

/// The sessions of a process run.
pub(super) fn sessions(state: &mut SoakState, root: &Scope) -> Sessions {
    let system = SimulatedSystem::new();
    system.keep();
    let make = Behaviour {
        prints: vec![(Duration::from_secs(1), "compiling\n".to_owned())],
        exits: Some((Duration::from_mins(5), 0)),
        term_takes: Some(Duration::from_millis(300)),
        ..Behaviour::default()
    };
    system.program("make", make);
    system.program("npm run dev", Behaviour::server("listening\n"));
    let wakes = state.random.below(2) == 0;
    let options = SessionOptions::default()
        .follow_up(allstop_session::FollowUp::Enqueue)
        .on_background_end(if wakes {
            OnBackgroundEnd::Wake
        } else {
            OnBackgroundEnd::Note
        })
        .waiting_max(6)
        .compaction(CompactionLimits::default().tokens_max(250).turns_kept(2))
        .new_message_id(Arc::new(state.new_message_id()));
    // The log waits at its points, so that a crash can occur in the middle of an append.
    let log = FaultyLog::watched(Arc::clone(&state.log) as _, PartWatch::new());
    let outputs = tempfile::tempdir().expect("a temporary folder");
    let source = Arc::new(SoakAgents { system, outputs });
    Sessions::new(Arc::new(log), root.clone(), source, options)
}

#[derive(Debug)]
struct SoakAgents {
    system: SimulatedSystem,
    /// Folder for the output of detached work.
    outputs: TempDir,
}

impl AgentSource for SoakAgents {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let output_folder = Arc::new(OutputFolder::new(self.outputs.path()));
            let config = ShellConfig::new("/", Arc::clone(&output_folder))
                .containment(self.system.containment());
            let shell = ShellTool::new(config, Arc::clone(&request.background) as _);
            let mut tools = ToolRegistry::new();
            let all: [Arc<dyn Tool>; 3] = [
                Arc::new(listening("work", Duration::from_secs(7), "worked")),
                Arc::new(deaf("deaf", Duration::from_secs(11), "done")),
                Arc::new(shell),
            ];
            for tool in all {
                tools.register(tool).expect("their names differ");
            }
            let model: Arc<dyn Model> = Arc::new(SoakModel);
            let mut agent = Agent::new(model).tools(tools);
            // The agents of sessions whose id ends with 3 or 7 ask for permission.
            if request.session.as_str().ends_with(['3', '7']) {
                let prompter = Arc::clone(&request.prompter) as Arc<dyn Prompter>;
                agent = agent.permissions(Arc::new(PermissionPolicy::default()), prompter);
            }
            let sub_agents = SubAgents {
                background: Some(SubAgentBackground {
                    host: Arc::clone(&request.background) as _,
                    output_folder,
                }),
                ..SubAgents::default()
            };
            let agent = agent.build().with_sub_agents(sub_agents);
            Ok(SessionAgent {
                agent: agent.expect("no other tool has its name"),
                resources: None,
            })
        })
    }
}

/// Kinds of messages, with their weights.
pub(super) const KINDS: [(&str, u64); 10] = [
    ("talk", 8),
    ("work", 6),
    ("deaf", 2),
    ("make", 3),
    ("build", 2),
    ("serve", 2),
    ("both", 3),
    ("fail", 1),
    ("divide", 3),
    ("delegate", 2),
];

/// Answers a message according to its text. For example, `work 250` calls the tool `work` 250 ms after the first text.
#[derive(Debug)]
pub(super) struct SoakModel;

impl Model for SoakModel {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let reply = answer(&request.messages);
            ScriptedModel::in_order_of_calls(vec![reply])
                .stream(request)
                .await
        })
    }
}

fn answer(messages: &[Arc<Message>]) -> Reply {
    let newest = messages
        .iter()
        .rposition(|message| matches!(&**message, Message::User { .. } | Message::Note { .. }));
    let (_, since) = messages.split_at(newest.unwrap_or_default());
    let (words, since): (&str, &[_]) = match since.split_first() {
        Some((first, since)) => match &**first {
            Message::User { text, .. } => (text, since),
            _ => ("", since),
        },
        None => ("", since),
    };
    let is_answer = |message: &&Arc<Message>| matches!(***message, Message::Assistant { .. });
    let steps = since.iter().filter(is_answer).count();
    let mut words = words.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let ms = words.next().and_then(|ms| ms.parse().ok()).unwrap_or(5);
    let said = Reply::text("Well,").pause(Pause::For(Duration::from_millis(ms)));
    let said = said.and_text(" so be it.").usage(20, 7);
    if steps > 0 {
        return said;
    }
    let shell = |command: &str, background: bool| -> (&str, Value) {
        let arguments = json!({"command": command, "background": background});
        ("shell", arguments)
    };
    let (tool, arguments) = match kind {
        "work" | "deaf" => (kind, json!({})),
        "make" => shell("make", false),
        "build" => shell("make", true),
        "serve" => shell("npm run dev", true),
        "both" => return said.call("work", json!({})).call("deaf", json!({})),
        // These messages start sub-agents. Either two sub-agents run in parallel, and one of them starts a command in
        // the background; or a single sub-agent runs in the background.
        "divide" => {
            let first = json!({"prompt": format!("both {ms}")});
            let second = json!({"prompt": format!("build {ms}")});
            return said.call("agent", first).call("agent", second);
        }
        "delegate" => {
            let prompt = format!("work {ms}");
            ("agent", json!({"prompt": prompt, "background": true}))
        }
        "fail" => return said.disconnect(),
        _ => return said,
    };
    said.call(tool, arguments)
}
