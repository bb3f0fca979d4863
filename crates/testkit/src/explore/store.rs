//! The store of a run, which fails at a chosen append.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::task::Context;
use std::time::Duration;

use allstop_log::Log;
use allstop_scope::{FORCE_MAX, GRACE_DEFAULT};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};

use super::parts::Watch;
use crate::{FaultyLog, LogFault};

/// How long a store stalls: longer than any stop may take.
const STALLS_FOR: Duration = GRACE_DEFAULT
    .saturating_add(FORCE_MAX)
    .saturating_add(Duration::from_millis(100));

/// How the store fails, from a chosen append on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// It refuses this append, and works again.
    RefusesOnce,
    /// It refuses this append and all that follow, as a full disk does.
    Refuses,
    /// The same, and a user stops the turn at that moment.
    RefusesAtStop,
    /// It does not answer, and a user stops the turn. When the stop's time is over, it writes and answers.
    AnswersLate,
    /// The same, but it is the ending of the stopped turn that is late, and not this append.
    EndsLate,
    /// As `AnswersLate`, but then it has written nothing, and whoever still waits is told that it does not know.
    Forgets,
}

impl StoreFault {
    /// Every fault.
    pub const ALL: [Self; 6] = [
        Self::RefusesOnce,
        Self::Refuses,
        Self::RefusesAtStop,
        Self::AnswersLate,
        Self::EndsLate,
        Self::Forgets,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::RefusesOnce => "refuses_once",
            Self::Refuses => "refuses",
            Self::RefusesAtStop => "refuses_at_stop",
            Self::AnswersLate => "answers_late",
            Self::EndsLate => "ends_late",
            Self::Forgets => "forgets",
        }
    }

    /// Whether the store gives no answer for a while.
    pub(crate) fn stalls(self) -> bool {
        matches!(self, Self::AnswersLate | Self::EndsLate | Self::Forgets)
    }

    /// Whether a user stops the turn when the store fails.
    pub(crate) fn has_stop(self) -> bool {
        self == Self::RefusesAtStop || self.stalls()
    }

    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::RefusesOnce => "the store refuses this append",
            Self::Refuses => "the store refuses this append and all that follow",
            Self::RefusesAtStop => "the store refuses every append, and a user stops the turn",
            Self::AnswersLate => {
                "the store does not answer before the time of a user's stop is over"
            }
            Self::EndsLate => {
                "a user stops the turn, and the store does not answer the turn's ending"
            }
            Self::Forgets => {
                "the store does not answer, a user stops the turn, and nothing is written"
            }
        }
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StoreFault {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|fault| fault.as_str() == text).ok_or(())
    }
}

/// The store of a run. It works until it is told to fail, and again when a stop's time is over.
#[derive(Debug, Default)]
pub(crate) struct FailingStore {
    log: OnceLock<Arc<FaultyLog>>,
    stalled: Mutex<Option<Stalled>>,
}

#[derive(Debug)]
struct Stalled {
    until: Pin<Box<Sleep>>,
    /// Whether it then writes what it was asked for.
    writes: bool,
}

impl FailingStore {
    /// The log that the run is given.
    pub(super) fn over(&self, inner: Arc<dyn Log>, watch: &Watch) -> Arc<dyn Log> {
        let log = Arc::new(FaultyLog::watched(inner, watch.clone()));
        self.log.set(Arc::clone(&log)).expect("a run has one store");
        log
    }

    /// Fails from the next append on.
    pub(crate) fn fail(&self, fault: StoreFault) {
        let Some(log) = self.log.get() else { return };
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
        if let Some(log) = self.log.get() {
            if writes {
                log.release()
                    .now_or_never()
                    .expect("the log below is in memory");
            } else {
                log.forget();
            }
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

    /// Works again.
    pub(crate) fn heal(&self) {
        if let Some(log) = self.log.get() {
            log.heal();
        }
    }
}
