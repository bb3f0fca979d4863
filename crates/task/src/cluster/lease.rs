//! Leases of workers: decisions of the holder and of the observers, without a runtime. A lease is a promise of a worker
//! (the holder): if the worker cannot renew the lease in time, it stops its work. All other workers are observers.
//!
//! The holder measures the lease from the moment before it *sent* the last confirmed renewal. The holder stops its work
//! so early that none of the work still runs when the lease expires. An observer measures from the moment at which it
//! *saw* a renewal, which is later. Holder and observer each use their own monotonic clock. When the lease has expired,
//! an observer may end the lease: the observer replaces the renewal that it saw. The replacement fails if the holder
//! has renewed the lease in the meantime.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Timestamp, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Prefix of the keys of leases.
pub(super) const LEASE_PREFIX: &str = "worker/";

/// Number of renewals within the length of one lease.
const RENEWALS: u32 = 8;

/// Description of a worker, as stored in its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Id of the worker.
    pub id: WorkerId,
    /// Name for people: host name and process id.
    pub name: Arc<str>,
    /// Length of the lease, in milliseconds.
    pub lease_ms: u64,
    /// Maximum number of executions at the same time.
    pub concurrency: usize,
    /// Number of current executions.
    pub running: usize,
    /// True if the worker accepts no more tasks.
    pub is_draining: bool,
    /// Time of the first renewal.
    pub since: Timestamp,
    /// Number of the renewal.
    pub renewal: u64,
    /// Time of the renewal, by the worker's clock. `None` if an earlier version has written it.
    #[serde(default)]
    pub renewed_at: Option<Timestamp>,
}

impl WorkerInfo {
    /// True if the worker has not renewed its lease in time, as far as the clocks of the machines agree. Only a display:
    /// processes that end a lease measure its time with their monotonic clocks.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        let lease_ms = i64::try_from(self.lease_ms).unwrap_or(i64::MAX);
        self.renewed_at
            .is_some_and(|at| now.unix_ms().saturating_sub(at.unix_ms()) > lease_ms)
    }
}

/// Entry of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lease", rename_all = "snake_case")]
pub(super) enum LeaseEntry {
    Held(WorkerInfo),
    /// The worker has returned the lease, or another process has ended it. An ended lease cannot be renewed: its worker
    /// continues with a new id.
    Ended {
        /// True if the worker itself has returned the lease. Earlier versions write no such field.
        #[serde(default)]
        is_returned: bool,
    },
}

/// End of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// The worker has returned the lease when it closed, and had no execution then.
    Returned,
    /// Another process has ended the expired lease. The state of the worker's work is unknown.
    Lost,
}

pub(super) fn key_of(worker: &WorkerId) -> String {
    format!("{LEASE_PREFIX}{worker}")
}

/// Times of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseTimes {
    /// Time without a renewal after which other workers may end the lease.
    pub length: Duration,
    /// Time that the work of a worker needs to stop.
    pub stopping: Duration,
    /// Reserve between the end of the work and the expiry of the lease.
    pub margin: Duration,
}

impl LeaseTimes {
    pub(super) fn renew_every(self) -> Duration {
        self.length / RENEWALS
    }

    /// Time after the last confirmed renewal at which the work is stopped.
    pub(super) fn stop_after(self) -> Duration {
        self.gone_after().saturating_sub(self.stopping)
    }

    /// Time after the last confirmed renewal at which no work may run any more.
    pub(super) fn gone_after(self) -> Duration {
        self.length.saturating_sub(self.margin)
    }
}

/// The lease that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnLease {
    pub worker: WorkerId,
    /// The moment before the worker sent the last confirmed renewal.
    pub sent_at: Instant,
}

impl OwnLease {
    /// Moment at which the work is stopped, unless a renewal is confirmed before.
    pub(super) fn stop_at(&self, times: LeaseTimes) -> Instant {
        self.sent_at + times.stop_after()
    }

    /// True if the worker may start an execution.
    pub(super) fn is_valid(&self, times: LeaseTimes, now: Instant) -> bool {
        now < self.stop_at(times)
    }
}

/// State of another worker's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// The last read found no lease of this worker. An attempt to end the lease succeeds only if the store still has no
    /// lease of this worker.
    Absent,
    /// The holder renews the lease, or the lease has not expired yet.
    Held {
        /// Time until the lease expires if no renewal follows.
        left: Duration,
    },
    /// The lease has expired: its length has passed since the observer saw this renewal.
    Overdue {
        /// Revision of the renewal.
        revision: u64,
    },
    /// The lease has ended.
    Ended(LeaseEnd),
}

