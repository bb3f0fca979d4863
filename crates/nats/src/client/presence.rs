//! Handles the requests for locks, and keeps the presence of this process on the servers. The locks of the process are
//! valid while this presence exists.
//!
//! The presence is one message with a time to live, for all locks of the process together. The process renews this
//! message. If the process ends without releasing its locks, the servers drop the message after its time to live, and
//! the locks expire.
//!
//! A lock is only a hint about which process should work. If two processes nevertheless write, the version that each
//! append expects decides which of them succeeds.

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

/// Number of renewals within the time to live. Two consecutive renewals may fail.
const RENEWALS: u32 = 3;

/// Pause after a failed renewal, before the next attempt.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// Time limit for the release of all locks at the end of the process.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Request to the task that keeps the presence.
#[derive(Debug)]
pub(crate) enum PresenceRequest {
    Lock(StreamName, oneshot::Sender<Result<LockAttempt, LogError>>),
    Owner(
        StreamName,
        oneshot::Sender<Result<Option<ProcessIdentity>, LogError>>,
    ),
    /// Releases the lock whose message has this sequence number.
    Release(StreamName, u64),
    Close(oneshot::Sender<()>),
}

/// Sends requests. The channel is unbounded, because the drop of a lock cannot wait. Each held lock causes one request
/// for its release.
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
            // An error means that the presence has already ended.
            closed.await.unwrap_or_default();
        }
    }
}

/// Presence of this process on the servers. The presence ends after the last handle and the last lock were dropped.
pub(crate) struct Presence {
    store: Arc<NatsStore>,
    id: String,
    queue: mpsc::UnboundedReceiver<PresenceRequest>,
    /// Handle that each lock uses to send its release.
    handle: mpsc::WeakUnboundedSender<PresenceRequest>,
    /// Held locks: each stream with the sequence number of the lock's message.
    held: HashMap<StreamName, u64>,
    /// Streams whose lock on the servers may still name this process, although no code holds the lock.
    leftover: HashSet<StreamName>,
    /// Time of the next renewal. `None` before the first renewal.
    renew_at: Option<Instant>,
    /// True while the renewals fail.
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

    /// Handles requests until the log is closed or its scope is stopped.
    pub(crate) async fn run(mut self, cx: WorkCx) {
        loop {
            // If the process has no lock, the presence needs no renewal.
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

    /// Maximum duration of one request. With this limit, requests do not delay the renewals for too long.
    fn step_max(&self) -> Duration {
        self.store.lock_ttl() / RENEWALS
    }

    /// Answers a request. If the caller no longer waits for a lock, the lock is released immediately.
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
                // If the number differs, the lock was lost, and was then taken again.
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
        // The presence is renewed first, because a lock is valid only with a presence.
        if self.renew_at.is_none_or(|at| at <= Instant::now()) {
            self.renew().await?;
        }
        let Some(handle) = self.handle.upgrade() else {
            return Err(LogError::new(LogErrorKind::Closed, place("lock")));
        };
        let is_held = self.held.contains_key(stream);
        if !is_held {
            // Registered as left over until the answer shows whether the lock is taken.
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
                    // Sending fails only if the presence has ended. In that case, the lock no longer exists either.
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
            tracing::warn!(%error, "the presence of this process is not renewed; other processes get its locks {ttl:?} after the last renewal");
        }
    }

    async fn renew(&mut self) -> Result<(), LogError> {
        let began = Instant::now();
        let body = bytes::Bytes::from(body_of(&self.id)?);
        let message = || {
            let ttl = self.store.lock_ttl();
            PublishMessage::build().payload(body.clone()).ttl(ttl)
        };
        // A second presence message would have the same content, so a repeated publication is harmless.
        let subject = self.store.presence_subject(&self.id);
        self.store.publish_repeatable(subject, message).await?;
        // The time is counted from the start of the request. The servers start to count later.
        self.renew_at = Some(began + self.step_max());
        Ok(())
    }

    /// Removes locks whose release has failed. Ends at the first lock without an answer of the servers.
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

    /// Releases all locks and removes the presence, if the servers answer.
    async fn release_all(&mut self) {
        self.leftover
            .extend(self.held.drain().map(|(stream, _)| stream));
        let has_presence = self.renew_at.take().is_some();
        let releases = async {
            if has_presence {
                // The presence is removed first: without it, all locks are invalid, even if a later removal fails.
                self.store.remove_presence(&self.id).await?;
            }
            self.remove_leftover().await;
            Ok::<_, LogError>(())
        };
        if !matches!(timeout(RELEASE_MAX, releases).await, Ok(Ok(()))) {
            tracing::warn!(
                "the servers do not answer; other processes get the locks of this process after the locks expire"
            );
        }
    }
}

/// True if a stop came before the work was complete.
async fn is_cut_short(cx: &WorkCx, work: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        _cause = cx.stopped_at("presence") => true,
        () = work => false,
    }
}
