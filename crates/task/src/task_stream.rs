//! The stream of one task: the current state of the task, and the only writer of its records.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::{
    Log, READ_BYTES_MIN, RecordBytes, StreamName, StreamWriteError, StreamWriter, Version,
};
use futures::FutureExt as _;

use crate::error::TaskStoreError;
use crate::feed::{TaskFeed, TaskUpdate};
use crate::model::{Task, TaskRecord, decode, encode};

/// Prefix of the streams of tasks.
pub(crate) const STREAM_PREFIX: &str = "task/";

/// Maximum number of records per read. This limits the memory of a reader.
pub(crate) const READ_LEN_MAX: usize = 512;

/// Name of the stream of a task.
pub(crate) fn stream_of(id: &TaskId) -> StreamName {
    StreamName::new(format!("{STREAM_PREFIX}{id}"))
}

/// Reads at most `limit` records after a cursor.
pub(crate) async fn read_updates(
    log: &dyn Log,
    id: &TaskId,
    cursor: Version,
    limit: usize,
) -> Result<Vec<TaskUpdate>, TaskStoreError> {
    let read = log.read(&stream_of(id), cursor.next(), limit).await?;
    decoded(id, read)
}

/// Like [`read_updates`], but waits until there is at least one record.
pub(crate) async fn tail_updates(
    log: &dyn Log,
    id: &TaskId,
    cursor: Version,
    limit: usize,
) -> Result<Vec<TaskUpdate>, TaskStoreError> {
    let read = log.tail(&stream_of(id), cursor.next(), limit).await?;
    decoded(id, read)
}

fn decoded(
    id: &TaskId,
    read: Vec<(Version, RecordBytes)>,
) -> Result<Vec<TaskUpdate>, TaskStoreError> {
    read.into_iter()
        .map(|(version, bytes)| {
            let record = decode(&bytes).map_err(|source| TaskStoreError::Unreadable {
                id: id.clone(),
                version,
                source: Arc::new(source),
            })?;
            Ok(TaskUpdate {
                version,
                record: Arc::new(record),
            })
        })
        .collect()
}

/// Computes a task from all its records. `None` if there are no records.
pub(crate) async fn read_task(
    log: &dyn Log,
    id: &TaskId,
) -> Result<Option<(Version, Arc<Task>)>, TaskStoreError> {
    let (mut version, mut task) = (Version(0), None);
    loop {
        let (updates, is_last) = read_batch(log, id, version).await?;
        for update in updates {
            version = update.version;
            apply(id, version, &mut task, &update.record)?;
        }
        if is_last {
            return Ok(task.map(|task| (version, task)));
        }
    }
}

/// Reads the records after a cursor. The flag is true if this read reached the end of the log.
async fn read_batch(
    log: &dyn Log,
    id: &TaskId,
    cursor: Version,
) -> Result<(Vec<TaskUpdate>, bool), TaskStoreError> {
    let read = log
        .read(&stream_of(id), cursor.next(), READ_LEN_MAX)
        .await?;
    let bytes: usize = read.iter().map(|(_, record)| record.len()).sum();
    // An empty read cannot be the criterion: if records arrive as fast as this process reads them, no read is empty.
    let is_last = read.len() < READ_LEN_MAX && bytes < READ_BYTES_MIN;
    Ok((decoded(id, read)?, is_last))
}

/// Returns the task from its feed, the copy in memory. If the feed has no task, reads the task from the log and stores
/// it in the feed.
pub(crate) async fn current_task(
    log: &dyn Log,
    id: &TaskId,
    feed: &TaskFeed,
) -> Result<Option<(Version, Arc<Task>)>, TaskStoreError> {
    if let Some(current) = feed.current() {
        return Ok(Some(current));
    }
    if let Some((version, task)) = read_task(log, id).await? {
        feed.set_read(version, &task);
    }
    Ok(feed.current())
}

fn apply(
    id: &TaskId,
    version: Version,
    task: &mut Option<Arc<Task>>,
    record: &TaskRecord,
) -> Result<(), TaskStoreError> {
    Task::apply(task, record).map_err(|source| TaskStoreError::Illegal {
        id: id.clone(),
        version,
        source,
    })
}

