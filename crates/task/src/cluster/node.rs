//! This process as a node of the cluster. A node that runs tasks is a worker. The node holds its own lease and watches
//! the leases of other workers. A lease is a promise of a worker to stop its work if it can no longer renew the lease.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::LogError;
use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::accepted_messages::AcceptedMessages;
use super::admission::{AdmissionLimits, TaskAdmission};
use super::client_requests::ClientRequests;
use super::index::IndexWriter;
use super::late_receipt::LateReceipts;
use super::lease::{
    LEASE_PREFIX, LeaseEnd, LeaseEntry, LeaseState, LeaseTimes, LeaseWatch, OwnLease, ReadLease,
    WorkerInfo, key_of,
};
use super::link::{ClusterLink, PutError, WakeUpQueue};
use super::owner_question::{AttendReply, OwnerQuestion};
use crate::model::Task;

/// Default length of a lease. If the servers lose their leader, the election of another leader takes up to 9 seconds.
/// In this time no worker can renew its lease. Stopping the work takes another 3 seconds.
const LEASE_DEFAULT: Duration = Duration::from_secs(20);

/// Reserve between the end of the work and the expiry of the lease. Before the reserve come the grace (the time before
/// a stop uses force) and the time for force.
const LEASE_MARGIN_MAX: Duration = Duration::from_secs(1);

/// Pause after a failure of the store.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Time after which the store forgets an ended lease. This time is longer than the delay of any wake-up (a hint that a
/// task needs a worker) for the tasks of the worker.
pub(super) const ENDED_TTL: Duration = Duration::from_hours(24);

/// Number of subscribers to live text that wait for an answer at the same time. The other questions, such as stops, never
/// wait for a subscriber.
pub(super) const LIVE_TEXT_WAITS_MAX: usize = 128;

/// Options of a manager in a cluster.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Services that the managers share.
    pub link: Arc<dyn ClusterLink>,
    /// Work queue that the managers share. By default, the queue of the link.
    pub wake_ups: Arc<dyn WakeUpQueue>,
    /// Maximum number of executions at the same time. With 0, the node accepts messages and stop requests but runs no
    /// executions.
    pub concurrency: usize,
    /// If true, this node also settles the tasks of lost workers if no worker does, even if it runs no executions: it ends
    /// expired leases, and ends the tasks whose stop is requested.
    pub settles_lost_tasks: bool,
    /// Time without a renewal after which other workers may take tasks over. This time should be at least four times
    /// the sum of the grace and [`FORCE_MAX`](allstop_scope::FORCE_MAX). With a shorter time, a short interruption of
    /// the store stops the work.
    pub lease: Duration,
    /// Maximum number of take-overs of one execution. If the worker process of the last take-over also ends, the
    /// execution fails and the task becomes a [`DeadLetter`](super::DeadLetter).
    pub take_overs_max: u32,
    /// Limits of the tasks that this node accepts.
    pub admission: AdmissionLimits,
    /// Name of the worker, for people.
    pub name: Arc<str>,
    /// Scope of the loops of this node, such as the renewal of the lease. By default, a child of the root scope of the
    /// manager. With a separate scope, the node still returns its lease after a forced stop of all executions.
    pub scope: Option<Scope>,
    /// Called with each renewal of the lease. The argument is the remaining time: if no other renewal follows, all work
    /// must end within this time. The handler can pass the time to work that continues while this process is suspended.
    pub on_renewal: Option<RenewalHandler>,
    /// Called when the worker loses its lease, and when it gets a new lease. The handler must not block.
    pub on_lease_change: Option<LeaseHandler>,
    /// Called if this worker cannot stop its work before the lease ends. The handler must end the process.
    pub on_overdue: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Called with the remaining time of the lease.
pub type RenewalHandler = Arc<dyn Fn(Duration) + Send + Sync>;

/// Change of a worker's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    /// The lease was not renewed in time, so the running executions are stopped.
    Lost {
        /// Number of stopped executions.
        executions: usize,
    },
    /// The worker has a new lease after the loss of its previous lease.
    Renewed,
}

/// Called with each change of the lease.
pub type LeaseHandler = Arc<dyn Fn(LeaseChange) + Send + Sync>;

/// Default maximum number of take-overs. If five processes in a row have ended during executions of a task, a sixth
/// process would probably end, too.
const TAKE_OVERS_MAX: u32 = 5;

impl ClusterOptions {
    /// Creates options of a node that runs no executions.
    pub fn new(link: Arc<dyn ClusterLink>) -> Self {
        let process = allstop_process::this_process();
        Self {
            wake_ups: Arc::clone(&link) as Arc<dyn WakeUpQueue>,
            link,
            concurrency: 0,
            settles_lost_tasks: false,
            lease: LEASE_DEFAULT,
            take_overs_max: TAKE_OVERS_MAX,
            admission: AdmissionLimits::default(),
            name: format!("pid {}", process.pid).into(),
            scope: None,
            on_renewal: None,
            on_lease_change: None,
            on_overdue: None,
        }
    }

