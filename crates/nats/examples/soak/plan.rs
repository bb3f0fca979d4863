//! Work of one task. The client of the task chooses this work.

use std::time::Duration;

use allstop_task::model::JsonMap;
use allstop_testkit::Random;
use serde::{Deserialize, Serialize};

/// Name of the request's field that contains the plan.
const FIELD: &str = "plan";

/// Steps of a task. Each step has one side effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SoakPlan {
    pub steps: u32,
    /// Time that a step waits before its side effect.
    pub step_ms: u64,
    /// True if a side effect must not happen twice. Such a task is not repeated after a crash.
    pub is_irreversible: bool,
    /// True if a child process that ignores SIGTERM runs in parallel to the steps.
    pub has_child: bool,
    /// True if the steps ignore a stop.
    pub is_deaf: bool,
}

impl SoakPlan {
    pub(crate) fn choose(random: &mut Random, longest: Duration) -> Self {
        let longest_ms = longest.as_millis() as u64;
        let all = longest_ms / 50 + random.below(longest_ms - longest_ms / 50);
        let steps = if longest_ms == 0 {
            0
        } else {
            1 + random.below(4)
        };
        Self {
            steps: steps as u32,
            step_ms: all / steps.max(1),
            is_irreversible: random.below(3) == 0,
            has_child: steps > 0 && random.below(4) == 0,
            is_deaf: random.below(10) == 0,
        }
    }

    pub(crate) fn to_metadata(&self) -> JsonMap {
        let plan = serde_json::to_value(self).expect("plain data");
        [(FIELD.to_owned(), plan)].into_iter().collect()
    }

    pub(crate) fn of(metadata: &JsonMap) -> Self {
        let plan = metadata.get(FIELD).expect("a task of the soak").clone();
        serde_json::from_value(plan).expect("a plan")
    }
}
