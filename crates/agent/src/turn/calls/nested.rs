//! Records of nested calls, the calls of sub-agents. The sub-agent's turn reports them to the turn of the outermost
//! agent, which writes them to its log.

use std::sync::Arc;

use allstop_core::record::{StartedCall, StartedCallKind};
use allstop_core::turn::{DraftError, IllegalEvent};
use allstop_core::{CallId, Effect, Receipt};

use super::admission::AdmittedCall;
use crate::nested_calls::NestedCallEvent;
use crate::turn::{RunningTurn, TurnInterrupt};

impl RunningTurn<'_> {
    /// In the turn of a sub-agent: reports the starts of these calls, unless they change nothing, and waits until the
    /// outermost turn has written them.
    pub(super) async fn report_starts(&self, calls: &[AdmittedCall]) -> Result<(), TurnInterrupt> {
        let Some(journal) = self.cx.controls.journal() else {
            return Ok(());
        };
        let starts = calls.iter().filter_map(started_call);
        let starts: Vec<StartedCall> = starts.collect();
        if starts.is_empty() {
            return Ok(());
        }
        tokio::select! {
            biased;
            written = journal.begin(starts) => {
                // The sub-agent may have moved to the background meanwhile, where its calls have no records.
                if written.is_ok() || self.cx.controls.has_moved() {
                    return Ok(());
                }
                self.work.stopped().await;
            }
            () = self.work.stopped() => {}
        }
        self.engine.acknowledge();
        Err(TurnInterrupt::Stopped)
    }

    /// Takes the reports of sub-agents. Their records become pending, and the next append confirms the starts.
    pub(super) fn take_nested(&mut self) -> Result<(), TurnInterrupt> {
        let mut refused = None;
        for event in self.nested.take() {
            let record = match event {
                NestedCallEvent::Began(call) => {
                    let at = self.now();
                    self.draft.begin_nested_call(call, at)
                }
                NestedCallEvent::Ended {
                    id,
                    outcome,
                    content,
                } => {
                    let ended = self.draft.finish_nested_call(id, outcome, &content);
                    ended.map_err(DraftError::from)
                }
            };
            match record {
                Ok(record) => self.pending.push(record),
                // The sub-agent has moved to the background, or the call changes nothing and has no start.
                Err(DraftError::Illegal(IllegalEvent::CallNotOpen(_))) => {}
                Err(not) => refused = Some(not),
            }
        }
        refused.map_or(Ok(()), |not| Err(not.into()))
    }

    /// Ends the nested calls of a call that has ended. `receipt` is the receipt of the stop of the call, if it was
    /// stopped alone.
    pub(super) fn end_nested_of(
        &mut self,
        outer: &CallId,
        receipt: Option<&Receipt>,
    ) -> Result<(), TurnInterrupt> {
        let taken = self.take_nested();
        let ends = self.draft.end_nested_calls(outer, receipt);
        self.pending.extend(ends);
        taken
    }
}

/// The start of a call that may change something.
fn started_call(admitted: &AdmittedCall) -> Option<StartedCall> {
    let effect = admitted.spec().effect;
    (effect != Effect::ReadOnly).then(|| StartedCall {
        id: admitted.invocation.call_id.clone(),
        name: Arc::clone(&admitted.call.name),
        kind: StartedCallKind::Tool {
            arguments: admitted.call.arguments.clone(),
            effect,
        },
    })
}
