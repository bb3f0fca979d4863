//! A running call: its start, the wait for its end or for the receipt of its stop, and its result for the log and the
//! model.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ItemState, ReceiptItem};
use allstop_core::record::CallOutcome;
use allstop_core::{Cause, CauseKind, Extent, Images, Receipt, ToolCall};
use allstop_scope::{Deadline, Scope, StopRequest, WorkHandle, WorkLost, WorkSpec, instant_after};
use allstop_tools::{ToolError, ToolOutput};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::admission::AdmittedCall;
use crate::hook::HookEvent;
use crate::parts::AgentParts;
use crate::spans::WorkSpan;

pub(super) struct EndedCall {
    /// Position of the call in its step.
    pub(super) position: usize,
    pub(super) call: ToolCall,
    pub(super) scope: Scope,
    pub(super) began: Instant,
    pub(super) end: ToolCallEnd,
}

pub(super) enum ToolCallEnd {
    Returned(Result<ToolOutput, ToolError>),
    Panicked,
    /// The call was stopped alone, by its timeout or on request. Contains the tool's last answer, if there is one.
    StoppedAlone(Arc<Receipt>, Option<Result<ToolOutput, ToolError>>),
    /// The call ended while its turn was being stopped. The receipt of the turn's stop determines whether the answer
    /// counts as a result.
    TurnStopped(Option<Result<ToolOutput, ToolError>>),
}

/// Checkpoint of a call whose work a stop has refused to start.
const BEFORE_ITS_START: &str = "before_its_start";

/// Starts a call in its scope. `None` if a stop of the turn came first. If a stop of this call alone came first, the
/// future returns the receipt of that stop as the call's end.
pub(super) fn start(
    admitted: AdmittedCall,
    limit: Option<Duration>,
    turn: &Scope,
    parts: &AgentParts,
) -> Option<impl Future<Output = EndedCall> + use<>> {
    let AdmittedCall {
        position,
        call,
        tool,
        mut invocation,
    } = admitted;
    let scope = invocation.scope.clone();
    if let Some(limit) = limit {
        // The timeout begins here, so that time for a permission question does not count.
        scope.arm(Deadline {
            at: instant_after(Instant::now(), limit),
            stops: None,
            detail: format!("tool timeout of {limit:?}").into(),
            extent: Extent::Call,
            bystanders: Vec::new(),
        });
    }
    let span = CallSpan {
        span: WorkSpan::tool_call(parts, &call),
        scope: scope.clone(),
    };
    if let Some(trace) = span.span.trace() {
        invocation.trace = Some(trace);
    }
    let spec = WorkSpec::new(ItemKind::ToolCall, Arc::clone(&call.name)).effect(tool.spec().effect);
    let call_scope = scope.clone();
    let running = scope.spawn(spec, |_| {
        let called = async move {
            let answer = tool.call(invocation).await;
            if let Err(error) = &answer
                && error.outcome == CallOutcome::Stopped
                && call_scope.is_stopped()
            {
                // The call has seen the stop. It did not end by itself.
                call_scope.stopped_at(BEFORE_ITS_START).await;
            }
            answer
        };
        called.instrument(span.span.span.clone())
    });
    if running.is_err() && turn.is_stopped() {
        return None;
    }
    let call = (position, call);
    Some(watch(call, scope, turn.clone(), running.ok(), span))
}

/// Span of a running call. Dropping this value ends the span, also if a stop of the turn leaves the call.
struct CallSpan {
    span: WorkSpan,
    scope: Scope,
}

