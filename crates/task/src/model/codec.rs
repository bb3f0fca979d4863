//! Format of a stored record of a task: JSON with the format version first, `{"v":1,"type":"task_created",…}`.

use allstop_log::RecordBytes;
use serde::{Deserialize, Serialize};

use super::record::TaskRecord;

/// Newest format version. This program reads this version and all earlier versions. Each record is written in the
/// lowest version that contains this type of record. Increase the number if an old reader would misread a new record.
/// New optional fields do not need a new number.
const FORMAT: u32 = 2;

/// Reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskRecordError {
    /// A newer version of Allstop wrote the record.
    #[error(
        "the record has format {0}; this version reads up to {FORMAT}: use the newer version of Allstop"
    )]
    Newer(u32),
    /// The bytes are not a record of any version.
    #[error("the record is invalid: restore the store from a backup")]
    Malformed(#[source] serde_json::Error),
}

#[derive(Serialize)]
struct StoredRecord<'a> {
    v: u32,
    #[serde(flatten)]
    record: &'a TaskRecord,
}

#[derive(Deserialize)]
struct StoredFormat {
    v: u32,
}

pub(crate) fn encode(record: &TaskRecord) -> RecordBytes {
    let v = match record {
        TaskRecord::LateReceipt { .. } => 2,
        _ => 1,
    };
    let stored = StoredRecord { v, record };
    serde_json::to_vec(&stored)
        .expect("a record is plain data with text keys")
        .into()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<TaskRecord, TaskRecordError> {
    serde_json::from_slice(bytes).map_err(|error| match serde_json::from_slice(bytes) {
        Ok(StoredFormat { v }) if v > FORMAT => TaskRecordError::Newer(v),
        _ => TaskRecordError::Malformed(error),
    })
}
