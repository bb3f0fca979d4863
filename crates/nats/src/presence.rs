//! The presence of this process, for which its locks count, and the requests for locks.
//!
//! One message with a time to live is renewed, whatever the number of locks. When the process ends without giving its
//! locks back, the servers drop the message, and the locks pass on.
//!
//! A lock tells who should work. Only the expected version of an append keeps two writers apart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_log::{LockAttempt, LogError, LogErrorKind, StreamLock, StreamName};
use allstop_scope::WorkCx;
use async_nats::jetstream::message::PublishMessage;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use ulid::Ulid;

use crate::errors::{NotPublished, place};
use crate::store::NatsStore;
use crate::stream_lock::{LockTaken, body_of};

/// Renewals within the time to live: two of them may fail.
const RENEWALS: u32 = 3;

/// Time for the last words of a process that ends.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Request to the presence.
#[derive(Debug)]
pub(crate) enum PresenceRequest {
    Lock(StreamName, oneshot::Sender<Result<LockAttempt, LogError>>),
    Owner(
        StreamName,
        oneshot::Sender<Result<Option<ProcessIdentity>, LogError>>,
    ),
    Release(StreamName),
    Close(oneshot::Sender<()>),
}

/// Sends requests. Without a bound, because a drop cannot wait: there is one request for each lock that was held.
#[derive(Debug, Clone)]
pub(crate) struct PresenceHandle(mpsc::UnboundedSender<PresenceRequest>);

impl PresenceHandle {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<PresenceRequest>) {
        let (requests, queue) = mpsc::unbounded_channel();
        (Self(requests), queue)
    }

    /// The answer to a request.
    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, LogError>>) -> PresenceRequest,
    ) -> Result<T, LogError> {
        let (sender, answer) = oneshot::channel();
        let closed = || LogError::new(LogErrorKind::Closed, place("lock"));
        self.0.send(request(sender)).map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Gives all locks back and ends the presence.
    pub(crate) async fn close(&self) {
        let (sender, closed) = oneshot::channel();
        if self.0.send(PresenceRequest::Close(sender)).is_ok() {
            // An error means that it has ended.
            closed.await.unwrap_or_default();
        }
    }

    fn release(&self, stream: StreamName) {
        // Without a presence there is no lock any more.
        self.0
            .send(PresenceRequest::Release(stream))
            .unwrap_or_default();
    }
}

pub(crate) struct Presence {
    store: Arc<NatsStore>,
    id: String,
    handle: PresenceHandle,
    queue: mpsc::UnboundedReceiver<PresenceRequest>,
    /// Held locks, with their messages.
    held: HashMap<StreamName, u64>,
    /// Messages of locks that were given back and could not be removed.
    unreleased: Vec<u64>,
    /// Message of the presence, and the time by which it is to be renewed. `None`: there is none yet.
    renewed: Option<(u64, Instant)>,
}

/// Next thing to do.
enum PresenceEvent {
    Asked(PresenceRequest),
    RenewalIsDue,
    Stopped,
}

impl Presence {
    pub(crate) fn new(
        store: Arc<NatsStore>,
        handle: PresenceHandle,
        queue: mpsc::UnboundedReceiver<PresenceRequest>,
    ) -> Self {
        Self {
            store,
            id: Ulid::generate().to_string(),
            handle,
            queue,
            held: HashMap::new(),
            unreleased: Vec::new(),
            renewed: None,
        }
    }

