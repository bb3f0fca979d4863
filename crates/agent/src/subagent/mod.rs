//! Tool `agent`, with which an agent starts sub-agents.
//!
//! A sub-agent is a run of one turn. The conversation of a sub-agent begins with the prompt and is not stored. The last
//! message of the sub-agent is the result of the call. A sub-agent inherits the model, working directory, deadlines and
//! prompter (which asks a person permission questions) of the agent that starts it. A sub-agent also inherits the
//! tools, except the excluded ones. The hooks and guardrails are inherited too, so that no sub-agent can bypass them.
//! Hooks and guardrails see the sub-agent as a separate session, `SESSION/CALL`.
//!
//! Invariants:
//! 1. A sub-agent, and all sub-agents below it, run in the scope of its call or of its background work. A stop of that
//!    scope therefore stops all of them. Each call of these sub-agents is a separate item of the receipt, the result of
//!    the stop.
//! 2. The budget of a sub-agent is reserved from the budget of the agent that starts it; see
//!    [`Budget`](allstop_core::turn::Budget).
//! 3. When a model call of a sub-agent ends, its usage is metered with the call of the tool `agent`, and with every
//!    enclosing call. So no usage is lost if such a call is dropped. In the background no call waits for the sub-agent,
//!    so usage is metered when the work ends. `promotion` describes a sub-agent that moves to the background later.
//! 4. At most [`SubAgentLimits::running_max`] sub-agents run at any moment, over all depths.
//!
//! Only the outermost agent starts sub-agents in the background, and only calls of this agent can move to the
//! background. The reason is that this agent receives the note about the end of background work. Commands that a
//! sub-agent starts in the background belong to the session.
//!
//! Ids of calls are unique within one agent. In receipts, events and records, and for a stop of one call, a call of a
//! sub-agent is named by the path of calls that contain it: `call_1/call_2`. A model sees only the ids of its own
//! calls.

mod background;
mod background_calls;
mod kind;
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
pub use kind::SubAgentKind;
use level::SubAgentLevel;
pub use level::SubAgentToolForm;
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
    /// Kinds of sub-agents that a call can choose by name. A call without a name starts a sub-agent without a kind.
    pub kinds: Arc<[SubAgentKind]>,
    /// Form of the tool for the model; `None` for the tool `agent` itself.
    pub form: Option<SubAgentToolForm>,
}

impl Agent {
    /// Returns a copy of the agent with the tool `agent`. The copy counts its running sub-agents, so it serves only one
    /// session.
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
            conversation: None,
            kinds: options.kinds,
            form: options.form,
        };
        let mut tools = parts.tools.filtered(|_| true);
        tools.register(AgentTool::formed(level, options.background))?;
        Ok(self.with(tools, parts.settings.clone()))
    }
}
