//! The log on JetStream.

use std::fmt;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::ItemKind;
use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogFuture, RecordBytes, StreamLock,
    StreamName, Version,
};
use allstop_scope::{Scope, WorkSpec};
use allstop_task::ClusterLink;
use tokio::sync::watch;

use crate::client::connect::connect;
use crate::client::link::NatsLink;
use crate::client::presence::{Presence, PresenceHandle, PresenceRequest};
use crate::client::store::NatsStore;
use crate::connect_error::ConnectError;
use crate::options::NatsOptions;

/// A log on JetStream. Clones share one connection.
#[derive(Clone)]
pub struct NatsLog {
    store: Arc<NatsStore>,
    presence: PresenceHandle,
}

impl NatsLog {
    /// Connects to the servers and opens the log. If no log exists, creates one. Work in `scope` renews the locks of
    /// this process; when that scope is stopped, the locks are released.
    ///
    /// # Cancel safety
    /// If the future is dropped, no log is opened.
    pub async fn open(options: NatsOptions, scope: &Scope) -> Result<Self, ConnectError> {
        let store = Arc::new(connect(options).await?);
        let (keeper, presence) = Presence::new(Arc::clone(&store));
        let spec = WorkSpec::new(ItemKind::Future, "presence at NATS");
        let kept = scope.spawn(spec, |cx| keeper.run(cx));
        // The renewal is work of the scope, and no caller waits for its value.
        drop(kept.map_err(|_stopped| ConnectError::Stopping)?);
        Ok(Self { store, presence })
    }

    /// Opens the link between the managers of a cluster, on the servers of the log.
    ///
    /// # Cancel safety
    /// If the future is dropped, no link is opened.
    pub async fn link(&self) -> Result<Arc<dyn ClusterLink>, ConnectError> {
        let link = NatsLink::open(Arc::clone(&self.store)).await?;
        Ok(Arc::new(link))
    }

    /// The log as a trait object, for code that is independent of the store.
    pub fn as_log(&self) -> Arc<dyn Log> {
        Arc::new(self.clone())
    }

    /// True while the process is connected to a server. The client restores a lost connection automatically.
    pub fn connection(&self) -> watch::Receiver<bool> {
        self.store.is_connected.subscribe()
    }
}

impl Log for NatsLog {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let (store, stream) = (Arc::clone(&self.store), stream.clone());
        LogFuture::waiting(async move { store.append(&stream, expected, id, &records).await })
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (store, stream) = (Arc::clone(&self.store), stream.clone());
        LogFuture::waiting(async move { store.read(&stream, from, limit).await })
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (store, stream) = (Arc::clone(&self.store), stream.clone());
        LogFuture::waiting(async move { store.tail(&stream, from, limit).await })
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        let (store, prefix) = (Arc::clone(&self.store), prefix.to_owned());
        LogFuture::waiting(async move { store.list(&prefix).await })
    }

    fn list_newest_first(
        &self,
        prefix: &str,
    ) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        let (store, prefix) = (Arc::clone(&self.store), prefix.to_owned());
        LogFuture::waiting(async move { store.list_newest_first(&prefix).await })
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        let (presence, stream) = (self.presence.clone(), stream.clone());
        LogFuture::waiting(async move {
            let ask = presence.ask(|answer| PresenceRequest::Lock(stream, answer));
            ask.await
        })
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        let (presence, stream) = (self.presence.clone(), stream.clone());
        LogFuture::waiting(async move {
            let ask = presence.ask(|answer| PresenceRequest::Owner(stream, answer));
            ask.await
        })
    }

    /// Always false, because only the presence of the holder on the servers decides who holds a lock. A presence is a
    /// message that the holder renews. If a worker was suspended or disconnected, its presence may have expired. Such a
    /// worker may still run on this machine but holds no lock.
    fn is_other_process_running(
        &self,
        _owner: &ProcessIdentity,
    ) -> LogFuture<Result<bool, LogError>> {
        LogFuture::ready(Ok(false))
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        let store = Arc::clone(&self.store);
        LogFuture::waiting(async move {
            let deleted = store.delete(lock.stream()).await;
            drop(lock);
            deleted
        })
    }

    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        let store = Arc::clone(&self.store);
        LogFuture::waiting(async move { store.delete_unchanged(streams).await })
    }

    /// Releases all locks. Without this call, the locks expire after [`NatsOptions::lock_ttl`].
    fn close(&self) -> LogFuture<()> {
        let presence = self.presence.clone();
        LogFuture::waiting(async move { presence.close().await })
    }
}

impl fmt::Debug for NatsLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsLog")
            .field("options", &self.store.options)
            .finish_non_exhaustive()
    }
}