impl CallSpan {
    fn record_end(&self, end: &ToolCallEnd) {
        match end {
            ToolCallEnd::Returned(Err(error)) => {
                self.span.record_error_kind(error.outcome);
                self.span.record_result(&error.message);
            }
            ToolCallEnd::Panicked => self.span.record_error("panic"),
            ToolCallEnd::StoppedAlone(receipt, _) => self.span.record_quiet(receipt),
            ToolCallEnd::Returned(Ok(output)) => self.span.record_result(&output.content),
            ToolCallEnd::TurnStopped(_) => {}
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if let Some(cause) = self.scope.cause() {
            self.span.record_cause(&cause);
        }
    }
}

/// Waits for the end of a call. `turn` is the parent scope; the turn's loop handles a stop of that scope. If the call
/// was stopped alone before it could run, the receipt of that stop is the end of the call.
async fn watch(
    (position, call): (usize, ToolCall),
    scope: Scope,
    turn: Scope,
    running: Option<WorkHandle<Result<ToolOutput, ToolError>>>,
    span: CallSpan,
) -> EndedCall {
    let began = Instant::now();
    let running = async {
        match running {
            Some(running) => running.await,
            None => std::future::pending().await,
        }
    };
    let end = tokio::select! {
        biased;
        joined = running => ended(joined, &scope, &turn).await,
        // The call has timed out, or was stopped alone. If the work of the call never returns, the receipt of that stop
        // is the end of the call.
        receipt = account_of_call(&scope, &turn) => ToolCallEnd::StoppedAlone(receipt, None),
    };
    span.record_end(&end);
    EndedCall {
        position,
        call,
        scope,
        began,
        end,
    }
}

async fn ended(
    joined: Result<Result<ToolOutput, ToolError>, WorkLost>,
    scope: &Scope,
    turn: &Scope,
) -> ToolCallEnd {
    match joined {
        Err(WorkLost::Panicked) => ToolCallEnd::Panicked,
        joined if turn.is_stopped() => ToolCallEnd::TurnStopped(joined.ok()),
        Ok(output) if scope.is_stopped() => {
            let receipt = Box::pin(account_of_call(scope, turn)).await;
            if receipt.items().iter().all(ended_by_itself) {
                // The work did not notice the stop and finished before force was used, so the output is a normal
                // result.
                ToolCallEnd::Returned(output)
            } else {
                ToolCallEnd::StoppedAlone(receipt, Some(output))
            }
        }
        Ok(output) => ToolCallEnd::Returned(output),
        Err(WorkLost::Dropped | WorkLost::NoThread) => {
            ToolCallEnd::StoppedAlone(Box::pin(account_of_call(scope, turn)).await, None)
        }
    }
}

/// True if the item's work was done before the stop reached it.
pub(super) fn ended_by_itself(item: &ReceiptItem) -> bool {
    matches!(item.state, ItemState::Finished { .. })
}

/// Stops the work that still runs in the scope of a call after the return of the call. Returns the receipt if the stop
/// could not end all of this work.
pub(super) async fn end_leftovers(scope: &Scope) -> Option<Arc<Receipt>> {
    if scope.is_quiet() || scope.is_stopped() {
        return None;
    }
    let cause = Cause::new(CauseKind::Parent).detail("its call has ended");
    let receipt = scope
        .stop(StopRequest::new(Extent::Call, cause))
        .receipt()
        .await;
    (!receipt.quiet()).then_some(receipt)
}

/// Receipt of a stop that covers only this call. After a stop of the turn, the future never completes.
async fn account_of_call(scope: &Scope, turn: &Scope) -> Arc<Receipt> {
    scope.stopped().await;
    if turn.is_stopped() {
        return std::future::pending().await;
    }
    match scope.account(Extent::Call, Vec::new()) {
        // The future is boxed, because few calls are stopped alone. Without the box, every running call would reserve
        // space for this future.
        Some(account) => Box::pin(async move { account.receipt().await }).await,
        // Never reached: the wait above ends only after a stop was accepted.
        None => std::future::pending().await,
    }
}

/// Result of a call, for the log, the model and the live events.
pub(super) struct ToolCallResult {
    pub(super) outcome: CallOutcome,
    pub(super) content: Arc<str>,
    pub(super) images: Images,
    pub(super) is_error: bool,
    /// State of the work that a stop of the call could not end.
    pub(super) left: Option<ItemState>,
}

/// A call whose result is known and not recorded yet.
pub(super) struct FinishedCall {
    pub(super) call: ToolCall,
    /// Duration of the call.
    pub(super) after: Duration,
    pub(super) result: ToolCallResult,
}

impl FinishedCall {
    /// Event for the hooks.
    pub(super) fn event(&self) -> HookEvent {
        HookEvent::ToolEnd {
            call: self.call.clone(),
            outcome: self.result.outcome,
            content: Arc::clone(&self.result.content),
        }
    }
}

impl ToolCallResult {
    fn failed(outcome: CallOutcome, content: impl Into<Arc<str>>) -> Self {
        Self {
            outcome,
            content: content.into(),
            images: Images::default(),
            is_error: true,
            left: None,
        }
    }
}

/// Converts the end of a call to its result.
pub(super) fn describe(end: ToolCallEnd) -> ToolCallResult {
    match end {
        ToolCallEnd::Returned(Ok(output)) => ToolCallResult {
            outcome: CallOutcome::Succeeded,
            content: output.content,
            images: output.images,
            is_error: false,
            left: None,
        },
        ToolCallEnd::Returned(Err(error)) => ToolCallResult::failed(error.outcome, error.message),
        ToolCallEnd::Panicked => ToolCallResult::failed(CallOutcome::Failed, "the tool panicked"),
        // This arm is never used, because `collect_stopped` passes only results.
        ToolCallEnd::TurnStopped(_) => {
            ToolCallResult::failed(CallOutcome::Unknown, "its turn was stopped")
        }
        ToolCallEnd::StoppedAlone(receipt, answer) => cut(&receipt, answer),
    }
}

fn cut(receipt: &Receipt, answer: Option<Result<ToolOutput, ToolError>>) -> ToolCallResult {
    let items = || receipt.items().iter();
    let unknown = items().any(|item| matches!(item.state, ItemState::Unknown { .. }));
    let left = items().find(|item| item.state.breaks_quiet());
    let outcome = if unknown || left.is_some() {
        // The end of the work was not observed.
        CallOutcome::Unknown
    } else if receipt.cause().kind == CauseKind::Deadline {
        CallOutcome::TimedOut
    } else {
        CallOutcome::Stopped
    };
    let mut text = format!("the call was stopped: {}", receipt.cause());
    for item in items().filter(|item| item.state.breaks_quiet()) {
        let state = item.state.as_str().replace('_', " ");
        // Writing to a string cannot fail.
        let _ = write!(text, "; {} is {state}", item.name);
    }
    if unknown {
        text.push_str("; it may have completed: check before repeating it");
    }
    match answer {
        Some(Ok(output)) => text = format!("{text}\n{}", output.content),
        Some(Err(error)) => text = format!("{text}\n{}", error.message),
        None => {}
    }
    ToolCallResult {
        left: left.map(|item| item.state.clone()),
        ..ToolCallResult::failed(outcome, text)
    }
}
