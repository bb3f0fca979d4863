//! Stops of a session, its end, and turns that are taken back.

use std::task::Poll;

use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::StopRequest;
use allstop_session::{FollowUp, SessionStop, StopTarget};
use futures::FutureExt as _;

use super::{SessionUnderWay, noop};
use crate::observe::UndoneTurn;
use crate::stage::planned_stops::{PlannedStops, StopReceipt, StoppableRun};

impl SessionUnderWay {
    fn receipt_of(&self, extent: Extent, cause: CauseKind) -> Option<StopReceipt> {
        let session = self.session()?;
        let cause = Cause::new(cause);
        let target = match extent {
            Extent::Process => {
                let stop = self.root.stop(StopRequest::new(extent, cause));
                return Some(async move { stop.receipt().await }.boxed());
            }
            Extent::Call => StopTarget::Call(self.watch.witness.running_call()?.0),
            Extent::Turn => StopTarget::Turn,
            Extent::TurnAndBackground => StopTarget::TurnAndBackground,
            Extent::Subtree => {
                let works = session.background();
                let running = works.iter().find(|work| work.is_running())?;
                StopTarget::Background(running.id.clone())
            }
            Extent::Session => StopTarget::Session,
        };
        let stopping = session.stop(&target, cause);
        let first = stopping.clone();
        self.state.lock().first_stop.get_or_insert(first);
        Some(async move { stopping.receipt().await }.boxed())
    }
}

impl StoppableRun for SessionUnderWay {
    fn stops(&self) -> &PlannedStops {
        &self.stops
    }

    fn look_first(&self) {
        self.drain(&mut noop());
    }

    fn stop(&self, extent: Extent, cause: CauseKind) -> bool {
        let receipt = || self.receipt_of(extent, cause);
        self.stops.ask(extent, Cause::new(cause), receipt)
    }

    fn force(&self) -> bool {
        let first = self.state.lock().first_stop.clone();
        first.as_ref().map(SessionStop::force).is_some()
    }

    fn caller_goes_away(&self) -> bool {
        self.waiters_go_away()
    }

    fn send(&self, policy: FollowUp) -> bool {
        self.follow_up(policy)
    }

    fn close(&self) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        let close = || {
            // The first poll accepts it.
            let mut closing = async move { session.close().await }.boxed();
            Some(match closing.poll_unpin(&mut noop()) {
                Poll::Ready(receipt) => async move { receipt }.boxed(),
                Poll::Pending => closing,
            })
        };
        let cause = Cause::new(CauseKind::Shutdown);
        self.stops.ask(Extent::Session, cause, close)
    }

    fn undo(&self) -> bool {
        let Some(session) = self.session() else {
            return false;
        };
        let asked = self.watch.witness.now();
        let undoing = async move { session.undo().await.map_err(|error| error.to_string()) };
        let undone = UndoneTurn {
            asked,
            answer: None,
        };
        let undoing = Some(undoing.boxed());
        self.state.lock().undone.push((undone, undoing));
        true
    }
}
