//! How many sub-agents, how deep, and how much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How deep agents start agents, where nobody says otherwise: one does a part of the work, and may divide it once more.
/// What is deeper is mostly a model that hands its task on.
pub const DEPTH_MAX_DEFAULT: u32 = 2;

/// How many run at once, where nobody says otherwise: each keeps a model call in flight, and few providers take more of
/// one key; nobody follows more either.
pub const RUNNING_MAX_DEFAULT: u32 = 8;

/// Steps of one sub-agent, where nobody says otherwise: half of what a turn of the session may take. It has a part of
/// the work.
pub const STEPS_MAX_DEFAULT: u32 = 25;

/// How many sub-agents, how deep, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubAgentLimits {
    /// How deep: at 1 sub-agents start none of their own, at 0 there are none.
    pub depth_max: u32,
    /// How many run at once, at all depths together.
    pub running_max: u32,
    /// Steps of each; never more than the agent's own limit.
    pub steps_max: u32,
    /// Tokens of each, those below it included. Of a budget it gets half of what is left at most.
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

/// Counts those that run. Clones are the same count.
#[derive(Debug, Clone, Default)]
pub(super) struct Running(Arc<AtomicU32>);

impl Running {
    /// One more. `None`: as many run as may.
    pub(super) fn one_more(&self, running_max: u32) -> Option<RunningGuard> {
        let one_more = |running: u32| (running < running_max).then_some(running + 1);
        let counted = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        counted.is_ok().then(|| RunningGuard(self.clone()))
    }
}

/// One that runs. Its drop says that it does no more.
#[derive(Debug)]
#[must_use = "dropping it says that the agent has ended"]
pub(super) struct RunningGuard(Running);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
