//! Shared parts of the sub-agents of one agent.

use std::sync::Arc;

use allstop_core::turn::Conversation;
use allstop_tools::{CallLink, Tool};

use super::kind::SubAgentKind;
use super::limits::{SubAgentCount, SubAgentLimits};
use crate::agent::Agent;

/// Function that returns the tool `agent` in another form, for example under another name.
pub type SubAgentToolForm = fn(Arc<dyn Tool>) -> Arc<dyn Tool>;

/// Shared parts of the sub-agents of one agent.
#[derive(Debug)]
pub(super) struct SubAgentLevel {
    /// Agent that starts the sub-agents, without the tool `agent`. The sub-agents get tools of this agent, and the
    /// budget of this agent is the parent of their budgets.
    pub(super) base: Agent,
    pub(super) limits: SubAgentLimits,
    pub(super) running: SubAgentCount,
    /// Depth of the sub-agents, from 1.
    pub(super) depth: u32,
    /// Calls that wait for the agent that starts the sub-agents.
    pub(super) enclosing_calls: Vec<CallLink>,
    /// Conversation of the outermost agent when it started the sub-agents of this level. `None` for the outermost agent
    /// itself.
    pub(super) conversation: Option<Arc<Conversation>>,
    /// Kinds that a call can choose.
    pub(super) kinds: Arc<[SubAgentKind]>,
    pub(super) form: Option<SubAgentToolForm>,
}

/// Conversation before the turn that waits for this call of the outermost agent.
pub(super) fn conversation_before(call: &CallLink) -> Arc<Conversation> {
    let journal = call.journal();
    journal.map_or_else(Arc::default, |journal| journal.conversation())
}
