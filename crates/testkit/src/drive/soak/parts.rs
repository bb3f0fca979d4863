//! The parts of a life: its simulated system, its tools, and the agents of its sessions.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, SubAgentBackground, SubAgents, TurnError};
use allstop_model::Model;
use allstop_scope::Scope;
use allstop_session::{
    AgentRequest, AgentSource, CompactionLimits, OnBackgroundEnd, SessionAgent, SessionOptions,
    Sessions,
};
use allstop_tools::{
    OutputFolder, PermissionPolicy, Prompter, ShellConfig, ShellTool, Tool, ToolRegistry,
};
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::time::sleep;

use super::SoakState;
use super::model::SoakModel;
use crate::observe::{Points, RunWitness};
use crate::stage::PartWatch;
use crate::{Behaviour, FaultyLog, SimulatedSystem, ToolFn};

/// The sessions of a life.
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
    let options = SessionOptions {
        follow_up: allstop_session::FollowUp::Enqueue,
        on_background_end: if wakes {
            OnBackgroundEnd::Wake
        } else {
            OnBackgroundEnd::Note
        },
        waiting_max: 6,
        compaction: Some(CompactionLimits {
            tokens_max: 250,
            turns_kept: 2,
        }),
        new_message_id: Arc::new(state.new_message_id()),
        ..SessionOptions::default()
    };
    // Slow, so that a crash can fall into an append.
    let watch = PartWatch {
        points: Points::new(),
        witness: RunWitness::default(),
    };
    let log = FaultyLog::watched(Arc::clone(&state.log) as _, watch);
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
            let config = ShellConfig {
                containment: self.system.containment(),
                ..ShellConfig::new("/", Arc::clone(&output_folder))
            };
            let shell = ShellTool::new(config, Arc::clone(&request.background) as _);
            let mut tools = ToolRegistry::new();
            let all: [Arc<dyn Tool>; 3] = [Arc::new(work()), Arc::new(deaf()), Arc::new(shell)];
            for tool in all {
                tools.register(tool).expect("their names differ");
            }
            let model: Arc<dyn Model> = Arc::new(SoakModel);
            let mut agent = Agent::builder(model).tools(tools);
            // Every fourth asks before it does anything.
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

fn work() -> ToolFn {
    ToolFn::new("work", |call| async move {
        tokio::select! {
            biased;
            cause = call.scope.stopped_at("working") => format!("stopped: {cause}"),
            () = sleep(Duration::from_secs(7)) => "worked".to_owned(),
        }
    })
}

/// Hears nothing, and is dropped.
fn deaf() -> ToolFn {
    ToolFn::new("deaf", |_| async {
        sleep(Duration::from_secs(11)).await;
        "done".to_owned()
    })
}
