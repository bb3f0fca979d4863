//! Tool `agent`, with which an agent starts sub-agents.
//!
//! A sub-agent is a run of one turn. Its conversation begins with the prompt and is not stored; its last message is the
//! result of the call. A sub-agent inherits from the agent that starts it: the model, working directory, deadlines and
//! prompter, the tools except the excluded ones, and the hooks and guardrails, so that it cannot bypass them. Hooks and
//! guardrails see it as a separate session, `SESSION/CALL`.
//!
//! Invariants:
//! 1. A sub-agent runs in the scope of its call, or of its background work, and so do all sub-agents below it: a stop
//!    of that scope stops all of them. Each of their calls is a separate item of the receipt.
//! 2. The budget of a sub-agent is reserved from the budget of the agent that starts it; see
//!    [`Budget`](allstop_core::turn::Budget).
//! 3. The usage of a sub-agent's model calls is metered with its call, and with every enclosing call, when each model
//!    call ends. No usage is lost if the call is dropped. In the background, where no call waits for the sub-agent,
//!    usage is metered with the end of the work; see `promotion` for a sub-agent that moves there later.
//! 4. At most [`SubAgentLimits::running_max`] sub-agents run at any moment, over all depths.
//!
//! Only the outermost agent starts sub-agents in the background, and only its own calls can move there, because it
//! receives the note about their end. Commands that a sub-agent starts in the background belong to the session.
//!
//! Ids of calls are unique within one agent. In receipts, events and records, and for a stop of one call, a call of a
//! sub-agent is named by the path of calls that contain it: `call_1/call_2`. Models see only their own ids.

mod background;
mod level;
mod limits;
mod lines;
mod promotion;
mod sub_agent;
mod tool;

use std::sync::Arc;

use allstop_tools::{RegistryError, names};

use crate::agent::Agent;
pub use background::SubAgentBackground;
use level::SubAgentLevel;
use limits::SubAgentCount;
pub use limits::{DEPTH_MAX_DEFAULT, RUNNING_MAX_DEFAULT, STEPS_MAX_DEFAULT, SubAgentLimits};
use tool::AgentTool;

/// Options of an agent's sub-agents.
#[derive(Debug, Clone, Default)]
pub struct SubAgents {
    /// Limits of number, depth, steps and tokens.
    pub limits: SubAgentLimits,
    /// Tools of the agent that its sub-agents do not get.
    pub excluded: Vec<Arc<str>>,
    /// Support for sub-agents in the background; `None` disables it.
    pub background: Option<SubAgentBackground>,
}

impl Agent {
    /// Returns the same agent with the tool `agent`. The agent counts its running sub-agents, so it serves one session.
    ///
    /// # Errors
    /// If the agent already has a tool of that name.
    pub fn with_sub_agents(&self, options: SubAgents) -> Result<Self, RegistryError> {
        if options.limits.depth_max == 0 {
            return Ok(self.clone());
        }
        let parts = self.parts();
        let excluded = options.excluded.clone();
        let theirs = parts
            .tools
            .filtered(move |name| !excluded.iter().any(|no| **no == *name));
        let mut limits = options.limits;
        if options.excluded.iter().any(|no| **no == *names::AGENT) {
            limits.depth_max = 1;
        }
        let level = SubAgentLevel {
            base: self.with(theirs, parts.settings.clone()),
            limits,
            running: SubAgentCount::default(),
            depth: 1,
            enclosing_calls: Vec::new(),
        };
        let mut tools = parts.tools.filtered(|_| true);
        tools.register(Arc::new(AgentTool::new(level, options.background)))?;
        Ok(self.with(tools, parts.settings.clone()))
    }
}
