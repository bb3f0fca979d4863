//! Limits of sub-agents: number, depth, steps and tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Default maximum depth of sub-agents: a sub-agent may divide its part of the work once more. At deeper levels, a
/// model mostly passes on its whole task.
pub const DEPTH_MAX_DEFAULT: u32 = 2;

/// Default maximum number of sub-agents that run at once. Each sub-agent keeps one model call in flight, and few
/// providers accept more calls at once per key. A person could not follow more sub-agents either.
pub const RUNNING_MAX_DEFAULT: u32 = 8;

/// Default step limit of one sub-agent: half of the limit of a session's turn, because a sub-agent does only a part of
/// the work.
pub const STEPS_MAX_DEFAULT: u32 = 25;

/// Limits of sub-agents: number, depth, steps and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubAgentLimits {
    /// Maximum depth. If the maximum is 1, sub-agents cannot start sub-agents. If the maximum is 0, no sub-agents can
    /// start.
    pub depth_max: u32,
    /// Maximum number of sub-agents that run at the same time, over all depths.
    pub running_max: u32,
    /// Maximum steps of each sub-agent; if the agent's own step limit is lower, that limit applies.
    pub steps_max: u32,
    /// Token budget of each sub-agent, including the sub-agents below it. If a parent budget exists, a sub-agent gets
    /// at most half of the remaining tokens of the parent budget.
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

impl SubAgentLimits {
    /// Sets the maximum depth.
    #[must_use]
    pub fn depth_max(mut self, depth_max: u32) -> Self {
        self.depth_max = depth_max;
        self
    }

    /// Sets the maximum number of sub-agents that run at the same time, over all depths.
    #[must_use]
    pub fn running_max(mut self, running_max: u32) -> Self {
        self.running_max = running_max;
        self
    }

    /// Sets the maximum steps of each sub-agent.
    #[must_use]
    pub fn steps_max(mut self, steps_max: u32) -> Self {
        self.steps_max = steps_max;
        self
    }

    /// Sets the token budget of each sub-agent.
    #[must_use]
    pub fn budget_tokens(mut self, budget_tokens: impl Into<Option<u64>>) -> Self {
        self.budget_tokens = budget_tokens.into();
        self
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
