//! The writer's cache of streams, and the statements that change streams.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Statement, TransactionBehavior};

use super::classify::StoreError;
use super::record_chain::{ChainError, NameHash, RecordChain, StreamEnd, checksum};
use super::writer::QueuedAppend;
use crate::{AppendError, StreamName, Version};

/// Maximum number of streams in the cache. This is enough for all streams that are in use at the same time, and needs a
/// few megabytes. If there are more streams, the cache is cleared, and each stream then needs one look-up.
const KNOWN_LEN_MAX: usize = 16_384;

/// Adds a record.
pub(super) const INSERT: &str = "INSERT INTO records (stream, number, previous, append_id, checksum, body) \
                                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Ends of the streams that were written recently.
#[derive(Debug, Default)]
pub(super) struct StreamCache {
    known: HashMap<StreamName, StreamEnd>,
    /// Ends that are not yet written to the table. If a group (the appends of one transaction) has two appends to a
    /// stream, the stream appears twice, in order.
    changed: Vec<StreamEnd>,
    /// Counter of SQLite for changes that other connections make.
    data_version: i64,
}

impl StreamCache {
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.changed.clear();
    }

    /// Clears the cache if another connection has written. Call this function in a write transaction, during which no
    /// other connection can write.
    pub(super) fn forget_if_another_wrote(
        &mut self,
        connection: &Connection,
    ) -> rusqlite::Result<()> {
        let now: i64 = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        if now != self.data_version || self.known.len() > KNOWN_LEN_MAX {
            self.forget();
            self.data_version = now;
        }
        Ok(())
    }

    /// Appends in the current transaction with the statement [`INSERT`].
    pub(super) fn append(
        &mut self,
        connection: &Connection,
        insert: &mut Statement<'_>,
        append: &QueuedAppend,
    ) -> Result<Result<Version, AppendError>, StoreError> {
        let end = if let Some(known) = self.known.get_mut(&append.stream) {
            known
        } else {
            let end = match find(connection, &append.stream)? {
                Some(end) => end,
                None if append.expected > Version(0) => {
                    return Ok(Err(AppendError::Conflict { actual: Version(0) }));
                }
                None => create(connection, &append.stream)?,
            };
            self.known.entry(append.stream.clone()).or_insert(end)
        };
        if append.expected != end.version {
            let written = already_written(connection, *end, append);
            return Ok(
                match written.map_err(|error| error.of_stream(&append.stream))? {
                    Some(version) => Ok(version),
                    None => Err(AppendError::Conflict {
                        actual: end.version,
                    }),
                },
            );
        }
        let id = append.id.0.to_be_bytes();
        for record in &append.records {
            let number = end.version.next();
            let row = (
                end.id,
                number.0.cast_signed(),
                end.last_record,
                id,
                checksum(end.name, number.0, &id, record),
                &record[..],
            );
            end.last_record = insert.insert(row)?;
            end.version = number;
        }
        self.changed.push(*end);
        Ok(Ok(end.version))
    }

    pub(super) fn write_versions(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut update = connection
            .prepare_cached("UPDATE streams SET version = ?2, last_record = ?3 WHERE id = ?1")?;
        for end in self.changed.drain(..) {
            update.execute((end.id, end.version.0.cast_signed(), end.last_record))?;
        }
        Ok(())
    }

    /// Deletes streams in a separate transaction. A stream with an expected version is deleted only at this version.
    /// Returns the streams that are gone.
    pub(super) fn delete(
        &mut self,
        connection: &mut Connection,
        streams: &[(StreamName, Option<Version>)],
    ) -> rusqlite::Result<Vec<StreamName>> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut gone = Vec::with_capacity(streams.len());
        for (stream, expected) in streams {
            self.known.remove(stream);
            let end = find(&transaction, stream)?;
            let actual = end.map_or(Version(0), |end| end.version);
            if expected.is_none_or(|expected| expected == actual) {
                if let Some(end) = end {
                    delete_rows(&transaction, end)?;
                }
                gone.push(stream.clone());
            }
        }
        transaction.commit()?;
        Ok(gone)
    }
}

fn delete_rows(connection: &Connection, end: StreamEnd) -> rusqlite::Result<()> {
    match RecordChain::walk_back(connection, end, Version(1), 0) {
        Ok(chain) => {
            let mut delete = connection.prepare_cached("DELETE FROM records WHERE id = ?1")?;
            for record in chain.rows() {
                delete.execute([record])?;
            }
        }
        // Reads all rows of the store.
        Err(ChainError::Damaged(_)) => {
            connection.execute("DELETE FROM records WHERE stream = ?1", [end.id])?;
        }
        Err(ChainError::Sqlite(error)) => return Err(error),
    }
    let mut delete = connection.prepare_cached("DELETE FROM streams WHERE id = ?1")?;
    delete.execute([end.id])?;
    Ok(())
}

/// End of an existing stream.
pub(super) fn find(
    connection: &Connection,
    stream: &StreamName,
) -> rusqlite::Result<Option<StreamEnd>> {
    connection
        .prepare_cached("SELECT id, version, last_record FROM streams WHERE name = ?1")?
        .query_row([stream.as_str()], |row| {
            Ok(StreamEnd {
                id: row.get(0)?,
                version: Version(row.get::<_, i64>(1)?.cast_unsigned()),
                last_record: row.get(2)?,
                name: NameHash::of(stream.as_str()),
            })
        })
        .optional()
}

fn create(connection: &Connection, stream: &StreamName) -> rusqlite::Result<StreamEnd> {
    let id = connection
        .prepare_cached("INSERT INTO streams (name, version, last_record) VALUES (?1, 0, 0)")?
        .insert([stream.as_str()])?;
    Ok(StreamEnd {
        id,
        version: Version(0),
        last_record: 0,
        name: NameHash::of(stream.as_str()),
    })
}

/// If this append was already stored, returns the version that it reached. The append is stored if the record after the
/// expected version has the id of the append.
fn already_written(
    connection: &Connection,
    end: StreamEnd,
    append: &QueuedAppend,
) -> Result<Option<Version>, ChainError> {
    if append.expected > end.version || append.records.is_empty() {
        return Ok(None);
    }
    let first = append.expected.next();
    let mut by_id =
        connection.prepare_cached("SELECT append_id = ?2 FROM records WHERE id = ?1")?;
    let mut reached = None;
    for (number, record) in
        (first.0..).zip(RecordChain::walk_back(connection, end, first, 0)?.rows())
    {
        if !by_id.query_row((record, append.id.0.to_be_bytes()), |row| row.get(0))? {
            break;
        }
        reached = Some(Version(number));
    }
    Ok(reached)
}
