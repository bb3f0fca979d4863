//! The parallel tool calls of a step. Each call gets only one result.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::message::Arguments;
use allstop_core::receipt::{ItemKind, ItemState, Receipt};
use allstop_core::record::{CallOutcome, SessionRecord, StartedCallKind};
use allstop_core::{Effect, Extent, Message, ToolCall, ToolResult, Usage};
use allstop_scope::{Scope, ScopeOptions, WorkHandle, WorkLost, WorkSpec};
use allstop_tools::{ToolError, ToolInvocation, ToolOutput};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::turn::{Interrupt, Turn};
use crate::bug::Bug;

type Said = Result<Result<ToolOutput, ToolError>, WorkLost>;

/// A call that has ended: its index in the step, its scope, and its result.
type Ended = (usize, Scope, Said);

type RunningCalls = FuturesUnordered<BoxFuture<'static, Ended>>;

impl Turn<'_> {
    pub(super) async fn run_calls(&mut self) -> Result<(), Interrupt> {
        let calls = match &self.step {
            Some(step) => step.calls.clone(),
            None => return Ok(()),
        };
        for call in &calls {
            if !self.has(Bug::CallsBesideBudget)
                && let Some(reservation) = self.reserve(0)?
            {
                reservation.settle(Usage::default());
            }
            let Arguments::Json(arguments) = &call.arguments else {
                unreachable!("the scenarios ask for no malformed calls");
            };
            let kind = StartedCallKind::Tool {
                arguments: Arguments::Json(Arc::clone(arguments)),
                effect: Effect::Irreversible,
            };
            self.note_start(&call.id, &call.name, kind);
        }
        if !self.has(Bug::StartNotDurable) {
            self.flush().await?;
        }
        let mut running = RunningCalls::new();
        for (place, call) in calls.iter().enumerate() {
            self.cx.events.send(|| AgentEvent::ToolStarted {
                call_id: call.id.clone(),
                name: Arc::clone(&call.name),
                effect: Effect::Irreversible,
            });
            match self.start(place, call) {
                Some(ended) => running.push(ended),
                None => return Err(self.overtaken(running).await),
            }
        }
        let scope = self.scope.clone();
        loop {
            let ended = tokio::select! {
                biased;
                () = scope.stopped() => return Err(self.overtaken(running).await),
                ended = running.next() => ended,
            };
            let Some((place, call_scope, said)) = ended else {
                break;
            };
            if self.has(Bug::Repeat) && said.is_err() {
                // The seeded bug: a call without a result is repeated.
                let call = calls.get(place).and_then(|call| self.start(place, call));
                running.extend(call);
                continue;
            }
            self.finish_call(place, &call_scope, said).await;
        }
        self.close_step();
        Ok(())
    }

    /// Starts a call in a separate scope. `None` if a stop came before the start.
    fn start(&self, place: usize, call: &ToolCall) -> Option<BoxFuture<'static, Ended>> {
        let unit = || {
            let spec = WorkSpec::new(ItemKind::ToolCall, Arc::clone(&call.name));
            spec.id(call.id.as_str()).effect(Effect::Irreversible)
        };
        let below = |scope: &Scope| {
            let options = ScopeOptions::default().unit(unit());
            scope.child(call.id.as_str(), options)
        };
        let opened = if self.has(Bug::SignalMissesLeaf) {
            // The seeded bug: the scope of the call is below the scope of the session.
            below(&self.cx.session)
        } else {
            below(&self.scope)
        };
        let scope = match opened {
            Err(_) if self.has(Bug::StartBehindBarrier) => below(&self.cx.session),
            opened => opened,
        }
        .ok()?;
        let Arguments::Json(arguments) = &call.arguments else {
            return None;
        };
        let registered = self.cx.parts.tools.find(&call.name);
        let tool = Arc::clone(registered.expect("the scenarios' tools are there").tool());
        let invocation = ToolInvocation {
            session_id: self.journal.session().id().clone(),
            call_id: call.id.clone(),
            name: Arc::clone(&call.name),
            arguments: Arc::clone(arguments),
            scope: scope.clone(),
            trace: None,
            link: allstop_tools::CallLink::default(),
            mcp_meta: allstop_tools::McpMeta::default(),
        };
        let calling = async move { tool.call(invocation).await };
        let handle: WorkHandle<_> = if self.has(Bug::LeakedChild) {
            // The seeded bug: no scope registers the task as work.
            scope.spawn_engine(calling)
        } else {
            scope.spawn(unit(), |_| calling).ok()?
        };
        let waits_for_the_dropped = self.has(Bug::WaitsForTheDropped);
        Some(Box::pin(async move {
            let said = handle.await;
            if waits_for_the_dropped && said.is_err() {
                // The seeded bug: the engine waits for a result that never comes.
                std::future::pending::<()>().await;
            }
            (place, scope, said)
        }))
    }

    /// Writes the only result of a call, and its record.
    async fn finish_call(&mut self, place: usize, scope: &Scope, said: Said) {
        scope.close();
        // If only this call was stopped and not the turn, the account (part of the receipt) of that stop contains the
        // end of the call.
        let cut = match scope.account(Extent::Call, Vec::new()) {
            Some(account) if !self.scope.is_stopped() => Some(account.receipt().await),
            _ => None,
        };
        let id = self.call_id(place);
        let state = cut.as_ref().and_then(|receipt| item(receipt, &id));
        let (outcome, content, is_error) = match (state, said) {
            (None | Some(ItemState::Finished { .. }), Ok(Ok(output))) => {
                (CallOutcome::Succeeded, output.content, false)
            }
            (None | Some(ItemState::Finished { .. }), Ok(Err(error))) => {
                (CallOutcome::Failed, error.message.into(), true)
            }
            (Some(ItemState::Stopped { .. }), _) if self.has(Bug::StoppedIsTimedOut) => {
                (CallOutcome::TimedOut, "it took too long".into(), true)
            }
            (Some(ItemState::Stopped { .. }), _) => {
                (CallOutcome::Stopped, "the call was stopped".into(), true)
            }
            _ => (
                CallOutcome::Unknown,
                "nobody knows what it did".into(),
                true,
            ),
        };
        self.take_result(place, outcome, content, is_error);
    }

    fn take_result(&mut self, place: usize, outcome: CallOutcome, content: Arc<str>, err: bool) {
        let Some(step) = &mut self.step else { return };
        let (Some(call), Some(result)) = (step.calls.get(place), step.results.get_mut(place))
        else {
            return;
        };
        *result = Some(ToolResult {
            call_id: call.id.clone(),
            content: Arc::clone(&content),
            is_error: err,
            images: allstop_core::Images::default(),
        });
        self.open.retain(|open| *open != call.id);
        self.pending.push(SessionRecord::CallFinished {
            turn: self.number,
            id: call.id.clone(),
            outcome,
            usage: None,
            finish: None,
            exit_code: None,
            result: None,
        });
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

    /// Handles a stop that arrives while calls run. A call that returned by itself before it received the stop has a
    /// result.
    async fn overtaken(&mut self, mut running: RunningCalls) -> Interrupt {
        self.acknowledge();
        let Some(account) = self.account(None) else {
            return Interrupt::Stopped;
        };
        if self.has(Bug::WaitsForTheDropped) {
            while running.next().await.is_some() {}
        }
        let receipt = account.receipt().await;
        while let Some(Some((place, _, said))) = running.next().now_or_never() {
            let state = item(&receipt, &self.call_id(place));
            let returned = matches!(state, Some(ItemState::Finished { .. }));
            if (returned || self.has(Bug::LateResultTaken))
                && let Ok(Ok(output)) = said
            {
                self.take_result(place, CallOutcome::Succeeded, output.content, false);
            }
        }
        Interrupt::Stopped
    }

    fn call_id(&self, place: usize) -> Arc<str> {
        let call = self.step.as_ref().and_then(|step| step.calls.get(place));
        call.map_or_else(|| "".into(), |call| call.id.as_str().into())
    }

    /// Adds the step to the messages after each of its calls has a result.
    fn close_step(&mut self) {
        self.pending.extend(self.bill.take());
        let Some(step) = self.step.take() else { return };
        self.messages.push(Arc::new(Message::Assistant {
            text: step.text,
            tool_calls: step.calls,
        }));
        let results = step.results.into_iter().flatten();
        self.messages
            .extend(results.map(|result| Arc::new(Message::Tool(result))));
    }
}

fn item<'a>(receipt: &'a Receipt, id: &str) -> Option<&'a ItemState> {
    let item = receipt.items().iter().find(|item| &*item.id == id)?;
    Some(&item.state)
}