/// The only writer of a task. The writer checks each record against the state of the task and appends the record.
/// Durable records are then published.
#[derive(Debug)]
pub(crate) struct TaskStream {
    id: TaskId,
    writer: StreamWriter,
    task: Option<Arc<Task>>,
    unconfirmed: Option<UnconfirmedRecords>,
    /// Version at which this writer has found records of another writer. From then on, this writer appends nothing.
    fenced_at: Option<Version>,
    feed: Arc<TaskFeed>,
}

/// Records of an append that the store has not confirmed. The append may not be sent yet.
#[derive(Debug)]
struct UnconfirmedRecords {
    records: Vec<Arc<TaskRecord>>,
    /// The task after these records; `None` until they are sent.
    task: Option<Arc<Task>>,
}

impl TaskStream {
    /// Creates a writer for a task that is new or was not read yet.
    pub(crate) fn new(log: Arc<dyn Log>, id: TaskId, feed: Arc<TaskFeed>) -> Self {
        Self {
            writer: StreamWriter::new(log, stream_of(&id), Version(0)),
            id,
            task: None,
            unconfirmed: None,
            fenced_at: None,
            feed,
        }
    }

    /// Creates a writer for a task that was read at this version.
    pub(crate) fn after(log: Arc<dyn Log>, version: Version, task: &Arc<Task>) -> Self {
        let mut stream = Self::new(log, task.id.clone(), Arc::default());
        stream.feed.set_read(version, task);
        stream.continue_after(Some((version, Arc::clone(task))));
        stream
    }

    /// Reads the task before the first append, unless the feed already has the task.
    pub(crate) async fn load(&mut self) -> Result<(), TaskStoreError> {
        let log = Arc::clone(self.writer.log());
        let current = current_task(&*log, &self.id, &self.feed).await?;
        self.continue_after(current);
        Ok(())
    }

    /// Reads the task again, for this writer and for all readers. Drops the unconfirmed records, because the log shows
    /// whether they were stored.
    pub(crate) async fn reload(&mut self) -> Result<(), TaskStoreError> {
        self.feed.forget();
        let log = Arc::clone(self.writer.log());
        let read = read_task(&*log, &self.id).await?;
        if let Some((version, task)) = &read {
            self.feed.set_read(*version, task);
        }
        self.continue_after(read);
        Ok(())
    }

    fn continue_after(&mut self, current: Option<(Version, Arc<Task>)>) {
        if let Some((version, task)) = current {
            let log = Arc::clone(self.writer.log());
            self.writer = StreamWriter::new(log, stream_of(&self.id), version);
            self.task = Some(task);
            self.unconfirmed = None;
            self.fenced_at = None;
        }
    }