    /// Sets the maximum number of executions at the same time.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets if this node also settles the tasks of lost workers.
    #[must_use]
    pub fn settles_lost_tasks(mut self, settles_lost_tasks: bool) -> Self {
        self.settles_lost_tasks = settles_lost_tasks;
        self
    }

    /// Sets the time without a renewal after which other workers may take tasks over.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the limits of the tasks that this node accepts.
    #[must_use]
    pub fn admission(mut self, admission: AdmissionLimits) -> Self {
        self.admission = admission;
        self
    }

    /// Sets the name of the worker, for people.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the scope of the loops that renew and return the lease.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Sets the function that is called with each renewal of the lease.
    #[must_use]
    pub fn on_renewal(mut self, on_renewal: RenewalHandler) -> Self {
        self.on_renewal = Some(on_renewal);
        self
    }

    /// Sets the function that is called with each change of the lease.
    #[must_use]
    pub fn on_lease_change(mut self, on_lease_change: LeaseHandler) -> Self {
        self.on_lease_change = Some(on_lease_change);
        self
    }

    /// Sets the function that ends the process if the work of this worker outlives the lease.
    #[must_use]
    pub fn on_overdue(mut self, on_overdue: Arc<dyn Fn() + Send + Sync>) -> Self {
        self.on_overdue = Some(on_overdue);
        self
    }
}

impl fmt::Debug for ClusterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterOptions")
            .field("concurrency", &self.concurrency)
            .field("lease", &self.lease)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct ClusterNode {
    pub(super) options: ClusterOptions,
    pub(super) times: LeaseTimes,
    pub(super) index: IndexWriter,
    pub(super) admission: TaskAdmission,
    pub(super) accepted: AcceptedMessages,
    pub(crate) late_receipts: LateReceipts,
    /// Scope of the node's loops.
    pub(super) scope: Scope,
    pub(crate) requests: ClientRequests,
    /// Permits of subscribers to live text to wait for an answer of this node.
    pub(super) live_text_waits: Semaphore,
    watch: Mutex<LeaseWatch>,
    lease: Mutex<Option<OwnLease>>,
    /// True after the loss of a lease, until the worker has a new lease.
    has_lost_lease: AtomicBool,
    /// True after another process has asked the node to accept no more tasks.
    pub(super) is_drained: watch::Sender<bool>,
    /// True after the node has begun to close and to return its lease.
    pub(super) is_closing: watch::Sender<bool>,
    /// True after the node has closed.
    pub(super) is_closed: watch::Sender<bool>,
}

impl ClusterNode {
    /// Creates a node whose loops run in `scope`. The requests of clients run in `requests`.
    pub(crate) fn new(options: ClusterOptions, scope: Scope, requests: Scope) -> Self {
        let stopping = scope.grace() + allstop_scope::FORCE_MAX;
        let times = LeaseTimes {
            length: options.lease,
            stopping,
            margin: LEASE_MARGIN_MAX.min(options.lease / 20),
        };
        Self {
            times,
            index: IndexWriter::default(),
            admission: TaskAdmission::new(options.admission.clone()),
            accepted: AcceptedMessages::default(),
            late_receipts: LateReceipts::default(),
            requests: ClientRequests::new(requests),
            live_text_waits: Semaphore::new(LIVE_TEXT_WAITS_MAX),
            watch: Mutex::new(LeaseWatch::new(options.lease)),
            lease: Mutex::new(None),
            has_lost_lease: AtomicBool::new(false),
            is_drained: watch::Sender::new(false),
            is_closing: watch::Sender::new(false),
            is_closed: watch::Sender::new(false),
            scope,
            options,
        }
    }

    /// Resolves when another process has asked the node to accept no more tasks.
    pub(crate) async fn drained(&self) {
        let mut is_drained = self.is_drained.subscribe();
        // The sender is part of this node, so the wait cannot fail.
        let _set = is_drained.wait_for(|is_drained| *is_drained).await;
    }

    /// Asks a worker to accept no more tasks. Returns false if the worker does not answer.
    pub(crate) async fn drain_worker(&self, worker: &WorkerId) -> Result<bool, LogError> {
        let answer: Option<AttendReply> = self.ask(worker, &OwnerQuestion::Drain).await?;
        Ok(answer.is_some())
    }

    /// Finishes the requests of clients, returns the lease, and writes the index. Waits at most until `until`. If tasks
    /// still run here, other workers take them over after the lease has expired.
    pub(crate) async fn close(&self, until: Instant) {
        self.is_closing.send_replace(true);
        let mut is_closed = self.is_closed.subscribe();
        // Requests continue even if their clients have disconnected.
        let requests_done = timeout_at(until, self.requests.done());
        let closed = async {
            // The sender is part of this node, so the wait cannot fail.
            let _closed = is_closed.wait_for(|is_closed| *is_closed).await;
        };
        let _in_time = tokio::join!(requests_done, timeout_at(until, closed));
        let _in_time = timeout_at(until, self.flush_index()).await;
    }

