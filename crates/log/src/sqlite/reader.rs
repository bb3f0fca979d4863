//! The thread that reads, and that takes and gives back locks: it never waits for the writer, in this process or in
//! another.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::chain;
use super::classify::sqlite_error;
use super::lock_folder::LockFolder;
use super::streams::find;
use crate::{LogError, RecordBytes, StreamName, Version};

/// Bytes that one read answers with at most (a single record may be longer): a long session is read in parts, so that
/// its size does not become the memory of each reader.
const READ_BYTES_MAX: usize = 16 << 20;

/// Something to do with the store's file, which answers by itself.
pub(super) type Job = Box<dyn FnOnce(&mut Reader) + Send>;

pub(super) struct Reader {
    connection: Connection,
    path: Arc<Path>,
    pub(super) locks: LockFolder,
    closing: bool,
}

impl Reader {
    pub(super) fn new(connection: Connection, path: Arc<Path>) -> Self {
        let locks = LockFolder::beside(&path);
        Self {
            connection,
            path,
            locks,
            closing: false,
        }
    }

    /// Serves until the store is closed or dropped and nothing waits any more.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.blocking_recv() {
            job(&mut self);
            if self.closing {
                jobs.close();
            }
        }
    }

    /// Takes no more, finishes what waits, and ends.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn read(
        &mut self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, LogError> {
        self.try_read(stream, from, limit)
            .map_err(|error| sqlite_error(&self.path, error))
    }

    fn try_read(
        &mut self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> rusqlite::Result<Vec<(Version, RecordBytes)>> {
        // One view of the file for the walk and the bodies; dropping it ends it.
        let view = self.connection.transaction()?;
        let Some(end) = find(&view, stream)? else {
            return Ok(Vec::new());
        };
        let rows = chain::walk_back(&view, end, from)?;
        let mut body = view.prepare_cached("SELECT body FROM records WHERE id = ?1")?;
        let mut records = Vec::new();
        let mut bytes = 0;
        for (row, number) in rows.into_iter().zip(from.0.max(1)..).take(limit) {
            let record: Vec<u8> = body.query_row([row], |found| found.get(0))?;
            bytes += record.len();
            if bytes > READ_BYTES_MAX && !records.is_empty() {
                break;
            }
            records.push((Version(number), record.into()));
        }
        Ok(records)
    }

    pub(super) fn list(&mut self, prefix: &str) -> Result<Vec<(StreamName, Version)>, LogError> {
        self.try_list(prefix)
            .map_err(|error| sqlite_error(&self.path, error))
    }

    fn try_list(&mut self, prefix: &str) -> rusqlite::Result<Vec<(StreamName, Version)>> {
        let mut found = self.connection.prepare_cached(
            "SELECT name, version FROM streams WHERE name >= ?1 AND version > 0 ORDER BY name",
        )?;
        let mut rows = found.query([prefix])?;
        let mut streams = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            if !name.starts_with(prefix) {
                break;
            }
            streams.push((
                StreamName::new(name),
                Version(row.get::<_, i64>(1)?.cast_unsigned()),
            ));
        }
        Ok(streams)
    }
}
