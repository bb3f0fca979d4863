//! Limits of sub-agents: number, depth, steps and tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Default depth of sub-agents: a sub-agent may divide its part of the work once more. Deeper levels mostly mean that a
/// model passes its task on.
pub const DEPTH_MAX_DEFAULT: u32 = 2;

/// Default number of sub-agents that run at once. Each keeps a model call in flight, and few providers accept more per
/// key. A person could not follow more either.
pub const RUNNING_MAX_DEFAULT: u32 = 8;

/// Default step limit of one sub-agent: half of a session turn's limit, since it does only a part of the work.
pub const STEPS_MAX_DEFAULT: u32 = 25;

/// Limits of sub-agents: number, depth, steps and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubAgentLimits {
    /// Maximum depth: at 1 sub-agents start no sub-agents, at 0 there are no sub-agents.
    pub depth_max: u32,
    /// Maximum number that run at once, over all depths.
    pub running_max: u32,
    /// Maximum steps of each sub-agent; the agent's own limit applies if it is lower.
    pub steps_max: u32,
    /// Token budget of each sub-agent, including the sub-agents below it. At most half of the remaining tokens of a
    /// parent budget.
    pub budget_tokens: Option<u64>,
}

impl Default for SubAgentLimits {
    fn default() -> Self {
        Self {
            depth_max: DEPTH_MAX_DEFAULT,
            running_max: RUNNING_MAX_DEFAULT,
            steps_max: STEPS_MAX_DEFAULT,
            budget_tokens: None,
        }
    }
}

/// Counter of the running sub-agents. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub(super) struct SubAgentCount(Arc<AtomicU32>);

impl SubAgentCount {
    /// Increments the counter. `None` if the limit is reached.
    pub(super) fn acquire(&self, running_max: u32) -> Option<RunningGuard> {
        let one_more = |running: u32| (running < running_max).then_some(running + 1);
        let counted = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        counted.is_ok().then(|| RunningGuard(self.clone()))
    }
}

/// Guard of one running sub-agent. Its drop decreases the counter.
#[derive(Debug)]
#[must_use = "dropping it says that the agent has ended"]
pub(super) struct RunningGuard(SubAgentCount);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
