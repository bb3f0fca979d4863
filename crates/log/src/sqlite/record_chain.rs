//! Chain of a stream's records. Each row contains the id of the row with the previous record.
//!
//! Rows of one stream are mostly next to each other, so in both directions the chain can be read with a scan. If there
//! are a few rows of other streams in between, the scan skips them one by one. If there are many such rows, the scan
//! seeks to the next row of the stream. Without rows of other streams, a scan takes half a microsecond per record.
//!
//! Each row has a checksum, which is compared when the body is read. So a changed bit is an error, and not a wrong record.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Row};
use twox_hash::XxHash3_64;

use crate::{RecordBytes, Version};

/// Maximum number of rows of other streams that a scan skips before it seeks. A seek takes as long as about ten skipped
/// rows.
const STEPS_MAX: u32 = 16;

/// End of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamEnd {
    pub(super) id: i64,
    pub(super) version: Version,
    /// Row of the stream's last record; 0 if the stream is empty.
    pub(super) last_record: i64,
    pub(super) name: NameHash,
}

/// Hash of a stream's name, for the checksums. The id of a stream is not enough: in a file that was mixed from two stores,
/// one id can stand for two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameHash(u64);

impl NameHash {
    pub(super) fn of(name: &str) -> Self {
        Self(XxHash3_64::oneshot(name.as_bytes()))
    }
}

/// Error of a search or a read.
#[derive(Debug)]
pub(super) enum ChainError {
    /// This record of the stream is missing or damaged.
    Damaged(Version),
    Sqlite(rusqlite::Error),
}

impl ChainError {
    /// True if the records are damaged, or the pages that contain them. Other streams may be readable.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt),
        }
    }
}

impl From<rusqlite::Error> for ChainError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Checksum of a record. The append and the position are included, so that the row of another record is noticed.
pub(super) fn checksum(stream: NameHash, number: u64, append_id: &[u8], body: &[u8]) -> i64 {
    let place = XxHash3_64::oneshot_with_seed(stream.0.wrapping_add(number), append_id);
    XxHash3_64::oneshot_with_seed(place, body).cast_signed()
}

/// Rows of consecutive records of a stream, in the order of the records.
#[derive(Debug)]
pub(super) struct RecordChain {
    stream: i64,
    name: NameHash,
    first: Version,
    rows: Vec<i64>,
    /// Bodies of the records, the last record first. `None` if the bodies do not all fit into the requested size.
    bodies: Option<Vec<RecordBytes>>,
}

impl RecordChain {
    /// Finds the rows of a stream's records from number `from` to the end. The search starts at the end and goes
    /// backwards. If the search finds a row of another stream or a row with a wrong number, the store is damaged. Also
    /// reads the bodies, up to `bytes_max` bytes in total.
    ///
    /// Call this function in a transaction.
    pub(super) fn walk_back(
        connection: &Connection,
        end: StreamEnd,
        from: Version,
        bytes_max: usize,
    ) -> Result<Self, ChainError> {
        let first = from.0.max(1);
        let len = usize::try_from((end.version.0 + 1).saturating_sub(first)).unwrap_or_default();
        // If the version is damaged and far too large, the function must not allocate all memory.
        let mut rows = Vec::with_capacity(len.min(1 << 16));
        let mut scan = connection.prepare_cached(
            "SELECT id, stream, number, previous, append_id, checksum, body FROM records WHERE id <= ?1 \
             ORDER BY id DESC",
        )?;
        let (mut bodies, mut bytes) = ((bytes_max > 0).then(Vec::new), 0);
        let mut row = end.last_record;
        while rows.len() < len {
            let mut scanned = scan.query([row])?;
            let mut steps = 0;
            while rows.len() < len && steps <= STEPS_MAX {
                let number = end.version.0 - rows.len() as u64;
                let Some(found) = scanned.next()? else {
                    return Err(ChainError::Damaged(Version(number)));
                };
                match found.get::<_, i64>(0)? {
                    id if id > row => steps += 1,
                    id if id == row => {
                        rows.push(row);
                        row = found.get(3)?;
                        steps = 0;
                        if let Some(read) = &mut bodies {
                            let body = body_of(found, (end.id, end.name), number)?;
                            bytes += body.len();
                            if bytes <= bytes_max {
                                read.push(RecordBytes::copy_from_slice(body));
                            } else {
                                bodies = None;
                            }
                        } else if !is_record(found, end.id, number)? {
                            return Err(ChainError::Damaged(Version(number)));
                        }
                    }
                    _ => return Err(ChainError::Damaged(Version(number))),
                }
            }
        }
        rows.reverse();
        Ok(Self {
            stream: end.id,
            name: end.name,
            first: Version(first),
            rows,
            bodies,
        })
    }

