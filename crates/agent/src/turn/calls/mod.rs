//! Tool calls of a step. Each call is first admitted, or answered without running. An admitted call runs at once, in
//! parallel if the tools allow it. One call can be stopped, or time out, while its siblings and the turn continue.

mod admission;
mod nested;
mod order;
mod question_order;
mod running_call;

use std::sync::Arc;

use allstop_core::record::CallOutcome;
use allstop_core::{ToolCall, ToolResult};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::{RunningTurn, TurnInterrupt};
use crate::controls::note_of;
use crate::event::AgentEvent;
use admission::{AdmittedCall, DecidedCall};
use order::CallOrder;
use question_order::QuestionOrder;
use running_call::{EndedCall, FinishedCall, ToolCallEnd, ToolCallResult};

/// Next event of a step whose calls run or are decided.
enum StepEvent {
    Interrupted(TurnInterrupt),
    Decided(DecidedCall),
    Ended(EndedCall),
    /// A sub-agent reports calls.
    Nested,
}

impl RunningTurn<'_> {
    /// Runs the calls of a step and records exactly one result for each call. All calls are admitted together, so a
    /// person gets all questions of the step at once. An admitted call does not wait for the questions of the others.
    pub(super) async fn run_calls(&mut self, calls: Vec<ToolCall>) -> Result<(), TurnInterrupt> {
        let tools = self.parts().tools.now();
        for call in &calls {
            self.open_call(call, &tools)?;
        }
        for call in &calls {
            self.cx.events.send(|| AgentEvent::ToolRequested {
                call_id: call.id.clone(),
                name: Arc::clone(&call.name),
                arguments: call.arguments.clone(),
            });
            if let Some(found) = self.loops.observe(call) {
                return Err(TurnInterrupt::Loop(found));
            }
        }
        let mut order = CallOrder::new(calls.iter().map(|call| {
            let tool = tools.registry.get(&call.name);
            tool.is_none_or(|tool| tool.spec().parallel)
        }));
        let questions = QuestionOrder::default();
        let mut admissions = FuturesUnordered::new();
        for (position, call) in calls.into_iter().enumerate() {
            let admission = self.admission(position, call, &tools, &questions)?;
            admissions.push(admission.decide());
        }
        let mut running = FuturesUnordered::new();
        let nested = Arc::clone(&self.nested);
        loop {
            let startable = order.take_startable();
            if let Err(interrupt) = self.log_starts(&startable).await {
                return self.interrupt_calls(running, None, interrupt).await;
            }
            for admitted in startable {
                let Some(call) = self.start_call(admitted) else {
                    let interrupt = TurnInterrupt::Stopped;
                    return self.interrupt_calls(running, None, interrupt).await;
                };
                running.push(call);
            }
            if admissions.is_empty() && running.is_empty() {
                return Ok(());
            }
            let decided = admissions.next().now_or_never().flatten();
            let is_deciding = decided.is_none() && !admissions.is_empty();
            if is_deciding {
                // A decision may take long. A crash in the meantime must not lose the end of the model call.
                if let Err(interrupt) = self.flush().await {
                    return self.interrupt_calls(running, None, interrupt).await;
                }
                questions.open();
            }
            let event = if let Some(decided) = decided {
                StepEvent::Decided(decided)
            } else {
                tokio::select! {
                    biased;
                    interrupt = self.interrupted_calls(is_deciding) => StepEvent::Interrupted(interrupt),
                    Some(decided) = admissions.next() => StepEvent::Decided(decided),
                    // Before the ends of calls: the last reports of a sub-agent precede the end of its call.
                    () = nested.changed() => StepEvent::Nested,
                    Some(ended) = running.next() => StepEvent::Ended(ended),
                    never = self.activity.send_held_output() => match never {},
                }
            };
            let handled = match event {
                StepEvent::Interrupted(interrupt) => Err(interrupt),
                StepEvent::Nested => match self.take_nested() {
                    Ok(()) => self.flush().await,
                    refused => refused,
                },
                StepEvent::Decided(decided) => {
                    let mut handled = self.take_decision(decided, &mut order);
                    // Calls that are admitted without a wait start together, with one append to the log.
                    while handled.is_ok()
                        && let Some(Some(decided)) = admissions.next().now_or_never()
                    {
                        handled = self.take_decision(decided, &mut order);
                    }
                    handled
                }
                StepEvent::Ended(ended) => {
                    self.end_work_of(&ended).await;
                    if self.receipt_decides(&ended) {
                        let interrupt = TurnInterrupt::Stopped;
                        return self.interrupt_calls(running, Some(ended), interrupt).await;
                    }
                    self.record_activity();
                    order.end(ended.position);
                    let is_last = running.is_empty() && admissions.is_empty();
                    self.finish_and_keep(ended, is_last).await
                }
            };
            if let Err(interrupt) = handled {
                return self.interrupt_calls(running, None, interrupt).await;
            }
        }
    }

    /// Waits for the interrupt of a step whose calls run or are decided. The inactivity limit does not apply to
    /// decisions, because a person may take any time for an answer.
    async fn interrupted_calls(&self, is_deciding: bool) -> TurnInterrupt {
        if !is_deciding {
            return self.interrupted().await;
        }
        self.work.stopped().await;
        self.engine.acknowledge();
        TurnInterrupt::Stopped
    }

    /// Puts an admitted call in its order, or answers a call that does not run.
    fn take_decision(
        &mut self,
        decided: DecidedCall,
        order: &mut CallOrder<AdmittedCall>,
    ) -> Result<(), TurnInterrupt> {
        self.record_activity();
        match decided.decision {
            Ok(admitted) => order.admit(decided.position, admitted),
            Err((call, reason)) => {
                order.end(decided.position);
                self.answer_unrun(&call, reason)?;
            }
        }
        Ok(())
    }

    /// Writes the starts of these calls to the log, before the first of them runs.
    async fn log_starts(&mut self, calls: &[AdmittedCall]) -> Result<(), TurnInterrupt> {
        if calls.is_empty() {
            return Ok(());
        }
        for admitted in calls {
            let at = self.now();
            let record = self
                .draft
                .begin_call(&admitted.call.id, admitted.spec().effect, at)?;
            self.pending.push(record);
        }
        self.report_starts(calls).await?;
        self.flush().await
    }

    /// Starts a call. `None` if a stop of the turn came first.
    fn start_call(
        &self,
        admitted: AdmittedCall,
    ) -> Option<impl Future<Output = EndedCall> + use<>> {
        self.cx.events.send(|| AgentEvent::ToolStarted {
            call_id: admitted.call.id.clone(),
            name: Arc::clone(&admitted.call.name),
            effect: admitted.spec().effect,
        });
        let limit = admitted
            .spec()
            .timeout
            .or(self.parts().settings.deadlines.tool);
        running_call::start(admitted, limit, &self.work, self.parts())
    }

    /// Records the result of a call, and writes it at once unless the call is the last one of the step. The other calls
    /// may take long, and a crash in the meantime must not lose this result.
    async fn finish_and_keep(
        &mut self,
        ended: EndedCall,
        is_last: bool,
    ) -> Result<(), TurnInterrupt> {
        self.finish(ended).await?;
        if is_last {
            return Ok(());
        }
        self.flush().await
    }

    /// Interrupts a step. If no call runs, the ending of the turn makes the receipt.
    async fn interrupt_calls(
        &mut self,
        running: FuturesUnordered<impl Future<Output = EndedCall>>,
        stopped: Option<EndedCall>,
        interrupt: TurnInterrupt,
    ) -> Result<(), TurnInterrupt> {
        if running.is_empty() && stopped.is_none() {
            return Err(interrupt);
        }
        Box::pin(self.collect_stopped(running, stopped, interrupt)).await
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
        self.wait_for_stop(&interrupt).await;
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
        // The turn ends in any case. A start in the reports is refused, because the turn is stopped.
        drop(self.take_nested());
        for ended in late {
            let path = ended.scope.item_path();
            let item = receipt
                .items()
                .iter()
                .find(|item| Some(&item.id) == path.as_ref());
            let (answer, ended_before) = match ended.end {
                ToolCallEnd::TurnStopped(Some(answer)) => {
                    (answer, ended.scope.cause() == self.scope.cause())
                }
                ToolCallEnd::Returned(answer) => (answer, true),
                _ => continue,
            };
            // Without an item, the call had ended before the stop of the turn, but its result had not been taken.
            if item.map_or(ended_before, running_call::ended_by_itself) {
                let end = ToolCallEnd::Returned(answer);
                let finished = self.read_end(EndedCall { end, ..ended });
                self.take_result(finished)?;
            }
        }
        Err(interrupt)
    }

    /// Ends the work that a call has left in its scope.
    async fn end_work_of(&mut self, ended: &EndedCall) {
        if matches!(ended.end, ToolCallEnd::TurnStopped(_)) {
            return;
        }
        ended.scope.close();
        let leftover = match &ended.end {
            ToolCallEnd::StoppedAlone(receipt, _) if !receipt.quiet() => Some(Arc::clone(receipt)),
            _ if ended.scope.is_quiet() => None,
            _ => Box::pin(running_call::end_leftovers(&ended.scope)).await,
        };
        self.leftovers.extend(leftover);
    }

    /// True if the receipt of the turn's stop determines whether the answer of the call counts as a result. A call can
    /// return before it sees the stop of the turn, and the stop can end the work that the call has left.
    fn receipt_decides(&self, ended: &EndedCall) -> bool {
        match ended.end {
            ToolCallEnd::TurnStopped(_) => true,
            // A stop has a cause before it covers the scopes below the turn, so a later stop does not list this call.
            ToolCallEnd::Returned(_) => self.work.cause().is_some(),
            ToolCallEnd::Panicked | ToolCallEnd::StoppedAlone(..) => false,
        }
    }

    async fn finish(&mut self, ended: EndedCall) -> Result<(), TurnInterrupt> {
        let mut finished = self.read_end(ended);
        // The hooks precede the record, because they may replace the content.
        let hooked = self.call_hooks_or_fail(finished.event()).await;
        if let Ok(Some(content)) = &hooked {
            finished.result.content = Arc::clone(content);
        }
        self.take_result(finished)?;
        hooked.map(drop)
    }

    /// Reads the result of a call that has ended, and ends the calls inside it.
    fn read_end(&mut self, ended: EndedCall) -> FinishedCall {
        let (receipt, has_answer) = match &ended.end {
            ToolCallEnd::StoppedAlone(receipt, answer) => (Some(receipt), answer.is_some()),
            _ => (None, true),
        };
        // If the turn is stopped meanwhile, its loop notices the stop.
        drop(self.end_nested_of(&ended.call.id, receipt.map(AsRef::as_ref)));
        let mut result = running_call::describe(ended.end);
        if !has_answer {
            let nested = self.draft.nested_calls_text(&ended.call.id);
            result.content = format!("{}{nested}", result.content).into();
        }
        FinishedCall {
            after: ended.began.elapsed(),
            call: ended.call,
            result,
        }
    }

    /// Records the result of a call. Each call has exactly one result.
    fn take_result(&mut self, finished: FinishedCall) -> Result<(), TurnInterrupt> {
        let FinishedCall {
            call,
            after,
            result,
        } = finished;
        let ToolCallResult {
            outcome,
            content,
            images,
            is_error,
            left,
        } = result;
        let result = ToolResult {
            call_id: call.id.clone(),
            content: Arc::clone(&content),
            is_error,
            images,
        };
        let link = self.cx.controls.link(&call.id);
        let note = note_of(&link);
        self.draft.set_call_side_data(call.id.clone(), note);
        let record = self.draft.finish_call(result, outcome)?;
        self.pending.push(record);
        self.cx.controls.report_end(&call.id, outcome, &content);
        self.activity.send_rest_of(&call.id);
        self.cx.events.send(|| AgentEvent::ToolFinished {
            call_id: call.id,
            name: call.name,
            outcome,
            after_ms: after.as_millis() as u64,
            content,
            exit_code: note.exit_code,
            change: link.change(),
            left,
        });
        Ok(())
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