    pub(super) fn link(&self) -> &dyn ClusterLink {
        &*self.options.link
    }

    /// The id of this node as a worker. `None` if the worker may not start an execution now.
    pub(crate) fn worker(&self) -> Option<WorkerId> {
        let lease = self.lease.lock();
        let lease = lease.as_ref()?;
        let is_valid = lease.is_valid(self.times, Instant::now());
        is_valid.then(|| lease.worker.clone())
    }

    pub(super) fn own_lease(&self) -> Option<OwnLease> {
        self.lease.lock().clone()
    }

    pub(super) fn set_lease(&self, lease: Option<OwnLease>) {
        if let (Some(lease), Some(on_renewal)) = (&lease, &self.options.on_renewal) {
            let gone_at = lease.sent_at + self.times.gone_after();
            on_renewal(gone_at.saturating_duration_since(Instant::now()));
        }
        let is_held = lease.is_some();
        *self.lease.lock() = lease;
        if is_held && self.has_lost_lease.swap(false, Ordering::Relaxed) {
            self.notify_lease_change(LeaseChange::Renewed);
        }
    }

    /// Notes the loss of the lease, and calls the handler with the number of stopped executions.
    pub(super) fn lost_lease(&self, executions: usize) {
        self.has_lost_lease.store(true, Ordering::Relaxed);
        self.notify_lease_change(LeaseChange::Lost { executions });
    }

    fn notify_lease_change(&self, change: LeaseChange) {
        if let Some(on_change) = &self.options.on_lease_change {
            on_change(change);
        }
    }

    /// Reads all leases, and returns the leases that are held.
    pub(crate) async fn watch_leases(&self) -> Result<Vec<WorkerInfo>, LogError> {
        let entries = self.link().entries(LEASE_PREFIX).await?;
        let at = Instant::now();
        let (mut read, mut held) = (Vec::new(), Vec::new());
        for entry in entries {
            let Some(worker) = entry.key.strip_prefix(LEASE_PREFIX).map(WorkerId::new) else {
                continue;
            };
            let length = match serde_json::from_slice(&entry.value) {
                Ok(LeaseEntry::Ended { is_returned: true }) => Err(LeaseEnd::Returned),
                Ok(LeaseEntry::Ended { is_returned: false }) => Err(LeaseEnd::Lost),
                Ok(LeaseEntry::Held(info)) => {
                    let length = Duration::from_millis(info.lease_ms);
                    held.push(info);
                    Ok(length)
                }
                // A newer version has written the entry. This version cannot read the entry and treats the lease as
                // held.
                Err(_) => Ok(self.options.lease),
            };
            read.push(ReadLease {
                worker,
                revision: entry.revision,
                length,
            });
        }
        self.watch.lock().read(read, at);
        Ok(held)
    }

    /// True if no loop of this node reads the leases of other workers.
    pub(super) fn does_not_watch(&self) -> bool {
        !(self.runs_executions() || self.options.settles_lost_tasks)
    }

    /// True if this node is a worker, which needs a lease.
    pub(super) fn runs_executions(&self) -> bool {
        self.options.concurrency > 0
    }

    pub(super) fn overdue_leases(&self) -> Vec<(WorkerId, u64)> {
        self.watch.lock().overdue(Instant::now())
    }

    pub(super) fn lease_state(&self, worker: &WorkerId) -> LeaseState {
        self.watch.lock().state(worker, Instant::now())
    }

    /// True if the worker of the task's execution no longer renews its lease.
    pub(crate) fn waits_for_take_over(&self, task: &Task) -> bool {
        let state = task.worker.as_ref().map(|worker| self.lease_state(worker));
        let is_over = |state| matches!(state, LeaseState::Overdue { .. } | LeaseState::Ended(_));
        task.is_executing && state.is_some_and(is_over)
    }

    /// Ends the lease of a worker whose last renewal has this revision; 0 means that there is no lease. Returns false
    /// if the worker has renewed the lease since.
    pub(super) async fn end_lease(
        &self,
        worker: &WorkerId,
        revision: u64,
    ) -> Result<bool, LogError> {
        let ended = LeaseEntry::Ended { is_returned: false };
        let value = serde_json::to_vec(&ended).unwrap_or_default();
        let put = self
            .link()
            .put(&key_of(worker), value, Some(revision), Some(ENDED_TTL));
        match put.await {
            Ok(_) => {
                self.watch.lock().ended(worker);
                Ok(true)
            }
            Err(PutError::Conflict) => {
                self.watch_leases().await?;
                Ok(false)
            }
            Err(PutError::Unknown(error) | PutError::Failed(error)) => Err(error),
        }
    }
}