    /// True if the store may contain records that this writer has not read.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_fenced() || !self.writer.is_settled()
    }

    /// True if another process has taken over the writing of the task.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced_at.is_some()
    }

    /// True if the store has not confirmed all records yet.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        self.unconfirmed.is_some()
    }

    pub(crate) fn id(&self) -> &TaskId {
        &self.id
    }

    pub(crate) fn feed(&self) -> &Arc<TaskFeed> {
        &self.feed
    }

    /// Number of the last confirmed record.
    pub(crate) fn version(&self) -> Version {
        self.writer.version()
    }

    /// The task after the last confirmed record.
    pub(crate) fn task(&self) -> Option<&Arc<Task>> {
        self.task.as_ref()
    }

    /// Appends all of the records or nothing. The records of an unconfirmed append are stored first. Stop requests and
    /// late receipts of other processes may come before these records. A worker writes a late receipt after it has lost
    /// the task.
    ///
    /// # Cancel safety
    /// If the call is dropped, its records may be stored or not. The next call completes the append.
    pub(crate) async fn append(&mut self, records: Vec<TaskRecord>) -> Result<(), TaskStoreError> {
        self.settle().await?;
        if records.is_empty() {
            return Ok(());
        }
        let records = records.into_iter().map(Arc::new).collect();
        self.unconfirmed = Some(UnconfirmedRecords {
            records,
            task: None,
        });
        self.settle().await
    }

    /// Completes an unconfirmed append.
    pub(crate) async fn settle(&mut self) -> Result<(), TaskStoreError> {
        self.check_fence()?;
        while let Some(unconfirmed) = &mut self.unconfirmed {
            let before = self.writer.version();
            let written =
                if self.writer.is_settled() {
                    let mut task = self.task.clone();
                    let checked = (before.0 + 1..).zip(&unconfirmed.records).try_for_each(
                        |(number, record)| apply(&self.id, Version(number), &mut task, record),
                    );
                    if let Err(error) = checked {
                        self.unconfirmed = None;
                        return Err(error);
                    }
                    unconfirmed.task = task;
                    let encoded = unconfirmed.records.iter().map(|record| encode(record));
                    caught(self.writer.append(encoded.collect())).await
                } else {
                    caught(self.writer.settle()).await
                };
            match written {
                Ok(_version) => self.publish_confirmed(before),
                Err(StreamWriteError::Indeterminate) => return Err(TaskStoreError::Indeterminate),
                Err(StreamWriteError::Fenced { actual }) => self.read_others(actual).await?,
                Err(StreamWriteError::Refused(error)) => {
                    self.unconfirmed = None;
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Reads records that other processes have written since the last read.
    ///
    /// # Errors
    /// [`TaskStoreError::Fenced`] if other processes have written more than stop requests and late receipts. This
    /// writer then cannot append any more records.
    pub(crate) async fn look(&mut self) -> Result<(), TaskStoreError> {
        self.settle().await?;
        self.read_new().await.map(drop)
    }

    fn check_fence(&self) -> Result<(), TaskStoreError> {
        match self.fenced_at {
            Some(version) => Err(TaskStoreError::Fenced(version)),
            None => Ok(()),
        }
    }

    /// Drops the unconfirmed records, and prevents all later appends of this writer.
    fn fence(&mut self, at: Version) -> TaskStoreError {
        self.unconfirmed = None;
        self.fenced_at = Some(at);
        TaskStoreError::Fenced(at)
    }

    fn publish_confirmed(&mut self, before: Version) {
        if let Some(UnconfirmedRecords {
            records,
            task: Some(task),
        }) = self.unconfirmed.take()
        {
            let numbered = records.into_iter().zip(before.0 + 1..);
            let updates = numbered.map(|(record, number)| TaskUpdate {
                version: Version(number),
                record,
            });
            self.feed.publish(updates.collect(), &task);
            self.task = Some(task);
        }
    }

    /// After a conflict, reads the records of other processes, up to the version of the conflict.
    async fn read_others(&mut self, actual: Version) -> Result<(), TaskStoreError> {
        let before = self.writer.version();
        if let Err(error) = self.read_new().await {
            return Err(match error {
                // The unconfirmed records are kept and sent again later, because this writer must first read the
                // records of the other processes.
                TaskStoreError::Log(_) => TaskStoreError::NoAnswer,
                error => error,
            });
        }
        if self.writer.version() > before {
            return Ok(());
        }
        if actual > before {
            // The server that answered the read does not have the records of the other processes yet.
            return Err(TaskStoreError::NoAnswer);
        }
        // The stream is shorter than this writer expects: it was deleted, or the store has lost records.
        Err(self.fence(actual))
    }

    async fn read_new(&mut self) -> Result<(), TaskStoreError> {
        loop {
            let (log, version) = (Arc::clone(self.writer.log()), self.writer.version());
            let (updates, is_last) = read_batch(&*log, &self.id, version).await?;
            let Some(last) = updates.last().map(|update| update.version) else {
                return Ok(());
            };
            let mut task = self.task.clone();
            for update in &updates {
                if !update.record.is_of_others() {
                    return Err(self.fence(last));
                }
                apply(&self.id, update.version, &mut task, &update.record)?;
            }
            self.writer = StreamWriter::new(log, stream_of(&self.id), last);
            if let Some(task) = &task {
                self.feed.publish(updates, task);
            }
            self.task = task;
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Calls a store that may panic. After a panic, the outcome of the write is unknown.
async fn caught(
    write: impl Future<Output = Result<Version, StreamWriteError>>,
) -> Result<Version, StreamWriteError> {
    let written = AssertUnwindSafe(write).catch_unwind().await;
    written.unwrap_or(Err(StreamWriteError::Indeterminate))
}
