//! Stops, the end of the session, and turns that are to be taken back.

use std::sync::Arc;
use std::task::Poll;

use allstop_core::{Cause, CauseKind, Extent, Receipt, TurnNumber};
use allstop_scope::StopOrder;
use allstop_session::{StopTarget, Stopping};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{SessionLive, noop};
use crate::explore::aftermath::Asked;
use crate::explore::session::aftermath::Undone;

/// A user's stop of a part, and the future of its receipt.
pub(super) struct Ask {
    pub(super) asked: Asked,
    pub(super) stopping: Option<Stopping>,
    pub(super) receipt: Option<BoxFuture<'static, Arc<Receipt>>>,
}

pub(super) type Undoing = BoxFuture<'static, Result<TurnNumber, String>>;

impl SessionLive {
    /// Asks for a stop. `false`: there is nothing that it could be asked of.
    pub(super) fn ask(&self, extent: Extent, cause: Cause) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        let target = match extent {
            Extent::Process => {
                let stop = self.root.stop(StopOrder::new(extent, cause.clone()));
                let receipt = async move { stop.receipt().await }.boxed();
                self.asked(extent, cause, None, receipt);
                return true;
            }
            Extent::Call => self.world.running_call_id().map(StopTarget::Call),
            Extent::Turn => Some(StopTarget::Turn),
            Extent::TurnAndBackground => Some(StopTarget::TurnAndBackground),
            Extent::Subtree => {
                let works = session.background();
                let running = works.iter().find(|work| work.is_running());
                running.map(|work| StopTarget::Background(work.id.clone()))
            }
            Extent::Session => Some(StopTarget::Session),
        };
        let Some(target) = target else { return false };
        let stopping = session.stop(&target, cause.clone());
        let waits = stopping.clone();
        let receipt = async move { waits.receipt().await }.boxed();
        self.asked(extent, cause, Some(stopping), receipt);
        true
    }

    fn asked(
        &self,
        extent: Extent,
        cause: Cause,
        stopping: Option<Stopping>,
        receipt: BoxFuture<'static, Arc<Receipt>>,
    ) {
        let asked = Asked {
            extent,
            cause,
            point: self.points.newest(),
            accepted: self.world.now(),
            at: self.points.elapsed(),
            answer: None,
        };
        self.state.lock().asks.push(Ask {
            asked,
            stopping,
            receipt: Some(receipt),
        });
    }

    pub(super) fn force(&self) -> bool {
        let first = self
            .state
            .lock()
            .asks
            .first()
            .map(|ask| ask.stopping.clone());
        let Some(Some(stopping)) = first else {
            return false;
        };
        stopping.force();
        true
    }

    pub(super) fn close(&self) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        // The first poll accepts it.
        let mut closing = async move { session.close().await }.boxed();
        let receipt = match closing.poll_unpin(&mut noop()) {
            Poll::Ready(receipt) => async move { receipt }.boxed(),
            Poll::Pending => closing,
        };
        let cause = Cause::new(CauseKind::Shutdown);
        self.asked(Extent::Session, cause, None, receipt);
        true
    }

    pub(super) fn undo(&self) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        let asked = self.world.now();
        let undoing = async move { session.undo().await.map_err(|error| error.to_string()) };
        let undone = Undone {
            asked,
            answer: None,
        };
        let undoing = Some(undoing.boxed());
        self.state.lock().undone.push((undone, undoing));
        true
    }
}