impl LeaseState {
    pub(super) fn has_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// Leases of other workers, with the moments at which this process saw their renewals.
#[derive(Debug)]
pub(super) struct LeaseWatch {
    length: Duration,
    seen: HashMap<WorkerId, SeenLease>,
}

#[derive(Debug)]
enum SeenLease {
    Held {
        revision: u64,
        since: Instant,
        length: Duration,
    },
    Ended(LeaseEnd),
}

/// A lease as read from the store.
#[derive(Debug)]
pub(super) struct ReadLease {
    pub worker: WorkerId,
    pub revision: u64,
    /// Length of the lease, as stored by its holder, or the end of the lease.
    pub length: Result<Duration, LeaseEnd>,
}

impl LeaseWatch {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            seen: HashMap::new(),
        }
    }

    /// Updates the watch with all leases of one read. `at` is a moment after the read.
    pub(super) fn read(&mut self, leases: impl IntoIterator<Item = ReadLease>, at: Instant) {
        let mut before = std::mem::take(&mut self.seen);
        for ReadLease {
            worker,
            revision,
            length,
        } in leases
        {
            let seen = match (before.remove(&worker), length) {
                (Some(SeenLease::Ended(end)), _) | (_, Err(end)) => SeenLease::Ended(end),
                // The read returned an older revision than an earlier read.
                (
                    Some(
                        held @ SeenLease::Held {
                            revision: known, ..
                        },
                    ),
                    _,
                ) if known >= revision => held,
                (_, Ok(length)) => SeenLease::Held {
                    revision,
                    since: at,
                    // Workers with different settings may share the cluster for a while, so the longer length applies.
                    length: length.max(self.length),
                },
            };
            self.seen.insert(worker, seen);
        }
    }

    /// Leases that have expired.
    pub(super) fn overdue(&self, now: Instant) -> Vec<(WorkerId, u64)> {
        let overdue = self
            .seen
            .keys()
            .filter_map(|worker| match self.state(worker, now) {
                LeaseState::Overdue { revision } => Some((worker.clone(), revision)),
                _ => None,
            });
        overdue.collect()
    }

    /// Notes that this process has ended the expired lease of a worker.
    pub(super) fn ended(&mut self, worker: &WorkerId) {
        let ended = SeenLease::Ended(LeaseEnd::Lost);
        self.seen.insert(worker.clone(), ended);
    }

    pub(super) fn state(&self, worker: &WorkerId, now: Instant) -> LeaseState {
        match self.seen.get(worker) {
            None => LeaseState::Absent,
            Some(SeenLease::Ended(end)) => LeaseState::Ended(*end),
            Some(SeenLease::Held {
                revision,
                since,
                length,
            }) => {
                let left = (*since + *length).saturating_duration_since(now);
                if left.is_zero() {
                    LeaseState::Overdue {
                        revision: *revision,
                    }
                } else {
                    LeaseState::Held { left }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(20);

    fn worker() -> WorkerId {
        WorkerId::new("w")
    }

    fn held(revision: u64) -> [ReadLease; 1] {
        [ReadLease {
            worker: worker(),
            revision,
            length: Ok(LENGTH),
        }]
    }

    #[test]
    fn lease_counts_as_its_holder_counts_it() {
        let start = Instant::now();
        let mut watch = LeaseWatch::new(LENGTH / 10);
        watch.read(held(1), start);
        assert_eq!(
            watch.state(&worker(), start),
            LeaseState::Held { left: LENGTH }
        );
    }

    #[test]
    fn work_stops_before_the_first_observer_may_end_the_lease() {
        let times = LeaseTimes {
            length: LENGTH,
            stopping: Duration::from_secs(3),
            margin: Duration::from_secs(1),
        };
        let sent_at = Instant::now();
        let lease = OwnLease {
            worker: worker(),
            sent_at,
        };
        // The fastest possible observer sees a renewal at the moment at which the holder sends it.
        let mut watch = LeaseWatch::new(LENGTH);
        watch.read(held(7), sent_at);
        let stop_at = lease.stop_at(times);
        assert!(lease.is_valid(
            times,
            stop_at.checked_sub(Duration::from_millis(1)).unwrap()
        ));
        assert!(!lease.is_valid(times, stop_at));
        let quiet_at = stop_at + times.stopping + times.margin;
        let before = quiet_at.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(matches!(
            watch.state(&worker(), before),
            LeaseState::Held { .. }
        ));
        assert_eq!(
            watch.state(&worker(), quiet_at),
            LeaseState::Overdue { revision: 7 }
        );
    }

    #[test]
    fn renewal_begins_the_time_again_and_an_old_answer_does_not() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut watch = LeaseWatch::new(LENGTH);
        watch.read(held(3), start);
        watch.read(held(5), start + 2 * second);
        watch.read(held(3), start + 4 * second);
        watch.read(held(5), start + 6 * second);
        assert_eq!(
            watch.state(&worker(), start + 7 * second),
            LeaseState::Held { left: 15 * second }
        );
    }

    #[test]
    fn new_observer_waits_the_whole_length() {
        let start = Instant::now();
        let mut watch = LeaseWatch::new(LENGTH);
        assert_eq!(watch.state(&worker(), start), LeaseState::Absent);
        watch.read(held(900), start);
        assert_eq!(
            watch.state(&worker(), start),
            LeaseState::Held { left: LENGTH }
        );
    }

    #[test]
    fn returned_lease_differs_from_a_lost_one_and_from_the_entries_of_earlier_versions() {
        let entry = |text: &str| serde_json::from_str::<LeaseEntry>(text).unwrap();
        let ended = |is_returned| LeaseEntry::Ended { is_returned };
        assert_eq!(entry(r#"{"lease":"ended"}"#), ended(false));
        let written = serde_json::to_string(&ended(true)).unwrap();
        assert_eq!(entry(&written), ended(true));
        let mut watch = LeaseWatch::new(LENGTH);
        let returned = ReadLease {
            worker: worker(),
            revision: 4,
            length: Err(LeaseEnd::Returned),
        };
        let start = Instant::now();
        watch.read([returned], start);
        assert_eq!(
            watch.state(&worker(), start),
            LeaseState::Ended(LeaseEnd::Returned)
        );
    }

    #[test]
    fn ended_lease_never_comes_back() {
        let start = Instant::now();
        let mut watch = LeaseWatch::new(LENGTH);
        watch.ended(&worker());
        watch.read(held(9), start);
        assert_eq!(
            watch.state(&worker(), start),
            LeaseState::Ended(LeaseEnd::Lost)
        );
    }
}
