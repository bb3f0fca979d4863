//! The presence of this process, which keeps its locks valid, and the requests for locks.
//!
//! The process renews one message with a time to live, independent of the number of its locks. If the process ends
//! without releasing its locks, the servers drop the message, and the locks expire.
//!
//! A lock only names the process that should work. The expected version of an append alone separates two writers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_log::{LockAttempt, LogError, LogErrorKind, StreamLock, StreamName};
use allstop_scope::WorkCx;
use async_nats::jetstream::message::PublishMessage;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use ulid::Ulid;

use crate::client::errors::{self, place};
use crate::client::store::NatsStore;
use crate::client::stream_lock::{LockTaken, body_of};

/// Number of renewals within the time to live: two of them may fail.
const RENEWALS: u32 = 3;

/// Pause before a failed renewal is repeated.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// Timeout for the release of all locks at the end of the process.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Request to the presence.
#[derive(Debug)]
pub(crate) enum PresenceRequest {
    Lock(StreamName, oneshot::Sender<Result<LockAttempt, LogError>>),
    Owner(
        StreamName,
        oneshot::Sender<Result<Option<ProcessIdentity>, LogError>>,
    ),
    /// Releases the lock with this number.
    Release(StreamName, u64),
    Close(oneshot::Sender<()>),
}

/// Sends requests. The channel is unbounded, because a drop cannot wait. Each held lock causes one release request.
#[derive(Debug, Clone)]
pub(crate) struct PresenceHandle(mpsc::UnboundedSender<PresenceRequest>);

impl PresenceHandle {
    /// Sends a request and returns the answer.
    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, LogError>>) -> PresenceRequest,
    ) -> Result<T, LogError> {
        let (sender, answer) = oneshot::channel();
        let closed = || LogError::new(LogErrorKind::Closed, place("lock"));
        self.0.send(request(sender)).map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Releases all locks and ends the presence.
    pub(crate) async fn close(&self) {
        let (sender, closed) = oneshot::channel();
        if self.0.send(PresenceRequest::Close(sender)).is_ok() {
            // An error means that the presence has ended.
            closed.await.unwrap_or_default();
        }
    }
}

/// Presence of this process on the servers. It ends after the last handle and the last lock are dropped.
pub(crate) struct Presence {
    store: Arc<NatsStore>,
    id: String,
    queue: mpsc::UnboundedReceiver<PresenceRequest>,
    /// Handle for the locks, which send their release.
    handle: mpsc::WeakUnboundedSender<PresenceRequest>,
    /// Held locks, with the sequence numbers of their messages.
    held: HashMap<StreamName, u64>,
    /// Streams that may have a lock of this process without a holder.
    leftover: HashSet<StreamName>,
    /// Time of the next renewal. `None` before the first.
    renew_at: Option<Instant>,
    /// True while renewals fail.
    is_late: bool,
}

/// Next event of the presence.
enum PresenceEvent {
    Asked(PresenceRequest),
    RenewalIsDue,
    Stopped,
}

impl Presence {
    pub(crate) fn new(store: Arc<NatsStore>) -> (Self, PresenceHandle) {
        let (requests, queue) = mpsc::unbounded_channel();
        let presence = Self {
            store,
            id: Ulid::generate().to_string(),
            queue,
            handle: requests.downgrade(),
            held: HashMap::new(),
            leftover: HashSet::new(),
            renew_at: None,
            is_late: false,
        };
        (presence, PresenceHandle(requests))
    }

    /// Serves requests until the log is closed or its scope is stopped.
    pub(crate) async fn run(mut self, cx: WorkCx) {
        loop {
            // Without a lock the presence needs no renewal.
            let has_any = !(self.held.is_empty() && self.leftover.is_empty());
            let is_needed = self.renew_at.is_some() && has_any;
            let renew_at = self.renew_at.unwrap_or_else(Instant::now);
            let event = tokio::select! {
                biased;
                _cause = cx.stopped_at("presence") => PresenceEvent::Stopped,
                () = sleep_until(renew_at), if is_needed => PresenceEvent::RenewalIsDue,
                request = self.queue.recv() => match request {
                    Some(request) => PresenceEvent::Asked(request),
                    None => PresenceEvent::Stopped,
                },
            };
            let is_stopped = match event {
                PresenceEvent::Stopped => true,
                PresenceEvent::RenewalIsDue => is_cut_short(&cx, self.renew_or_warn()).await,
                PresenceEvent::Asked(PresenceRequest::Close(closed)) => {
                    self.release_all().await;
                    return closed.send(()).unwrap_or_default();
                }
                PresenceEvent::Asked(request) => is_cut_short(&cx, self.serve(request)).await,
            };
            if is_stopped {
                return self.release_all().await;
            }
        }
    }

    /// Longest time for one request, so that the renewals continue.
    fn step_max(&self) -> Duration {
        self.store.lock_ttl() / RENEWALS
    }

