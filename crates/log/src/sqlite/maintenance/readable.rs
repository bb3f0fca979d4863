//! The readable part of each stream: its records from the first one up to the first damaged one.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::super::classify::is_stopped;
use super::super::record_chain::{NameHash, checksum};

/// Number of rows between two reports of progress.
const ROWS_PER_REPORT: u64 = 1_000;

/// Maximum number of ids that are tried after a damaged page. The search takes seconds, and passes over the ids of
/// millions of deleted records.
const UNREADABLE_IDS_MAX: usize = 10_000_000;

/// A row of the table of records.
pub(super) struct RecordRow {
    pub(super) id: i64,
    pub(super) stream: i64,
    pub(super) number: u64,
    pub(super) previous: i64,
    pub(super) append_id: Vec<u8>,
    pub(super) checksum: Option<i64>,
    pub(super) body: Vec<u8>,
}

const COLUMNS: &str = "id, stream, number, previous, append_id, checksum, body";

impl RecordRow {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            stream: row.get(1)?,
            number: row.get::<_, i64>(2)?.cast_unsigned(),
            previous: row.get(3)?,
            append_id: row.get(4)?,
            checksum: row.get(5)?,
            body: row.get(6)?,
        })
    }

    fn is_intact(&self, stream: NameHash) -> bool {
        let found = checksum(stream, self.number, &self.append_id, &self.body);
        self.checksum.is_none_or(|expected| expected == found)
    }
}

/// Readable part of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReadablePart {
    /// Number of the last readable record.
    pub(super) version: u64,
    /// Row of the last readable record.
    pub(super) last_record: i64,
    is_cut: bool,
}

/// Readable parts of all streams. The rows must be added in the order of their ids.
#[derive(Debug)]
pub(super) struct ReadableParts<'a> {
    parts: HashMap<i64, ReadablePart>,
    streams: &'a HashMap<i64, StreamRow>,
}

impl<'a> ReadableParts<'a> {
    pub(super) fn new(streams: &'a HashMap<i64, StreamRow>) -> Self {
        let parts = HashMap::new();
        Self { parts, streams }
    }

    /// Adds a row. Returns true if the row belongs to the readable part of its stream.
    pub(super) fn add(&mut self, row: &RecordRow) -> bool {
        let part = self.parts.entry(row.stream).or_default();
        let follows = row.number == part.version + 1 && row.previous == part.last_record;
        // Records of an unknown stream are not used.
        let stream = self.streams.get(&row.stream);
        let is_intact = stream.is_none_or(|stream| row.is_intact(stream.name_hash));
        if part.is_cut || !follows || !is_intact {
            part.is_cut = true;
            return false;
        }
        part.version = row.number;
        part.last_record = row.id;
        true
    }

    pub(super) fn of(&self, stream: i64) -> ReadablePart {
        self.parts.get(&stream).copied().unwrap_or_default()
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = i64> {
        self.parts.keys().copied()
    }
}

/// A stream as the table of streams names it.
#[derive(Debug, Clone)]
pub(super) struct StreamRow {
    pub(super) name: String,
    pub(super) name_hash: NameHash,
    /// `None` if only the index of the names is readable.
    pub(super) end: Option<(u64, i64)>,
}

/// Calls `visit` with every readable row, in the order of the ids. If a page cannot be read, the rows around it are read
/// one by one.
pub(super) fn visit_rows(
    connection: &Connection,
    mut visit: impl FnMut(RecordRow) -> rusqlite::Result<()>,
    mut progress: impl FnMut(u64, u64),
) -> rusqlite::Result<()> {
    let last = last_row(connection)?;
    let mut next = 1;
    let sql = format!("SELECT {COLUMNS} FROM records WHERE id >= ?1 ORDER BY id");
    let mut scan = connection.prepare(&sql)?;
    let mut report = |id: i64| {
        let done = id.cast_unsigned();
        if done.is_multiple_of(ROWS_PER_REPORT) {
            progress(done, last.cast_unsigned());
        }
    };
    while next <= last {
        let mut rows = scan.query([next])?;
        // A damaged page ends the scan with an error. A damaged row has columns of another type.
        while let Some(row) = unless_damaged(rows.next())?.flatten() {
            let Some(row) = unless_damaged(RecordRow::of(row))? else {
                break;
            };
            next = row.id + 1;
            report(row.id);
            visit(row)?;
        }
        drop(rows);
        match first_readable(connection, next, last)? {
            Some(id) => next = id,
            None => break,
        }
    }
    Ok(())
}

/// Searches the next readable row, one id after the other.
fn first_readable(connection: &Connection, from: i64, last: i64) -> rusqlite::Result<Option<i64>> {
    let sql = format!("SELECT {COLUMNS} FROM records WHERE id = ?1");
    let mut by_id = connection.prepare(&sql)?;
    for id in (from..=last).take(UNREADABLE_IDS_MAX) {
        let found = by_id.query_row([id], RecordRow::of).optional();
        if unless_damaged(found)?.flatten().is_some() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// `None` for an error that damage can cause.
fn unless_damaged<T>(read: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_stopped(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Largest id of a row. If the last page of the table cannot be read, the table of streams names the last row.
fn last_row(connection: &Connection) -> rusqlite::Result<i64> {
    let max = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
    let by_records = unless_damaged(max("SELECT max(id) FROM records"))?;
    let last = by_records.map_or_else(|| max("SELECT max(last_record) FROM streams"), Ok)?;
    Ok(last.unwrap_or(0))
}

/// Streams by their ids. If pages of the table cannot be read, the names are from the index of the names.
pub(super) fn streams(connection: &Connection) -> rusqlite::Result<HashMap<i64, StreamRow>> {
    let mut streams = HashMap::new();
    let mut add_all = |sql: &str, has_end: bool| -> rusqlite::Result<()> {
        let mut found = connection.prepare(sql)?;
        let mut rows = found.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(1)?;
            let stream = StreamRow {
                name_hash: NameHash::of(&name),
                name,
                end: if has_end {
                    Some((row.get::<_, i64>(2)?.cast_unsigned(), row.get(3)?))
                } else {
                    None
                },
            };
            streams.entry(row.get(0)?).or_insert(stream);
        }
        Ok(())
    };
    let table = add_all(
        "SELECT id, name, version, last_record FROM streams NOT INDEXED",
        true,
    );
    let index = add_all(
        "SELECT id, name FROM streams INDEXED BY sqlite_autoindex_streams_1 ORDER BY name",
        false,
    );
    match (table, index) {
        (Err(error), Err(_)) if streams.is_empty() => Err(error),
        _ => Ok(streams),
    }
}
