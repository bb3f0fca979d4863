//! Push notification configurations of all tasks: their records in the log, and the state in memory that is computed
//! from these records.
//!
//! Invariants:
//! 1. Each change is decided from the state at one version of the log. The append of the change fails if the log has
//!    another version by then. If two changes are concurrent, one of them is therefore decided again.
//! 2. Only records of the log change the state in memory, in the order of the log. The exception is the progress of
//!    deliveries, which may be ahead of the log. If a crash loses progress, the events are delivered again.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::{Log, LogError, StreamName, StreamWriteError, StreamWriter, Version};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::record::{ConfigProgress, DeliveryPhase, PushRecord, PushRecordError, TaskPushConfigs};

/// Prefix of the streams of configurations.
const STREAM_PREFIX: &str = "push/";

/// Maximum number of records per read.
const READ_LEN_MAX: usize = 512;

/// Maximum number of concurrent reads while a store is opened.
const READS_MAX: usize = 16;

/// Maximum attempts of a change that conflicts with other changes. The maximum is higher than the number of concurrent
/// writers for one task, which are the deliveries of the task and a few requests.
const CHANGE_TRIES_MAX: usize = 32;

/// Maximum attempts to determine the outcome of an append, and the pause between them; one second in total.
const SETTLE_TRIES_MAX: usize = 5;
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// Failure of the store of push notifications.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushStoreError {
    /// The store failed; nothing was written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store did not answer, so the change may have happened.
    #[error("the store has not confirmed the change")]
    Indeterminate,
    /// Every attempt conflicted with another change.
    #[error("other changes of the task's configurations came first; try again")]
    Overtaken,
    /// A record cannot be read.
    #[error("record {version} of stream {stream} cannot be read: {reason}")]
    Unreadable {
        /// The stream.
        stream: StreamName,
        /// Number of the record.
        version: Version,
        /// The reason.
        reason: String,
    },
}

/// Reason why a change did not happen: the decision refused it, or the store failed.
#[derive(Debug)]
pub(crate) enum ChangeError<E> {
    Refused(E),
    Store(PushStoreError),
}

/// Configurations of all tasks of a store.
pub(crate) struct PushStore {
    log: Arc<dyn Log>,
    tasks: Mutex<HashMap<TaskId, TaskPushConfigs>>,
}

