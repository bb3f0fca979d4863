//! The handle of a run: the stops of the run, and their receipts.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use allstop_agent::RunOutcome;
use allstop_core::receipt::{
    EndMethod, EndProof, Evidence, ItemState, ReceiptItem, StopFindings, StopInfo,
};
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::{Scope, StopRequest, WorkHandle, WorkLost};
use allstop_testkit::explore::RunningSubject;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use crate::bug::Bug;

pub(super) struct Started {
    scope: Scope,
    engine: Option<WorkHandle<RunOutcome>>,
    /// Notified when the engine has ended.
    over: Arc<Notify>,
    bug: Option<Bug>,
    stops: AtomicU32,
}

impl Started {
    pub(super) fn new(
        scope: Scope,
        engine: WorkHandle<RunOutcome>,
        over: Arc<Notify>,
        bug: Option<Bug>,
    ) -> Self {
        Self {
            scope,
            engine: Some(engine),
            over,
            bug,
            stops: AtomicU32::new(0),
        }
    }
}

impl RunningSubject for Started {
    fn stop(&self, order: StopRequest) -> BoxFuture<'static, Arc<Receipt>> {
        let running = self.scope.running();
        let stop = self.scope.stop(order);
        let number = self.stops.fetch_add(1, Ordering::Relaxed);
        match self.bug {
            // The seeded bug: a cancelled token counts as a stopped run.
            Some(Bug::PrematureQuiet) => {
                let items = running.into_iter().map(called_stopped).collect();
                let receipt = made_up(stop.request().clone(), items);
                Box::pin(async move { receipt })
            }
            // The seeded bug: a requested stop counts as acknowledged.
            Some(Bug::ObservedByFlag) => {
                let receipt = made_up(stop.request().clone(), Vec::new());
                Box::pin(async move { receipt })
            }
            Some(Bug::GivesUpAtOnce) => {
                let receipt = stop.account_now();
                Box::pin(async move { receipt })
            }
            // The seeded bug: when the call has ended in this process, its effect outside the process also counts as
            // ended.
            Some(Bug::DroppedIsStopped) => Box::pin(async move {
                let receipt = stop.receipt().await;
                let unknown = |item: &ReceiptItem| matches!(item.state, ItemState::Unknown { .. });
                let items = receipt.items().iter().cloned();
                let items = items.map(|item| {
                    if unknown(&item) {
                        called_stopped(item)
                    } else {
                        item
                    }
                });
                made_up(receipt.request().clone(), items.collect())
            }),
            // The seeded bug: if a caller does not wait yet when the engine ends, the caller is never notified.
            Some(Bug::LostWakeUp) => {
                let over = Arc::clone(&self.over);
                Box::pin(async move {
                    over.notified().await;
                    stop.receipt().await
                })
            }
            // The seeded bug: each caller gets a separate receipt.
            Some(Bug::TwoReceipts) => Box::pin(async move {
                let receipt = stop.receipt().await;
                let request = StopInfo {
                    stop_id: format!("stop_{number}").into(),
                    ..receipt.request().clone()
                };
                made_up(request, receipt.items().to_vec())
            }),
            _ => Box::pin(async move { stop.receipt().await }),
        }
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunOutcome, WorkLost>> {
        let engine = self.engine.as_mut().expect("an outcome is taken once");
        let outcome = std::task::ready!(Pin::new(engine).poll(cx));
        self.engine = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.engine.is_some() {
            let order = StopRequest::new(Extent::Turn, Cause::new(CauseKind::Disconnect));
            drop(self.scope.stop(order));
        }
    }
}

fn called_stopped(mut item: ReceiptItem) -> ReceiptItem {
    item.state = ItemState::Stopped {
        how: EndMethod::Dropped,
        evidence: Evidence::verified(EndProof::FutureDropped),
        after_ms: std::time::Duration::ZERO.into(),
    };
    item
}

fn made_up(request: StopInfo, items: Vec<ReceiptItem>) -> Arc<Receipt> {
    let findings = StopFindings {
        items: items.into(),
        ..StopFindings::default()
    };
    Arc::new(Receipt::of_stop(request, findings))
}
