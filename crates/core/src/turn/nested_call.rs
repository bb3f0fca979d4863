//! Calls that a sub-agent makes while a tool call of the turn runs. Their ids are paths: `call_1/call_2`.
//!
//! The conversation contains no message about a nested call. The records exist so that the effect of the call is known
//! after a crash, a stop or a rollback.

use std::sync::Arc;

use crate::ids::CallId;
use crate::receipt::Receipt;
use crate::record::{CallOutcome, SessionRecord, StartedCall};
use crate::time::Timestamp;
use crate::turn::draft::{Draft, DraftError};
use crate::turn::effects::{TurnEffects, result_excerpt};
use crate::turn::state::IllegalEvent;

impl Draft {
    /// Begins a nested call. Append the record before the call runs.
    ///
    /// # Errors
    /// Returns the refusal if the turn is stopped. [`IllegalEvent::CallNotOpen`] if no enclosing call is open, because
    /// the sub-agent has moved to the background.
    pub fn begin_nested_call(
        &mut self,
        call: StartedCall,
        at: Timestamp,
    ) -> Result<SessionRecord, DraftError> {
        self.check_stop()?;
        let mut open = self.state.open_calls().iter();
        if !open.any(|outer| call.id.is_within(&outer.id)) {
            return Err(IllegalEvent::CallNotOpen(call.id).into());
        }
        Ok(self.start_call(call, at)?)
    }

    /// Ends a nested call.
    ///
    /// # Errors
    /// If the call is not open, because it never began or has ended.
    pub fn finish_nested_call(
        &mut self,
        id: CallId,
        outcome: CallOutcome,
        content: &Arc<str>,
    ) -> Result<SessionRecord, IllegalEvent> {
        self.end_tool_call(id, outcome, Some(result_excerpt(content)))
    }

    /// Text for the model about the nested calls of a call that has no result of its sub-agent. Empty if there are none.
    pub fn nested_calls_text(&self, outer: &CallId) -> String {
        let calls = self.state.effects().calls.iter();
        let nested = TurnEffects {
            calls: calls
                .filter(|call| call.id.is_within(outer))
                .cloned()
                .collect(),
            omitted: 0,
        };
        match nested.of_sub_agent() {
            text if text.is_empty() => text,
            text => format!("\n{text}"),
        }
    }

    /// Ends the open nested calls of a call that has ended. `receipt` is the receipt of the stop of the call, if it was
    /// stopped alone. Nested calls without evidence of their end have the outcome `unknown`.
    pub fn end_nested_calls(
        &mut self,
        outer: &CallId,
        receipt: Option<&Receipt>,
    ) -> Vec<SessionRecord> {
        let open = self.state.open_calls().iter();
        let nested = open.filter(|call| call.id.is_within(outer));
        let nested: Vec<CallId> = nested.map(|call| call.id.clone()).collect();
        let ends = nested.into_iter().map(|id| self.end_open_call(id, receipt));
        ends.collect()
    }
}
