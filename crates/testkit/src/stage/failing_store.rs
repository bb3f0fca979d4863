//! The store of a run. The store fails at a chosen append.

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

/// Length of a stall: longer than the time limit of a stop.
const STALLS_FOR: Duration = GRACE_DEFAULT
    .saturating_add(FORCE_MAX)
    .saturating_add(Duration::from_millis(100));

/// The store of a run. The store works until `fail` is called. A store that only stalls works again after the time
/// limit of a stop.
#[derive(Debug)]
pub(crate) struct FailingStore {
    /// The log for the run.
    pub(crate) log: Arc<FaultyLog>,
    stalled: Mutex<Option<Stalled>>,
}

#[derive(Debug)]
struct Stalled {
    until: Pin<Box<Sleep>>,
    /// True if the store writes the held appends at the end of the stall.
    writes: bool,
}

impl FailingStore {
    /// Creates a store that uses this log. The appends of the store have points.
    pub(super) fn over(inner: Arc<dyn Log>, watch: &PartWatch) -> Arc<Self> {
        Arc::new(Self {
            log: Arc::new(FaultyLog::watched(inner, watch.clone())),
            stalled: Mutex::default(),
        })
    }

    /// All appends from now on fail with this fault.
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

    /// Ends a stall if the time of the stall is over. Returns true if no stall is left.
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

    /// Opens a session with this store. A stall of the store can end while the session waits to open.
    pub(crate) async fn beside<F: Future>(&self, opening: F) -> F::Output {
        let mut opening = pin!(opening);
        poll_fn(|cx| {
            self.poll_recovered(cx);
            opening.as_mut().poll(cx)
        })
        .await
    }
}