    /// Answers a request. If the requester no longer waits, its lock is released at once.
    async fn serve(&mut self, request: PresenceRequest) {
        let max = self.step_max();
        match request {
            PresenceRequest::Lock(stream, answer) => {
                let lock = timeout(max, self.lock(&stream)).await;
                let lock = lock.unwrap_or_else(|_elapsed| Err(errors::disconnected("lock")));
                drop(answer.send(lock));
            }
            PresenceRequest::Owner(stream, answer) => {
                let is_held = self.held.contains_key(&stream);
                let owner = self.store.lock_holder(&stream, &self.id, is_held);
                let owner = timeout(max, owner).await;
                let owner = owner.unwrap_or_else(|_elapsed| Err(errors::disconnected("lock")));
                drop(answer.send(owner));
            }
            PresenceRequest::Release(stream, sequence) => {
                // Another number means that the lock was lost and then taken again.
                if self.held.get(&stream) == Some(&sequence) {
                    self.held.remove(&stream);
                    self.leftover.insert(stream);
                    self.remove_leftover().await;
                }
            }
            PresenceRequest::Close(_) => {}
        }
    }

    async fn lock(&mut self, stream: &StreamName) -> Result<LockAttempt, LogError> {
        // Renewed first, because a lock without a presence is not valid.
        if self.renew_at.is_none_or(|at| at <= Instant::now()) {
            self.renew().await?;
        }
        let Some(handle) = self.handle.upgrade() else {
            return Err(LogError::new(LogErrorKind::Closed, place("lock")));
        };
        let is_held = self.held.contains_key(stream);
        if !is_held {
            // Registered until the answer is known.
            self.leftover.insert(stream.clone());
        }
        let taken = self.store.take_lock(stream, &self.id, is_held).await?;
        self.leftover.remove(stream);
        match taken {
            LockTaken::HeldBy(process) => Ok(LockAttempt::HeldBy(Some(process))),
            LockTaken::Taken(sequence) => {
                self.held.insert(stream.clone(), sequence);
                let name = stream.clone();
                let release = move || {
                    // Sending fails only after the presence has ended; the lock is then gone too.
                    let release = handle.send(PresenceRequest::Release(name, sequence));
                    release.unwrap_or_default();
                };
                Ok(LockAttempt::Locked(StreamLock::new(
                    stream.clone(),
                    release,
                )))
            }
        }
    }

    async fn renew_or_warn(&mut self) {
        let error = match timeout(self.step_max(), self.renew()).await {
            Ok(Ok(())) => {
                self.is_late = false;
                return self.remove_leftover().await;
            }
            Ok(Err(error)) => error,
            Err(_elapsed) => errors::disconnected("presence"),
        };
        self.renew_at = Some(Instant::now() + RETRY_EVERY);
        if !std::mem::replace(&mut self.is_late, true) {
            let ttl = self.store.lock_ttl();
            tracing::warn!(%error, "the presence is not renewed; locks pass on {ttl:?} after the last renewal");
        }
    }

    async fn renew(&mut self) -> Result<(), LogError> {
        let began = Instant::now();
        let body = bytes::Bytes::from(body_of(&self.id)?);
        let message = || {
            let ttl = self.store.lock_ttl();
            PublishMessage::build().payload(body.clone()).ttl(ttl)
        };
        // A duplicate presence has the same content.
        let subject = self.store.presence_subject(&self.id);
        self.store.publish_repeatable(subject, message).await?;
        // Counts from the request, because the servers start to count later.
        self.renew_at = Some(began + self.step_max());
        Ok(())
    }

    /// Removes the locks of failed releases, for as long as the servers answer.
    async fn remove_leftover(&mut self) {
        let max = self.step_max();
        let leftover: Vec<_> = self.leftover.iter().cloned().collect();
        for stream in leftover {
            let removed = timeout(max, self.store.remove_lock(&stream, &self.id)).await;
            if !matches!(removed, Ok(Ok(()))) {
                return;
            }
            self.leftover.remove(&stream);
        }
    }

    /// Releases all locks and the presence, if the servers answer.
    async fn release_all(&mut self) {
        self.leftover
            .extend(self.held.drain().map(|(stream, _)| stream));
        let has_presence = self.renew_at.take().is_some();
        let releases = async {
            if has_presence {
                // Removed first, because without a presence no lock is valid.
                self.store.remove_presence(&self.id).await?;
            }
            self.remove_leftover().await;
            Ok::<_, LogError>(())
        };
        if !matches!(timeout(RELEASE_MAX, releases).await, Ok(Ok(()))) {
            tracing::warn!("the servers do not answer; locks pass on when they expire");
        }
    }
}

/// True if a stop came before the end of the work.
async fn is_cut_short(cx: &WorkCx, work: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        _cause = cx.stopped_at("presence") => true,
        () = work => false,
    }
}
