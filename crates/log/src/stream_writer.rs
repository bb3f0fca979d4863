//! Writes the appends of one writer to one stream, one append at a time.
//!
//! Invariants:
//! 1. If an append was dropped or its answer was lost, it is first settled: it is sent again with its id until the
//!    result is known. Only then is the next append sent.
//! 2. The version changes only when an append is confirmed.

use std::fmt;
use std::sync::Arc;

use crate::{AppendError, AppendId, AppendIds, Log, LogError, RecordBytes, StreamName, Version};

/// Maximum number of attempts of an append in one call. The second attempt is for a short failure of the store, and the
/// third attempt for a restart of the store. If the store does not answer, the caller decides whether to wait longer.
const SETTLE_TRIES_MAX: u32 = 3;

/// The only writer of a stream.
pub struct StreamWriter {
    log: Arc<dyn Log>,
    stream: StreamName,
    version: Version,
    ids: AppendIds,
    pending: Option<UnconfirmedAppend>,
}

/// An append that was sent but not answered.
struct UnconfirmedAppend {
    id: AppendId,
    records: Vec<RecordBytes>,
    /// True if the append was already sent once, so that the store may have written it. In this case a store error no
    /// longer proves that the append is not written.
    may_be_written: bool,
}

/// Reason why an append is not confirmed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StreamWriteError {
    /// Another writer has appended. Nothing was written.
    #[error("another writer has appended (version {actual})")]
    Fenced {
        /// Present version of the stream.
        actual: Version,
    },
    /// The store has not answered. [`StreamWriter::settle`] sends the append again.
    #[error("the store has not confirmed the append")]
    Indeterminate,
    /// The store failed. Nothing was written.
    #[error(transparent)]
    Refused(#[from] LogError),
}

impl StreamWriter {
    /// A writer of a stream at this version.
    pub fn new(log: Arc<dyn Log>, stream: StreamName, version: Version) -> Self {
        Self {
            log,
            stream,
            version,
            ids: AppendIds::new(),
            pending: None,
        }
    }

    /// Appends records, completely or not at all.
    ///
    /// **Cancel safety**: if the future is dropped, the append may have happened. The next [`StreamWriter::settle`]
    /// determines the result.
    ///
    /// # Panics
    /// Panics in debug builds if an earlier append is not settled.
    pub async fn append(&mut self, records: Vec<RecordBytes>) -> Result<Version, StreamWriteError> {
        debug_assert!(self.is_settled(), "one append at a time");
        self.pending = Some(UnconfirmedAppend {
            id: self.ids.next_id(),
            records,
            may_be_written: false,
        });
        self.settle().await
    }

    /// Settles an append that was dropped or whose answer was lost. Returns the version.
    ///
    /// **Cancel safety**: the same as for [`StreamWriter::append`].
    pub async fn settle(&mut self) -> Result<Version, StreamWriteError> {
        for _ in 0..SETTLE_TRIES_MAX {
            let Some(pending) = &mut self.pending else {
                return Ok(self.version);
            };
            // Set this before the answer arrives, because the caller may stop waiting for the answer.
            let asked_before = std::mem::replace(&mut pending.may_be_written, true);
            let (id, records) = (pending.id, pending.records.clone());
            let answer = self.log.append(&self.stream, self.version, id, records);
            match answer.await {
                Ok(version) => {
                    self.pending = None;
                    self.version = version;
                }
                Err(AppendError::Indeterminate) => {}
                Err(AppendError::Log(_)) if asked_before => {}
                Err(AppendError::Conflict { actual }) => {
                    self.pending = None;
                    return Err(StreamWriteError::Fenced { actual });
                }
                Err(AppendError::Log(error)) => {
                    self.pending = None;
                    return Err(error.into());
                }
            }
        }
        if self.is_settled() {
            return Ok(self.version);
        }
        Err(StreamWriteError::Indeterminate)
    }

    /// True if the store has answered every append.
    pub fn is_settled(&self) -> bool {
        self.pending.is_none()
    }

    /// Number of the last confirmed record.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The stream.
    pub fn stream(&self) -> &StreamName {
        &self.stream
    }

    /// The log.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }
}

impl fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWriter")
            .field("stream", &self.stream)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
