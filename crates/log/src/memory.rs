//! The log in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use allstop_core::process::ProcessIdentity;
use allstop_process::this_process;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::lock::{LockAttempt, StreamLock};
use crate::{AppendError, AppendId, Log, LogError, LogFuture, RecordBytes, StreamName, Version};

/// A log that exists until this value and all its clones are dropped. This log is meant for tests, and for programs
/// without storage. Clones share the log.
///
/// All results are available immediately, except the results of a tail. An append happens in the call of the method,
/// not when the future is polled.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    shared: Arc<Mutex<MemoryStreams>>,
}

#[derive(Debug, Default)]
struct MemoryStreams {
    /// Sorted by name, so that lists are sorted.
    streams: BTreeMap<StreamName, MemoryStream>,
    locked: BTreeSet<StreamName>,
    /// Number of appends to all streams.
    appends: u64,
}

#[derive(Debug, Default)]
struct MemoryStream {
    /// Record `n` is at index `n - 1`. Each record has the id of its append.
    records: Vec<(AppendId, RecordBytes)>,
    /// Number of the last append, counted over all streams.
    last_append: u64,
    /// Notifies the waiting tails (reads that wait for new records), which hold this value. If no tail waits, an append
    /// has no extra cost, and an empty stream can be removed.
    grown: Weak<Notify>,
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }
}

impl MemoryStream {
    fn version(&self) -> Version {
        Version(self.records.len() as u64)
    }

    fn append(
        &mut self,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
        appends: &mut u64,
    ) -> Result<Version, AppendError> {
        let actual = self.version();
        if expected != actual {
            // Guarantee 4 of `Log`: if the append was already written, the record after `expected` has the id of the
            // append.
            let written = usize::try_from(expected.0)
                .ok()
                .and_then(|at| self.records.get(at..))
                .map_or(0, |later| {
                    later.iter().take_while(|(by, _)| *by == id).count()
                });
            return match written {
                0 => Err(AppendError::Conflict { actual }),
                count => Ok(Version(expected.0 + count as u64)),
            };
        }
        if !records.is_empty() {
            *appends += 1;
            self.last_append = *appends;
        }
        self.records
            .extend(records.into_iter().map(|record| (id, record)));
        if let Some(grown) = self.grown.upgrade() {
            grown.notify_waiters();
        }
        Ok(self.version())
    }

    fn read(&self, from: Version, limit: usize) -> Vec<(Version, RecordBytes)> {
        let from = from.0.max(1);
        let skip = usize::try_from(from - 1).unwrap_or(usize::MAX);
        let found = self.records.iter().skip(skip).take(limit);
        found
            .zip(from..)
            .map(|((_, record), number)| (Version(number), record.clone()))
            .collect()
    }
}

impl MemoryStreams {
    /// Streams that have records, sorted by name.
    fn listed<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a StreamName, &'a MemoryStream)> {
        self.streams
            .range(StreamName::new(prefix)..)
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
            .filter(|(_, stream)| !stream.records.is_empty())
    }

    fn entry((name, stream): (&StreamName, &MemoryStream)) -> (StreamName, Version) {
        (name.clone(), stream.version())
    }

    fn delete(&mut self, name: &StreamName) {
        if let Some(stream) = self.streams.get_mut(name) {
            // Tails that wait continue to wait, because the stream may get records again.
            stream.records = Vec::new();
            if stream.grown.strong_count() == 0 {
                self.streams.remove(name);
            }
        }
    }
}

impl Log for MemoryLog {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let mut shared = self.shared.lock();
        let MemoryStreams {
            streams, appends, ..
        } = &mut *shared;
        let answer = match streams.get_mut(stream) {
            Some(known) => known.append(expected, id, records, appends),
            None => streams
                .entry(stream.clone())
                .or_default()
                .append(expected, id, records, appends),
        };
        LogFuture::ready(answer)
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let shared = self.shared.lock();
        LogFuture::ready(Ok(shared
            .streams
            .get(stream)
            .map(|s| s.read(from, limit))
            .unwrap_or_default()))
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (shared, stream) = (self.shared.clone(), stream.clone());
        LogFuture::waiting(async move {
            loop {
                let grown = {
                    let mut shared = shared.lock();
                    let known = shared.streams.entry(stream.clone()).or_default();
                    let records = known.read(from, limit);
                    if !records.is_empty() || limit == 0 {
                        return Ok(records);
                    }
                    // The notification is created while the lock is held, so that it receives every later append, even
                    // before its first poll.
                    let grown = known.grown.upgrade().unwrap_or_default();
                    known.grown = Arc::downgrade(&grown);
                    grown.notified_owned()
                };
                grown.await;
            }
        })
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        let shared = self.shared.lock();
        let found = shared.listed(prefix).map(MemoryStreams::entry).collect();
        LogFuture::ready(Ok(found))
    }

    fn list_newest_first(
        &self,
        prefix: &str,
    ) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        let shared = self.shared.lock();
        let mut found: Vec<_> = shared.listed(prefix).collect();
        found.sort_unstable_by_key(|(_, stream)| Reverse(stream.last_append));
        let found = found.into_iter().map(MemoryStreams::entry).collect();
        LogFuture::ready(Ok(found))
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        let free = self.shared.lock().locked.insert(stream.clone());
        LogFuture::ready(Ok(if free {
            let (shared, name) = (self.shared.clone(), stream.clone());
            LockAttempt::Locked(StreamLock::new(stream.clone(), move || {
                shared.lock().locked.remove(&name);
            }))
        } else {
            LockAttempt::HeldBy(Some(this_process().clone()))
        }))
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        let held = self.shared.lock().locked.contains(stream);
        LogFuture::ready(Ok(held.then(|| this_process().clone())))
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        self.shared.lock().delete(lock.stream());
        drop(lock);
        LogFuture::ready(Ok(()))
    }

    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        let mut shared = self.shared.lock();
        let mut gone = Vec::with_capacity(streams.len());
        for (name, expected) in streams {
            let actual = shared.streams.get(&name).map(MemoryStream::version);
            if actual.unwrap_or_default() == expected {
                shared.delete(&name);
                gone.push(name);
            }
        }
        LogFuture::ready(Ok(gone))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn deleted_stream_without_a_waiting_tail_is_removed() {
        let log = MemoryLog::new();
        let name = StreamName::new("s");
        let mut tail = log.tail(&name, Version(1), 1);
        assert!((&mut tail).now_or_never().is_none());
        let delete = |log: &MemoryLog| {
            let lock = log.try_lock(&name).now_or_never();
            let Some(Ok(LockAttempt::Locked(lock))) = lock else {
                panic!("it is free");
            };
            assert!(matches!(log.delete(lock).now_or_never(), Some(Ok(()))));
            log.shared.lock().streams.len()
        };
        assert_eq!(
            delete(&log),
            1,
            "the tail waits for the stream to start again"
        );
        drop(tail);
        assert_eq!(delete(&log), 0);
    }
}
