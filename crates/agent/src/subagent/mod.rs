//! `agent`: a tool with which an agent starts agents of its own.
//!
//! A sub-agent is a run of one turn, with a conversation of its own that begins with the prompt and is kept nowhere; its
//! last message is the answer of the call. It is made of the agent that starts it: the same model, working directory,
//! deadlines and prompter, the same tools but those that are excluded, and the same hooks and guardrails, so that it is
//! no way around them. They see it as a session of its own, `SESSION/CALL`.
//!
//! Invariants:
//! 1. It runs in the scope of its call, or of its background work, and so does all below it: a stop of that stops all.
//!    Each of its calls is an item of the receipt by itself.
//! 2. What it may spend is set aside from the budget of whoever starts it; see [`Budget`](allstop_core::turn::Budget).
//! 3. What its model calls use is metered with its call, and with every call above, when each ends: no bill is lost if
//!    the call is dropped. In the background, where no call waits for it, it is metered with the end of the work; see
//!    [`promotion`] for one that goes there later.
//! 4. No more than [`SubAgentLimits::running_max`] run at any moment, at all depths together.
//!
//! Only the outermost agent starts agents in the background, and only calls of its own go on there when they are asked
//! to: what ends there is told to it. A sub-agent's own commands in the background are the session's, like any.
//!
//! Ids of calls are unique in one agent. What names a call of a sub-agent in receipts, events and records, and to stop it
//! alone, is the path of calls that it lies in: `call_1/call_2`. The models see their own ids.

mod child;
mod limits;
mod lines;
mod promotion;
mod tool;

use std::sync::Arc;

use allstop_tools::{BackgroundHost, OutputFolder, RegistryError};

use crate::agent::Agent;
use limits::Running;
pub use limits::{DEPTH_MAX_DEFAULT, RUNNING_MAX_DEFAULT, STEPS_MAX_DEFAULT, SubAgentLimits};
use tool::{AgentTool, Level};

/// The name of the tool.
pub const AGENT_TOOL: &str = "agent";

/// How an agent starts agents of its own.
#[derive(Debug, Clone, Default)]
pub struct SubAgents {
    /// How many, how deep, and how much.
    pub limits: SubAgentLimits,
    /// The agent's tools that its sub-agents do not have.
    pub excluded: Vec<Arc<str>>,
    /// Where sub-agents run in the background; without it none do.
    pub background: Option<SubAgentBackground>,
}

/// Where sub-agents run in the background.
#[derive(Debug, Clone)]
pub struct SubAgentBackground {
    /// The owner of the session.
    pub host: Arc<dyn BackgroundHost>,
    /// Where what they show is written.
    pub output_folder: Arc<OutputFolder>,
}

impl Agent {
    /// The same agent with the tool `agent`. What it starts is counted in the agent, so it serves one session.
    ///
    /// # Errors
    /// If it has a tool of that name already.
    pub fn with_sub_agents(&self, options: SubAgents) -> Result<Self, RegistryError> {
        if options.limits.depth_max == 0 {
            return Ok(self.clone());
        }
        let parts = self.parts();
        let excluded = options.excluded.clone();
        let theirs = parts
            .tools
            .chosen(move |name| !excluded.iter().any(|no| **no == *name));
        let mut limits = options.limits;
        if options.excluded.iter().any(|no| **no == *AGENT_TOOL) {
            limits.depth_max = 1;
        }
        let level = Level {
            base: self.with(theirs, parts.settings.clone()),
            limits,
            running: Running::default(),
            depth: 1,
            above: Vec::new(),
        };
        let mut tools = parts.tools.chosen(|_| true);
        tools.register(Arc::new(AgentTool::new(level, options.background)))?;
        Ok(self.with(tools, parts.settings.clone()))
    }
}