    /// True if a new search from this end back to this record would find the same rows.
    pub(super) fn reaches(&self, end: StreamEnd, from: Version) -> bool {
        (self.stream, self.name) == (end.id, end.name)
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

    /// Reads records from number `from`. Reads at most `limit` records, and after the first record at most `bytes_max`
    /// bytes.
    ///
    /// Call this function in a transaction. This may be another transaction than the transaction of the search, because
    /// each row is checked again.
    pub(super) fn read(
        &self,
        connection: &Connection,
        from: Version,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, ChainError> {
        let wanted = self.rows_from(from);
        let wanted = wanted.get(..limit).unwrap_or(wanted);
        let mut records = Vec::with_capacity(wanted.len());
        let mut bytes = 0;
        let mut scan = connection.prepare_cached(
            "SELECT id, stream, number, previous, append_id, checksum, body FROM records WHERE id >= ?1 \
             ORDER BY id",
        )?;
        while let Some(row) = wanted.get(records.len()) {
            let mut scanned = scan.query([row])?;
            let mut steps = 0;
            while let Some(row) = wanted.get(records.len())
                && steps <= STEPS_MAX
            {
                let number = from.0 + records.len() as u64;
                let Some(found) = scanned.next()? else {
                    return Err(ChainError::Damaged(Version(number)));
                };
                match found.get::<_, i64>(0)? {
                    id if id < *row => steps += 1,
                    id if id == *row => {
                        let body = body_of(found, (self.stream, self.name), number)?;
                        bytes += body.len();
                        if bytes > bytes_max && !records.is_empty() {
                            return Ok(records);
                        }
                        records.push((Version(number), RecordBytes::copy_from_slice(body)));
                        steps = 0;
                    }
                    _ => return Err(ChainError::Damaged(Version(number))),
                }
            }
        }
        Ok(records)
    }
}

/// True if this row is the record with this number in this stream. The second column of the row is the stream, and the
/// third column is the number.
fn is_record(found: &Row<'_>, stream: i64, number: u64) -> rusqlite::Result<bool> {
    Ok(found.get::<_, i64>(1)? == stream && found.get::<_, i64>(2)?.cast_unsigned() == number)
}

/// Body of the record with this number in this stream. The checksum also proves the number and the stream, so they are
/// only compared in a row without a checksum. Such a row was written by an earlier version.
fn body_of<'a>(
    found: &'a Row<'_>,
    (stream, name): (i64, NameHash),
    number: u64,
) -> Result<&'a [u8], ChainError> {
    let damaged = |_| ChainError::Damaged(Version(number));
    let body = found.get_ref(6)?.as_blob().map_err(damaged)?;
    let is_intact = match found.get_ref(5)? {
        ValueRef::Null => is_record(found, stream, number)?,
        ValueRef::Integer(expected) => {
            let append_id = found.get_ref(4)?.as_blob().map_err(damaged)?;
            expected == checksum(name, number, append_id, body)
        }
        _ => false,
    };
    if is_intact {
        Ok(body)
    } else {
        Err(ChainError::Damaged(Version(number)))
    }
}
