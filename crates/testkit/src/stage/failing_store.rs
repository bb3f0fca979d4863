//! The store of a run, which fails at a chosen append.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use allstop_log::Log;
use allstop_scope::{FORCE_MAX, GRACE_DEFAULT};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};

use super::parts::PartWatch;
use crate::stop_method::StoreFault;
use crate::{FaultyLog, LogFault};

/// Length of a stall: longer than any stop may take.
const STALLS_FOR: Duration = GRACE_DEFAULT
    .saturating_add(FORCE_MAX)
    .saturating_add(Duration::from_millis(100));

/// The store of a run. It works until it is told to fail, and again when a stop's time is over.
#[derive(Debug)]
pub(crate) struct FailingStore {
    /// The log that the run is given.
    pub(crate) log: Arc<FaultyLog>,
    stalled: Mutex<Option<Stalled>>,
}

#[derive(Debug)]
struct Stalled {
    until: Pin<Box<Sleep>>,
    /// True if it then writes what it was asked for.
    writes: bool,
}

impl FailingStore {
    /// Over this log, with points.
    pub(super) fn over(inner: Arc<dyn Log>, watch: &PartWatch) -> Arc<Self> {
        Arc::new(Self {
            log: Arc::new(FaultyLog::watched(inner, watch.clone())),
            stalled: Mutex::default(),
        })
    }

    /// Fails from the next append on.
    pub(crate) fn fail(&self, fault: StoreFault) {
        let log = &self.log;
        match fault {
            StoreFault::RefusesOnce => log.fail_once(LogFault::Refuse),
            StoreFault::Refuses | StoreFault::RefusesAtStop => log.fail_all(LogFault::Refuse),
            StoreFault::AnswersLate | StoreFault::Forgets => log.fail_all(LogFault::Hold),
            StoreFault::EndsLate => log.fail_at("turn_stopped", LogFault::Hold),
        }
        if fault.stalls() {
            *self.stalled.lock() = Some(Stalled {
                until: Box::pin(sleep(STALLS_FOR)),
                writes: fault != StoreFault::Forgets,
            });
        }
    }

    /// Ends a stall whose time is over. Whether none goes on.
    pub(crate) fn poll_recovered(&self, cx: &mut Context<'_>) -> bool {
        let mut stalled = self.stalled.lock();
        let Some(Stalled { until, writes }) = &mut *stalled else {
            return true;
        };
        if until.poll_unpin(cx).is_pending() {
            return false;
        }
        let writes = *writes;
        *stalled = None;
        drop(stalled);
        if writes {
            let released = self.log.release().now_or_never();
            released.expect("the log below is in memory");
        } else {
            self.log.forget();
        }
        true
    }

    /// Opens something on the store, which may stall meanwhile.
    pub(crate) async fn beside<F: Future>(&self, opening: F) -> F::Output {
        let mut opening = pin!(opening);
        poll_fn(|cx| {
            self.poll_recovered(cx);
            opening.as_mut().poll(cx)
        })
        .await
    }
}