impl PushStore {
    /// Reads all configurations of a store.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn open(log: Arc<dyn Log>) -> Result<Self, PushStoreError> {
        let streams = log.list(STREAM_PREFIX).await?;
        let ids = streams.into_iter().filter_map(|(name, _)| {
            let id = name.as_str().strip_prefix(STREAM_PREFIX)?;
            Some(TaskId::new(id))
        });
        let tasks = stream::iter(ids)
            .map(|id| {
                let log = Arc::clone(&log);
                async move {
                    let mut configs = TaskPushConfigs::default();
                    for (_, record) in read_after(&*log, &id, Version(0)).await? {
                        configs.apply(&record);
                    }
                    Ok::<_, PushStoreError>((id, configs))
                }
            })
            .buffer_unordered(READS_MAX)
            .try_collect()
            .await?;
        Ok(Self {
            log,
            tasks: Mutex::new(tasks),
        })
    }

    /// All configurations with their tasks.
    pub(crate) fn all(&self) -> Vec<(TaskId, ConfigProgress)> {
        let tasks = self.tasks.lock();
        let configs = tasks.iter().flat_map(|(id, task)| {
            let configs = task.configs.values();
            configs.map(|progress| (id.clone(), progress.clone()))
        });
        configs.collect()
    }

    /// Configurations of a task, in the order of their ids.
    pub(crate) fn of_task(&self, task: &TaskId) -> Vec<ConfigProgress> {
        let tasks = self.tasks.lock();
        let configs = tasks.get(task).map(|task| task.configs.values().cloned());
        configs.into_iter().flatten().collect()
    }

    /// One configuration of a task.
    pub(crate) fn get(&self, task: &TaskId, id: &str) -> Option<ConfigProgress> {
        self.tasks.lock().get(task)?.configs.get(id).cloned()
    }

    /// Marks an event in memory as delivered, unless the configuration was replaced or deleted.
    pub(crate) fn note_delivered(&self, task: &TaskId, id: &str, set_at: Version, event: Version) {
        let mut tasks = self.tasks.lock();
        let progress = tasks
            .get_mut(task)
            .and_then(|task| task.configs.get_mut(id));
        if let Some(progress) = progress.filter(|progress| progress.set_at == set_at) {
            progress.delivered = progress.delivered.max(event);
        }
    }

    /// Stream of an ended task's configurations, with its version; empty if the task has no configuration. `None` if
    /// events still have to be delivered.
    pub(crate) fn streams_to_delete(&self, task: &TaskId) -> Option<Vec<(StreamName, Version)>> {
        let tasks = self.tasks.lock();
        let Some(known) = tasks.get(task) else {
            return Some(Vec::new());
        };
        let mut configs = known.configs.values();
        let is_needed = configs.any(|progress| progress.phase == DeliveryPhase::Active);
        (!is_needed).then(|| vec![(stream_of(task), known.version)])
    }

    /// Forgets the configurations of a deleted task, except a configuration that was set during the deletion: its
    /// delivery deletes it.
    pub(crate) fn forget(&self, task: &TaskId) {
        let mut tasks = self.tasks.lock();
        let is_active = |progress: &ConfigProgress| progress.phase == DeliveryPhase::Active;
        if tasks
            .get(task)
            .is_some_and(|known| !known.configs.values().any(is_active))
        {
            tasks.remove(task);
        }
    }

    /// Deletes the configurations of a task that no longer exists: they were set while the task was deleted.
    ///
    /// # Cancel safety
    /// If the future is dropped, the configurations are deleted now or after the next start.
    pub(crate) async fn delete(&self, task: &TaskId) -> Result<(), PushStoreError> {
        let version = self.tasks.lock().get(task).map(|configs| configs.version);
        let Some(version) = version else {
            return Ok(());
        };
        let stream = vec![(stream_of(task), version)];
        if !self.log.delete_unchanged(stream).await?.is_empty() {
            self.tasks.lock().remove(task);
        }
        Ok(())
    }

    /// Changes the configurations of a task. `decide` returns the records for the current state, and is called again if
    /// another change came first. Writes nothing if `decide` returns no records.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may still happen. The next change of the task then finds the change in the
    /// log.
    pub(crate) async fn change<E>(
        &self,
        task: &TaskId,
        decide: impl Fn(&TaskPushConfigs) -> Result<Vec<PushRecord>, E>,
    ) -> Result<(), ChangeError<E>> {
        for _ in 0..CHANGE_TRIES_MAX {
            let (version, records) = {
                let tasks = self.tasks.lock();
                let empty = TaskPushConfigs::default();
                let configs = tasks.get(task).unwrap_or(&empty);
                (
                    configs.version,
                    decide(configs).map_err(ChangeError::Refused)?,
                )
            };
            if records.is_empty() {
                return Ok(());
            }
            match self.append(task, version, &records).await {
                Ok(()) => {
                    self.apply(task, version, &records);
                    return Ok(());
                }
                Err(StreamWriteError::Fenced { .. }) => {
                    self.catch_up(task).await.map_err(ChangeError::Store)?;
                }
                Err(StreamWriteError::Refused(error)) => {
                    return Err(ChangeError::Store(error.into()));
                }
                Err(StreamWriteError::Indeterminate) => {
                    return Err(ChangeError::Store(PushStoreError::Indeterminate));
                }
            }
        }
        Err(ChangeError::Store(PushStoreError::Overtaken))
    }

    async fn append(
        &self,
        task: &TaskId,
        version: Version,
        records: &[PushRecord],
    ) -> Result<(), StreamWriteError> {
        let mut writer = StreamWriter::new(Arc::clone(&self.log), stream_of(task), version);
        let records = records.iter().map(PushRecord::encode).collect();
        let mut written = writer.append(records).await;
        for _ in 0..SETTLE_TRIES_MAX {
            if !matches!(written, Err(StreamWriteError::Indeterminate)) {
                break;
            }
            sleep(SETTLE_PAUSE).await;
            written = writer.settle().await;
        }
        written.map(drop)
    }

    /// Applies records that follow this version, unless they were already read from the log.
    fn apply(&self, task: &TaskId, after: Version, records: &[PushRecord]) {
        let mut tasks = self.tasks.lock();
        let configs = tasks.entry(task.clone()).or_default();
        if configs.version == after {
            for record in records {
                configs.apply(record);
            }
        }
    }

    /// Applies the records of the log that are missing in the state in memory.
    async fn catch_up(&self, task: &TaskId) -> Result<(), PushStoreError> {
        let known = self.tasks.lock().get(task).map(|configs| configs.version);
        let read = read_after(&*self.log, task, known.unwrap_or_default()).await?;
        let mut tasks = self.tasks.lock();
        let configs = tasks.entry(task.clone()).or_default();
        for (version, record) in read {
            if version == configs.version.next() {
                configs.apply(&record);
            }
        }
        Ok(())
    }
}

fn stream_of(task: &TaskId) -> StreamName {
    StreamName::new(format!("{STREAM_PREFIX}{task}"))
}

async fn read_after(
    log: &dyn Log,
    task: &TaskId,
    mut after: Version,
) -> Result<Vec<(Version, PushRecord)>, PushStoreError> {
    let stream = stream_of(task);
    let mut records = Vec::new();
    loop {
        let read = log.read(&stream, after.next(), READ_LEN_MAX).await?;
        if read.is_empty() {
            return Ok(records);
        }
        for (version, bytes) in read {
            let record = PushRecord::decode(&bytes);
            let record = record.map_err(|reason: PushRecordError| PushStoreError::Unreadable {
                stream: stream.clone(),
                version,
                reason: reason.to_string(),
            })?;
            after = version;
            records.push((version, record));
        }
    }
}

impl fmt::Debug for PushStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushStore")
            .field("tasks", &self.tasks.lock().len())
            .finish_non_exhaustive()
    }
}
