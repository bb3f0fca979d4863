//! The live events of a turn, as they are shown.

use allstop_agent::AgentEvent;

/// Shows the events of a run.
pub(crate) trait EventView {
    /// The next event.
    fn event(&mut self, event: &AgentEvent);
    /// So many events were missed before the next one.
    fn missed(&mut self, count: u64);
}
