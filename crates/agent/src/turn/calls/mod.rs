//! Tool calls of a step. Each call is first admitted, or answered without running. Then the admitted calls run, in
//! parallel if the tools allow it. One call can be stopped, or time out, while its siblings and the turn continue.

mod admission;
mod running_call;

use std::sync::Arc;

use allstop_core::record::CallOutcome;
use allstop_core::{ToolCall, ToolResult};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::{RunningTurn, TurnInterrupt};
use crate::controls::note_of;
use crate::event::AgentEvent;
use crate::hook::HookEvent;
use admission::AdmittedCall;
use running_call::{EndedCall, ToolCallEnd, ToolCallResult};

impl RunningTurn<'_> {
    /// Runs the calls of a step and records exactly one result for each call.
    pub(super) async fn run_calls(&mut self, calls: Vec<ToolCall>) -> Result<(), TurnInterrupt> {
        let mut admitted = Vec::with_capacity(calls.len());
        for call in &calls {
            self.open_call(call)?;
        }
        for call in calls {
            self.cx.events.send(|| AgentEvent::ToolRequested {
                call_id: call.id.clone(),
                name: Arc::clone(&call.name),
                arguments: call.arguments.clone(),
            });
            if let Some(found) = self.loops.observe(&call) {
                return Err(TurnInterrupt::Loop(found));
            }
            if let Some(call) = self.admit(call).await? {
                admitted.push(call);
            }
        }
        // A call that must run alone splits the calls into groups, in the order of the requests.
        let mut group = Vec::with_capacity(admitted.len());
        for call in admitted {
            if call.spec().parallel {
                group.push(call);
                continue;
            }
            self.run_group(std::mem::take(&mut group)).await?;
            self.run_group(vec![call]).await?;
        }
        self.run_group(group).await
    }

    /// Runs calls in parallel. The starts of all these calls are in the log before the first call runs.
    async fn run_group(&mut self, group: Vec<AdmittedCall>) -> Result<(), TurnInterrupt> {
        if group.is_empty() {
            return Ok(());
        }
        for admitted in &group {
            let at = self.now();
            let record = self
                .draft
                .begin_call(&admitted.call.id, admitted.spec().effect, at)?;
            self.pending.push(record);
        }
        self.flush().await?;
        let mut running = FuturesUnordered::new();
        for admitted in group {
            self.cx.events.send(|| AgentEvent::ToolStarted {
                call_id: admitted.call.id.clone(),
                name: Arc::clone(&admitted.call.name),
                effect: admitted.spec().effect,
            });
            let limit = admitted
                .spec()
                .timeout
                .or(self.parts().settings.deadlines.tool);
            let Some(call) = running_call::start(admitted, limit, &self.work) else {
                let ending = self.collect_stopped(running, None, TurnInterrupt::Stopped);
                return Box::pin(ending).await;
            };
            running.push(call);
        }
        loop {
            let ended = tokio::select! {
                biased;
                interrupt = self.interrupted() => {
                    return Box::pin(self.collect_stopped(running, None, interrupt)).await;
                }
                ended = running.next() => ended,
                never = self.activity.send_held_output() => match never {},
            };
            let Some(ended) = ended else { return Ok(()) };
            if matches!(ended.end, ToolCallEnd::TurnStopped(_)) {
                let ending = self.collect_stopped(running, Some(ended), TurnInterrupt::Stopped);
                return Box::pin(ending).await;
            }
            self.record_activity();
            let mut kept = self.finish(ended).await;
            if kept.is_ok() && !running.is_empty() {
                // Written now, because the other calls may take long, and a crash in the meantime must not lose this
                // result.
                kept = self.flush().await;
            }
            if let Err(interrupt) = kept {
                return Box::pin(self.collect_stopped(running, None, interrupt)).await;
            }
        }
    }

    /// Handles a stop while calls run. A call that returns during the stop without having noticed the stop has
    /// completed its work. The result of such a call is kept for the log. Under the policy `keep`, which keeps a
    /// stopped turn in the conversation, the model also receives the result.
    async fn collect_stopped(
        &mut self,
        mut running: FuturesUnordered<impl Future<Output = EndedCall>>,
        stopped: Option<EndedCall>,
        interrupt: TurnInterrupt,
    ) -> Result<(), TurnInterrupt> {
        let (cause, ..) = self.why(&interrupt);
        let Some(account) = self.begin_account(cause) else {
            return Err(interrupt);
        };
        let mut late = Vec::with_capacity(running.len() + usize::from(stopped.is_some()));
        late.extend(stopped);
        let receipt = loop {
            tokio::select! {
                biased;
                Some(ended) = running.next() => late.push(ended),
                receipt = account.receipt() => break receipt,
                never = self.activity.send_held_output() => match never {},
            }
        };
        while let Some(Some(ended)) = running.next().now_or_never() {
            late.push(ended);
        }
        for ended in late {
            let path = ended.scope.item_path();
            let item = receipt
                .items()
                .iter()
                .find(|item| Some(&item.id) == path.as_ref());
            let is_result = match item {
                Some(item) => running_call::ended_by_itself(item),
                // The call had ended before the stop of the turn, but its result had not been taken.
                None => ended.scope.cause() == self.scope.cause(),
            };
            if let ToolCallEnd::TurnStopped(Some(answer)) = ended.end
                && is_result
            {
                let end = ToolCallEnd::Returned(answer);
                let (call, scope, began) = (ended.call, ended.scope, ended.began);
                self.take_result(EndedCall {
                    call,
                    scope,
                    began,
                    end,
                })?;
            }
        }
        Err(interrupt)
    }

    async fn finish(&mut self, ended: EndedCall) -> Result<(), TurnInterrupt> {
        ended.scope.close();
        let leftover = match &ended.end {
            ToolCallEnd::StoppedAlone(receipt, _) if !receipt.quiet() => Some(Arc::clone(receipt)),
            _ if ended.scope.is_quiet() => None,
            _ => Box::pin(running_call::end_leftovers(&ended.scope)).await,
        };
        self.leftovers.extend(leftover);
        let event = self.take_result(ended)?;
        self.call_hooks_or_fail(event).await
    }

    /// Records the result of a call. Each call has exactly one result.
    fn take_result(&mut self, ended: EndedCall) -> Result<HookEvent, TurnInterrupt> {
        let ToolCallResult {
            outcome,
            content,
            is_error,
            left,
        } = running_call::describe(ended.end);
        let result = ToolResult {
            call_id: ended.call.id.clone(),
            content: Arc::clone(&content),
            is_error,
        };
        let link = self.cx.controls.link(&ended.call.id);
        let note = note_of(&link);
        self.draft.set_call_side_data(ended.call.id.clone(), note);
        let record = self.draft.finish_call(result, outcome)?;
        self.pending.push(record);
        let after = ended.began.elapsed();
        self.activity.send_rest_of(&ended.call.id);
        self.cx.events.send(|| AgentEvent::ToolFinished {
            call_id: ended.call.id.clone(),
            name: Arc::clone(&ended.call.name),
            outcome,
            after_ms: after.as_millis() as u64,
            content: Arc::clone(&content),
            exit_code: note.exit_code,
            change: link.change(),
            left,
        });
        Ok(HookEvent::ToolEnd {
            call: ended.call,
            outcome,
            content,
        })
    }

    /// Sends the live event of a call that was answered without running.
    fn send_not_run(&self, call: &ToolCall, outcome: CallOutcome, content: Arc<str>) {
        self.cx.events.send(|| AgentEvent::ToolFinished {
            call_id: call.id.clone(),
            name: Arc::clone(&call.name),
            outcome,
            after_ms: 0,
            content,
            exit_code: None,
            change: None,
            left: None,
        });
    }
}
