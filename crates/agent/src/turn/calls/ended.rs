//! A call from its start to its end, and what the log and the model are told of it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ItemState, ReceiptItem};
use allstop_core::record::CallOutcome;
use allstop_core::{Cause, CauseKind, Extent, Receipt, ToolCall};
use allstop_scope::{Deadline, Scope, StopOrder, WorkHandle, WorkLost, WorkSpec};
use allstop_tools::{ToolError, ToolOutput};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::admission::Admitted;

/// A call that has ended.
pub(super) struct Ended {
    pub(super) call: ToolCall,
    pub(super) scope: Scope,
    pub(super) began: Instant,
    pub(super) end: End,
}

pub(super) enum End {
    Returned(Result<ToolOutput, ToolError>),
    Panicked,
    /// Stopped alone: by its own time, or on request. What the tool still said, if it said anything.
    Cut(Arc<Receipt>, Option<Result<ToolOutput, ToolError>>),
}

/// Starts a call in its scope. `None`: a stop was first.
pub(super) fn start(
    admitted: Admitted,
    limit: Option<Duration>,
) -> Option<impl Future<Output = Ended>> {
    let Admitted {
        call,
        tool,
        invocation,
    } = admitted;
    let scope = invocation.scope.clone();
    if let Some(limit) = limit {
        // Its time begins here: what people needed to answer a question is not its own.
        scope.arm(Deadline {
            at: Instant::now() + limit,
            detail: format!("tool timeout of {limit:?}").into(),
            extent: Extent::Call,
            bystanders: Vec::new(),
        });
    }
    let span = tracing::info_span!("tool_call", call = %call.id, tool = %call.name);
    let spec = WorkSpec::new(ItemKind::ToolCall, Arc::clone(&call.name)).effect(tool.spec().effect);
    let running = scope
        .spawn(spec, |_| {
            async move { tool.call(invocation).await }.instrument(span)
        })
        .ok()?;
    Some(watch(call, scope, running))
}

async fn watch(
    call: ToolCall,
    scope: Scope,
    mut running: WorkHandle<Result<ToolOutput, ToolError>>,
) -> Ended {
    let began = Instant::now();
    let joined = tokio::select! {
        biased;
        joined = &mut running => Some(joined),
        // Its own time, or a request to stop it alone. It may never join: then the ladder's account is its end.
        receipt = account(&scope) => {
            let end = End::Cut(receipt, None);
            return Ended { call, scope, began, end };
        }
    };
    let end = match joined {
        Some(Ok(output)) if scope.is_stopped() => {
            let receipt = account(&scope).await;
            let by_itself = |item: &ReceiptItem| matches!(item.state, ItemState::Finished { .. });
            if receipt.items().iter().all(by_itself) {
                // It never heard, and was done before the force: that is a result like any other.
                End::Returned(output)
            } else {
                End::Cut(receipt, Some(output))
            }
        }
        Some(Ok(output)) => End::Returned(output),
        Some(Err(WorkLost::Dropped)) => End::Cut(account(&scope).await, None),
        Some(Err(WorkLost::Panicked)) | None => End::Panicked,
    };
    Ended {
        call,
        scope,
        began,
        end,
    }
}

/// Stops what a call left behind in its scope when it returned. The receipt, if that did not work.
pub(super) async fn end_leftovers(scope: &Scope) -> Option<Arc<Receipt>> {
    if scope.is_quiet() || scope.is_stopped() {
        return None;
    }
    let cause = Cause::new(CauseKind::Parent).detail("its call has ended");
    let receipt = scope
        .stop(StopOrder::new(Extent::Call, cause))
        .receipt()
        .await;
    (!receipt.quiet()).then_some(receipt)
}

/// The account of the stop that covers a call's scope, once there is one.
async fn account(scope: &Scope) -> Arc<Receipt> {
    scope.stopped().await;
    match scope.account(Extent::Call, Vec::new()) {
        Some(stop) => stop.receipt().await,
        // A token fires only after a stop was accepted.
        None => std::future::pending().await,
    }
}

/// What the log and the model are told of a call's end.
pub(super) fn describe(end: End) -> (CallOutcome, Arc<str>, bool) {
    match end {
        End::Returned(Ok(output)) => (CallOutcome::Succeeded, output.content, false),
        End::Returned(Err(error)) => (CallOutcome::Failed, error.message.into(), true),
        End::Panicked => (CallOutcome::Failed, "the tool panicked".into(), true),
        End::Cut(receipt, said) => {
            let timed_out = receipt.cause().kind == CauseKind::Deadline;
            let unknown = receipt
                .items()
                .iter()
                .any(|item| matches!(item.state, ItemState::Unknown { .. }));
            let outcome = match (timed_out, unknown) {
                (_, true) => CallOutcome::Unknown,
                (true, false) => CallOutcome::TimedOut,
                (false, false) => CallOutcome::Stopped,
            };
            let mut text = format!("the call was stopped: {}", receipt.cause());
            for item in receipt
                .items()
                .iter()
                .filter(|item| item.state.breaks_quiet())
            {
                let state = item.state.as_str().replace('_', " ");
                // Writing to a string cannot fail.
                let _ = write!(text, "; {} is {state}", item.name);
            }
            if unknown {
                text.push_str("; it may have completed: check before repeating it");
            }
            match said {
                Some(Ok(output)) => text = format!("{text}\n{}", output.content),
                Some(Err(error)) => text = format!("{text}\n{}", error.message),
                None => {}
            }
            (outcome, text.into(), true)
        }
    }
}
