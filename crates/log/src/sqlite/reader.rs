//! The thread that reads records, takes locks and releases locks. The thread never waits for a writer, neither in this
//! process nor in another process.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;
use std::thread::park_timeout;

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::classify::sqlite_error;
use super::connection::{DAMAGE_PAUSE, OpenStore};
use super::files::OpenFiles;
use super::lock_folder::LockFolder;
use super::open_mark::OpenMark;
use super::record_chain::{ChainError, RecordChain};
use super::streams::find;
use crate::{LogError, RecordBytes, StreamName, Version};

/// Maximum number of bytes in one read. Only a single record may be longer. Long sessions are read in parts, so that a
/// reader does not need memory for a whole session.
const READ_BYTES_MAX: usize = 16 << 20;

/// Maximum number of records whose bodies are read while the rows are searched back from the end. With more records,
/// the bodies would not fit into one result, and would be read twice.
const AT_ONCE_LEN_MAX: u64 = READ_BYTES_MAX as u64 / 128;

/// A task for the reader. The task itself sends the answer to the caller.
pub(super) type ReadJob = Box<dyn FnOnce(&mut StoreReader) + Send>;

pub(super) struct StoreReader {
    connection: Connection,
    files: OpenFiles,
    /// Dropped after the connection.
    _mark: Option<OpenMark>,
    path: Arc<Path>,
    pub(super) locks: LockFolder,
    /// Rows of the stream that was read last, if a part of this stream is unread. With these rows, a long stream that
    /// is read in parts needs only one search back from its end, and not one search for each part.
    unread: Option<RecordChain>,
    closing: bool,
}

impl StoreReader {
    pub(super) fn new(store: OpenStore, path: Arc<Path>) -> Self {
        let OpenStore {
            connection,
            files,
            mark,
        } = store;
        // The path has no symbolic links, so that all processes that open the store use the same locks.
        let locks = LockFolder::beside(files.store());
        Self {
            connection,
            files,
            _mark: mark,
            path,
            locks,
            unread: None,
            closing: false,
        }
    }

    /// Runs until the store is closed or dropped, and the queue is empty.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<ReadJob>) {
        self.locks.remove_left_files();
        while let Some(job) = jobs.blocking_recv() {
            job(&mut self);
            if self.closing {
                jobs.close();
            }
        }
    }

    /// Accepts no more jobs, finishes the queued jobs, and ends.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Returns an error if the open files are no longer the files at the paths of the store.
    pub(super) fn check_files(&self) -> Result<(), LogError> {
        self.files.check(&self.connection)
    }

    pub(super) fn read(
        &mut self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, LogError> {
        let mut read = self.try_read(stream, from, limit);
        // A device that failed for a moment looks like damage.
        if read.as_ref().is_err_and(ChainError::is_damage) {
            park_timeout(DAMAGE_PAUSE);
            read = self.try_read(stream, from, limit);
        }
        read.map_err(|error| error.of_stream(stream).at(&self.path))
    }

    fn try_read(
        &mut self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, ChainError> {
        let Self {
            connection, unread, ..
        } = self;
        let from = Version(from.0.max(1));
        // In this transaction, the search and the read of the bodies see the same state. Dropping the transaction ends
        // it.
        let view = connection.transaction()?;
        let Some(end) = find(&view, stream)? else {
            return Ok(Vec::new());
        };
        // The stream may have been deleted and created again, so the read checks the rows again.
        if let Some(chain) = unread.take_if(|chain| chain.reaches(end, from))
            && let Ok(records) = chain.read(&view, from, limit, READ_BYTES_MAX)
        {
            *unread = Some(chain);
            return Ok(records);
        }
        // If all bodies are wanted, reads them in the same pass.
        let len = (end.version.0 + 1).saturating_sub(from.0);
        let is_all = usize::try_from(len).is_ok_and(|len| len <= limit);
        let at_once = if is_all && len <= AT_ONCE_LEN_MAX {
            READ_BYTES_MAX
        } else {
            0
        };
        let mut chain = RecordChain::walk_back(&view, end, from, at_once)?;
        if let Some(records) = chain.take_records() {
            return Ok(records);
        }
        let records = chain.read(&view, from, limit, READ_BYTES_MAX)?;
        *unread = (records.len() < chain.rows().len()).then_some(chain);
        Ok(records)
    }

    pub(super) fn list(&mut self, prefix: &str) -> Result<Vec<(StreamName, Version)>, LogError> {
        let listed = self.listed(prefix)?.into_iter();
        Ok(listed.map(|(_, name, version)| (name, version)).collect())
    }

    pub(super) fn list_newest_first(
        &mut self,
        prefix: &str,
    ) -> Result<Vec<(StreamName, Version)>, LogError> {
        let mut listed = self.listed(prefix)?;
        listed.sort_unstable_by_key(|(last_record, ..)| Reverse(*last_record));
        let listed = listed.into_iter();
        Ok(listed.map(|(_, name, version)| (name, version)).collect())
    }

    fn listed(&mut self, prefix: &str) -> Result<Vec<(i64, StreamName, Version)>, LogError> {
        self.try_listed(prefix)
            .map_err(|error| sqlite_error(&self.path, error))
    }

    /// The row of each stream's last record, and the stream. Sorted by name.
    fn try_listed(&mut self, prefix: &str) -> rusqlite::Result<Vec<(i64, StreamName, Version)>> {
        let mut found = self.connection.prepare_cached(
            "SELECT name, version, last_record FROM streams WHERE name >= ?1 AND version > 0 ORDER BY name",
        )?;
        let mut rows = found.query([prefix])?;
        let mut streams = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            if !name.starts_with(prefix) {
                break;
            }
            let version = Version(row.get::<_, i64>(1)?.cast_unsigned());
            streams.push((row.get(2)?, StreamName::new(name), version));
        }
        Ok(streams)
    }
}
