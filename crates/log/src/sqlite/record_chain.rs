//! Chain of a stream's records: each row points to the previous one.
//!
//! Rows of one stream are mostly adjacent, so both directions along the chain are scans. A scan steps over a few rows
//! of other streams, and seeks if there are many. A scan without other rows takes half a microsecond per record.

use rusqlite::{Connection, Row, ffi};

use super::streams::StreamEnd;
use crate::{RecordBytes, Version};

/// Rows of other streams that a scan steps over before it seeks: a seek takes as long as about ten steps.
const STEPS_MAX: u32 = 16;

/// Rows of consecutive records of a stream, in order.
#[derive(Debug)]
pub(super) struct RecordChain {
    stream: i64,
    first: Version,
    rows: Vec<i64>,
    /// Bodies of the records, last record first, if all of them fit into the requested size.
    bodies: Option<Vec<RecordBytes>>,
}

impl RecordChain {
    /// Finds the rows of a stream's records from number `from` to the end, backwards from the end. A row of another
    /// stream or with a wrong number means damage. Also reads the bodies, up to `bytes_max` bytes in total.
    ///
    /// Call this function in a transaction.
    pub(super) fn walk_back(
        connection: &Connection,
        end: StreamEnd,
        from: Version,
        bytes_max: usize,
    ) -> rusqlite::Result<Self> {
        let first = from.0.max(1);
        let len = usize::try_from((end.version.0 + 1).saturating_sub(first)).unwrap_or_default();
        // A damaged version must not allocate all memory.
        let mut rows = Vec::with_capacity(len.min(1 << 16));
        let mut scan = connection.prepare_cached(
            "SELECT id, stream, number, previous, body FROM records WHERE id <= ?1 ORDER BY id DESC",
        )?;
        let (mut bodies, mut bytes) = ((bytes_max > 0).then(Vec::new), 0);
        let mut row = end.last_record;
        while rows.len() < len {
            let mut scanned = scan.query([row])?;
            let mut steps = 0;
            while rows.len() < len && steps <= STEPS_MAX {
                let number = end.version.0 - rows.len() as u64;
                let Some(found) = scanned.next()? else {
                    return Err(damaged(end.id, number));
                };
                match found.get::<_, i64>(0)? {
                    id if id > row => steps += 1,
                    id if id == row && is_record(found, end.id, number)? => {
                        rows.push(row);
                        row = found.get(3)?;
                        steps = 0;
                        if let Some(read) = &mut bodies {
                            let body = found.get_ref(4)?.as_blob()?;
                            bytes += body.len();
                            if bytes <= bytes_max {
                                read.push(RecordBytes::copy_from_slice(body));
                            } else {
                                bodies = None;
                            }
                        }
                    }
                    _ => return Err(damaged(end.id, number)),
                }
            }
        }
        rows.reverse();
        Ok(Self {
            stream: end.id,
            first: Version(first),
            rows,
            bodies,
        })
    }

    /// True if a walk back from this end to this record would find the same rows.
    pub(super) fn reaches(&self, end: StreamEnd, from: Version) -> bool {
        self.stream == end.id
            && self.first.0 + self.rows.len() as u64 == end.version.0 + 1
            && self.rows.last() == Some(&end.last_record)
            && self.first <= from
    }

    fn rows_from(&self, from: Version) -> &[i64] {
        let skipped = from.0.checked_sub(self.first.0);
        let skipped = skipped.and_then(|skipped| usize::try_from(skipped).ok());
        skipped
            .and_then(|skipped| self.rows.get(skipped..))
            .unwrap_or_default()
    }

    pub(super) fn rows(&self) -> &[i64] {
        &self.rows
    }

    /// All records, if `walk_back` has read their bodies.
    pub(super) fn take_records(&mut self) -> Option<Vec<(Version, RecordBytes)>> {
        let bodies = self.bodies.take()?.into_iter().rev();
        Some((self.first.0..).map(Version).zip(bodies).collect())
    }

    /// Reads records from number `from`: at most `limit`, and at most `bytes_max` bytes after the first record.
    ///
    /// Call this function in a transaction. It may be a later one than that of the walk, because each row is checked
    /// again.
    pub(super) fn read(
        &self,
        connection: &Connection,
        from: Version,
        limit: usize,
        bytes_max: usize,
    ) -> rusqlite::Result<Vec<(Version, RecordBytes)>> {
        let wanted = self.rows_from(from);
        let wanted = wanted.get(..limit).unwrap_or(wanted);
        let mut records = Vec::with_capacity(wanted.len());
        let mut bytes = 0;
        let mut scan = connection.prepare_cached(
            "SELECT id, stream, number, body FROM records WHERE id >= ?1 ORDER BY id",
        )?;
        while let Some(row) = wanted.get(records.len()) {
            let mut scanned = scan.query([row])?;
            let mut steps = 0;
            while let Some(row) = wanted.get(records.len())
                && steps <= STEPS_MAX
            {
                let number = from.0 + records.len() as u64;
                let Some(found) = scanned.next()? else {
                    return Err(damaged(self.stream, number));
                };
                match found.get::<_, i64>(0)? {
                    id if id < *row => steps += 1,
                    id if id == *row && is_record(found, self.stream, number)? => {
                        let body = found.get_ref(3)?.as_blob()?;
                        bytes += body.len();
                        if bytes > bytes_max && !records.is_empty() {
                            return Ok(records);
                        }
                        records.push((Version(number), RecordBytes::copy_from_slice(body)));
                        steps = 0;
                    }
                    _ => return Err(damaged(self.stream, number)),
                }
            }
        }
        Ok(records)
    }
}

/// True if this row, whose second and third columns are stream and number, is the record with that number.
fn is_record(found: &Row<'_>, stream: i64, number: u64) -> rusqlite::Result<bool> {
    Ok(found.get::<_, i64>(1)? == stream && found.get::<_, i64>(2)?.cast_unsigned() == number)
}

fn damaged(stream: i64, number: u64) -> rusqlite::Error {
    let why = format!("record {number} of stream {stream} is missing");
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(why))
}
