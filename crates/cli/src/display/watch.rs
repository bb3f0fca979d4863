//! Interface of the views that show live events.

use allstop_agent::AgentEvent;

/// Shows the events of a run.
pub(crate) trait EventView {
    /// Shows the next event.
    fn event(&mut self, event: &AgentEvent);
    /// Notes that `count` events were missed before the next event.
    fn missed(&mut self, count: u64);
}
