//! The parts of an agent, each with a point before, inside and after what it does. They note in the [`RunWitness`] what
//! really runs.
//!
//! Inside means a moment in which the part waits: a millisecond of the paused clock, which costs nothing.

mod guardrail;
mod hook;
mod model;
mod prompter;
mod tool;

pub(crate) use guardrail::WatchedGuardrail;
pub(crate) use hook::WatchedHook;
pub(crate) use model::WatchedModel;
pub(crate) use prompter::WatchedPrompter;
pub(crate) use tool::WatchedTool;

use std::sync::Arc;
use std::time::Duration;

use crate::observe::RunWitness;
use crate::observe::{Moment, Points};

/// Wait of a part that has nothing else to wait for.
pub(crate) const INSIDE: Duration = Duration::from_millis(1);

/// Points and witness, in which a part notes what it does.
#[derive(Debug, Clone)]
pub(crate) struct PartWatch {
    pub(crate) points: Points,
    pub(crate) witness: RunWitness,
}

impl PartWatch {
    /// One thing that a part does, with its three points.
    async fn around<T>(
        &self,
        what: &'static str,
        of: Arc<str>,
        doing: impl Future<Output = T>,
    ) -> T {
        self.points.reach(Moment::Before, what, Arc::clone(&of));
        tokio::time::sleep(INSIDE).await;
        self.points.reach(Moment::Inside, what, Arc::clone(&of));
        let done = doing.await;
        self.points.reach(Moment::After, what, of);
        done
    }
}
