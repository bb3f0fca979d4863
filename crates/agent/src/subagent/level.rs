//! Shared parts of the sub-agents of one agent.

use allstop_tools::CallLink;

use super::limits::{SubAgentCount, SubAgentLimits};
use crate::agent::Agent;

/// Shared parts of the sub-agents of one agent.
#[derive(Debug)]
pub(super) struct SubAgentLevel {
    /// Agent without the tool `agent`. Its tools are the tools of the sub-agents, and its budget is the parent of their
    /// budgets.
    pub(super) base: Agent,
    pub(super) limits: SubAgentLimits,
    pub(super) running: SubAgentCount,
    /// Depth of the sub-agents, from 1.
    pub(super) depth: u32,
    /// Calls that wait for the agent that has the tool `agent`.
    pub(super) enclosing_calls: Vec<CallLink>,
}