    /// Serves requests until the log is closed or its scope is stopped.
    pub(crate) async fn run(mut self, cx: WorkCx) {
        loop {
            let renew_at = self.renewed.map_or_else(Instant::now, |(_, at)| at);
            // Without a lock there is nothing to keep.
            let is_needed = self.renewed.is_some() && !self.held.is_empty();
            let event = tokio::select! {
                biased;
                _cause = cx.stopped_at("presence") => PresenceEvent::Stopped,
                () = sleep_until(renew_at), if is_needed => PresenceEvent::RenewalIsDue,
                request = self.queue.recv() => match request {
                    Some(request) => PresenceEvent::Asked(request),
                    None => PresenceEvent::Stopped,
                },
            };
            match event {
                PresenceEvent::RenewalIsDue => self.renew_or_warn().await,
                PresenceEvent::Asked(PresenceRequest::Close(closed)) => {
                    self.farewell().await;
                    closed.send(()).unwrap_or_default();
                    return;
                }
                PresenceEvent::Asked(request) => self.serve(request).await,
                PresenceEvent::Stopped => return self.farewell().await,
            }
        }
    }

    /// Answers a request. An asker that is gone gets a lock that is given back at once.
    async fn serve(&mut self, request: PresenceRequest) {
        match request {
            PresenceRequest::Lock(stream, answer) => {
                let lock = self.lock(&stream).await;
                drop(answer.send(lock));
            }
            PresenceRequest::Owner(stream, answer) => {
                let is_held = self.held.contains_key(&stream);
                let owner = self.store.lock_holder(&stream, &self.id, is_held).await;
                drop(answer.send(owner));
            }
            PresenceRequest::Release(stream) => {
                self.unreleased.extend(self.held.remove(&stream));
                self.remove_released().await;
            }
            PresenceRequest::Close(_) => {}
        }
    }

    async fn lock(&mut self, stream: &StreamName) -> Result<LockAttempt, LogError> {
        // First: without a presence the lock would count for nothing.
        if self.renewed.is_none_or(|(_, at)| at <= Instant::now()) {
            self.renew().await?;
        }
        let is_held = self.held.contains_key(stream);
        match self.store.take_lock(stream, &self.id, is_held).await? {
            LockTaken::HeldBy(process) => Ok(LockAttempt::HeldBy(Some(process))),
            LockTaken::Taken(sequence) => {
                self.held.insert(stream.clone(), sequence);
                let (handle, name) = (self.handle.clone(), stream.clone());
                Ok(LockAttempt::Locked(StreamLock::new(
                    stream.clone(),
                    move || {
                        handle.release(name);
                    },
                )))
            }
        }
    }

    async fn renew_or_warn(&mut self) {
        let ttl = self.store.options.lock_ttl;
        match timeout(ttl / RENEWALS, self.renew()).await {
            Ok(Ok(())) => self.remove_released().await,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the presence is not renewed; locks pass on after {ttl:?}");
            }
            Err(_elapsed) => {
                tracing::warn!("the servers do not answer; locks pass on after {ttl:?}");
            }
        }
    }

    async fn renew(&mut self) -> Result<(), LogError> {
        let ttl = self.store.options.lock_ttl;
        let began = Instant::now();
        let message = PublishMessage::build()
            .payload(body_of(&self.id)?.into())
            .ttl(ttl);
        let subject = self.store.presence_subject(&self.id);
        let sequence = self.store.publish_message(subject, message).await;
        let sequence = sequence.map_err(NotPublished::into_error)?;
        // Counted from the request: the servers began to count later.
        self.renewed = Some((sequence, began + ttl / RENEWALS));
        Ok(())
    }

    async fn remove_released(&mut self) {
        for sequence in std::mem::take(&mut self.unreleased) {
            // A lock that passed on has another number.
            if self.store.locks.delete_message(sequence).await.is_err()
                && self.store.locks.get_raw_message(sequence).await.is_ok()
            {
                self.unreleased.push(sequence);
            }
        }
    }

    /// Gives everything back, if the servers answer.
    async fn farewell(&mut self) {
        self.unreleased
            .extend(self.held.drain().map(|(_, sequence)| sequence));
        self.unreleased
            .extend(self.renewed.take().map(|(sequence, _)| sequence));
        let removed = timeout(FAREWELL_MAX, self.remove_released()).await;
        if removed.is_err() {
            tracing::warn!("the servers do not answer; locks pass on when they expire");
        }
    }
}
