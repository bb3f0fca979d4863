//! Export and import of all streams as JSON lines.
//!
//! ```text
//! {"schema":"allstop.store/1"}
//! {"stream":"session/01J…","number":1,"record":{…}}
//! {"records":1}
//! ```
//!
//! The lines of a stream follow each other, in the order of the records. A record has exactly the bytes of the store. The
//! stream with the newest record comes last, so that an import into an empty store keeps this order. The last line shows
//! that no line after it is missing.

use std::{fmt, io};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    AppendError, AppendId, AppendIds, LockAttempt, Log, LogError, RecordBytes, StreamName, Version,
};

const SCHEMA: &str = "allstop.store/1";
/// Number of records in one read or append.
const BATCH: usize = 256;

/// Reason why an export or an import failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The store failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An append to the store failed.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The file cannot be read or written.
    #[error("the file cannot be read or written")]
    File(#[from] io::Error),
    /// The stream was removed while it was exported.
    #[error("{0} was removed during the export: export again")]
    Removed(StreamName),
    /// The last lines of the text are missing.
    #[error(
        "the end of the export is missing: the complete lines were imported, and the last session or task may be cut"
    )]
    Incomplete,
    /// The text is not an export.
    #[error("line {line} is not a record of an export")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// The cause, if the line is not JSON.
        #[source]
        source: Option<serde_json::Error>,
    },
}

/// Result of an export or an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExchangeReport {
    /// Number of streams of which records were written. They are complete.
    pub streams: u64,
    /// Number of streams that an import has found complete.
    pub present: u64,
    /// Number of records that were written.
    pub records: u64,
    /// Streams that were left out, with the reason.
    pub left_out: Vec<(StreamName, String)>,
}

#[derive(Serialize, Deserialize)]
struct Header<'a> {
    schema: &'a str,
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct End {
    records: u64,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    stream: &'a str,
    number: u64,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// Writes all streams of a log, one line after another. A stream that cannot be read is left out.
///
/// # Cancel safety
/// If the future is dropped, the text is not complete.
///
/// # Errors
/// If the store fails or a line cannot be written.
pub async fn export(
    log: &dyn Log,
    write: &mut (dyn FnMut(&str) -> io::Result<()> + Send),
) -> Result<ExchangeReport, ExchangeError> {
    write(&text_of(&Header { schema: SCHEMA })?)?;
    let mut report = ExchangeReport::default();
    for (stream, version) in log.list_newest_first("").await?.into_iter().rev() {
        // The first pass only finds unreadable records, so that no stream is cut, and no stream is held in memory.
        match visit(log, &stream, version, &mut |_| Ok(())).await {
            Ok(_) => {}
            Err(error) => {
                report.left_out.push((stream, error.to_string()));
                continue;
            }
        }
        let written = visit(log, &stream, version, write).await?;
        if written < version.0 {
            return Err(ExchangeError::Removed(stream));
        }
        report.streams += 1;
        report.records += written;
    }
    let records = report.records;
    write(&text_of(&End { records })?)?;
    Ok(report)
}

/// Calls `line` with the line of each record up to number `version`. Returns the number of records.
async fn visit(
    log: &dyn Log,
    stream: &StreamName,
    version: Version,
    line: &mut (dyn FnMut(&str) -> io::Result<()> + Send),
) -> Result<u64, ExchangeError> {
    let mut last = Version(0);
    while last < version {
        let left = usize::try_from(version.0 - last.0).unwrap_or(BATCH);
        let records = log.read(stream, last.next(), BATCH.min(left)).await?;
        if records.is_empty() {
            break;
        }
        for (at, body) in records {
            line(&line_of(stream, at, &body)?)?;
            last = at;
        }
    }
    Ok(last.0)
}

fn line_of(stream: &StreamName, at: Version, body: &RecordBytes) -> Result<String, ExchangeError> {
    let record: &RawValue = serde_json::from_slice(body).map_err(io::Error::other)?;
    text_of(&Line {
        stream: stream.as_str(),
        number: at.0,
        record,
    })
}

fn text_of(line: &impl Serialize) -> Result<String, ExchangeError> {
    let mut text = serde_json::to_string(line).map_err(io::Error::other)?;
    text.push('\n');
    Ok(text)
}

/// The lines of an export whose first line was checked.
pub struct ExportLines<'a> {
    lines: &'a mut (dyn Iterator<Item = io::Result<String>> + Send),
}

impl<'a> ExportLines<'a> {
    /// Reads the first line. So a text that is not an export is refused before a store is created for it.
    ///
    /// # Errors
    /// If the first line cannot be read, or is not that of an export.
    pub fn new(
        lines: &'a mut (dyn Iterator<Item = io::Result<String>> + Send),
    ) -> Result<Self, ExchangeError> {
        let wrong = |source| ExchangeError::Line { line: 1, source };
        let first = lines.next().transpose()?.unwrap_or_default();
        let header: Header<'_> = serde_json::from_str(&first).map_err(|e| wrong(Some(e)))?;
        if header.schema == SCHEMA {
            Ok(Self { lines })
        } else {
            Err(wrong(None))
        }
    }
}

impl fmt::Debug for ExportLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportLines").finish_non_exhaustive()
    }
}

/// Appends the records of an export to a log. A stream that exists with other records, or that a process has in use, is
/// left out. An import that was interrupted can be repeated.
///
/// # Cancel safety
/// If the future is dropped, a part of the records is imported.
///
/// # Errors
/// If the text is not an export, its end is missing, or the store fails. A part of the records may be imported.
pub async fn import(
    log: &dyn Log,
    export: ExportLines<'_>,
) -> Result<ExchangeReport, ExchangeError> {
    let mut report = ExchangeReport::default();
    let mut ids = AppendIds::new();
    let mut stream: Option<ImportedStream> = None;
    let mut is_ended = false;
    for (number, line) in (2_u64..).zip(export.lines) {
        let line = line?;
        let wrong = |source| ExchangeError::Line {
            line: number,
            source,
        };
        if is_ended {
            return Err(wrong(None));
        }
        let parsed: Line<'_> = match serde_json::from_str(&line) {
            Ok(parsed) => parsed,
            Err(_)
                if serde_json::from_str::<End>(&line)
                    .is_ok_and(|end| end.records == number - 2) =>
            {
                is_ended = true;
                continue;
            }
            // The rest of the stream and of the text is missing.
            Err(error) if error.is_eof() => break,
            Err(error) => return Err(wrong(Some(error))),
        };
        if stream
            .as_ref()
            .is_none_or(|open| open.name.as_str() != parsed.stream)
        {
            if let Some(ended) = stream.take() {
                ended.end(log, &mut ids, &mut report).await?;
            }
            stream = Some(ImportedStream::begin(log, parsed.stream).await?);
        }
        if let Some(open) = &mut stream
            && !open.add(log, &mut ids, &parsed, &mut report).await?
        {
            return Err(wrong(None));
        }
    }
    if let Some(ended) = stream {
        ended.end(log, &mut ids, &mut report).await?;
    }
    if is_ended {
        Ok(report)
    } else {
        Err(ExchangeError::Incomplete)
    }
}

/// A stream during its import.
struct ImportedStream {
    name: StreamName,
    /// Held until the stream is complete. `None` if another process has the stream in use.
    lock: Option<crate::StreamLock>,
    /// Reason why the stream is left out.
    problem: Option<String>,
    /// Records that the store had before.
    present: Vec<(Version, RecordBytes)>,
    /// Number of the last record that was read from the text.
    read: Version,
    /// Number of the last record in the store.
    written: Version,
    batch: Vec<RecordBytes>,
    /// True if records were written.
    is_changed: bool,
}

impl ImportedStream {
    async fn begin(log: &dyn Log, name: &str) -> Result<Self, ExchangeError> {
        let name = StreamName::new(name);
        let lock = match log.try_lock(&name).await? {
            LockAttempt::Locked(lock) => Some(lock),
            LockAttempt::HeldBy(_) => None,
        };
        let problem = lock.is_none().then(|| "a process has it in use".to_owned());
        Ok(Self {
            name,
            lock,
            problem,
            present: Vec::new(),
            read: Version(0),
            written: Version(0),
            batch: Vec::new(),
            is_changed: false,
        })
    }

    /// Adds a record. Returns false if its number does not follow the number before.
    async fn add(
        &mut self,
        log: &dyn Log,
        ids: &mut AppendIds,
        line: &Line<'_>,
        report: &mut ExchangeReport,
    ) -> Result<bool, ExchangeError> {
        if Version(line.number) != self.read.next() {
            return Ok(false);
        }
        self.read = Version(line.number);
        if self.problem.is_some() {
            return Ok(true);
        }
        let body = line.record.get().as_bytes();
        match self.present_at(log, self.read).await? {
            Some(present) if present[..] == *body => self.written = self.read,
            Some(_) => self.problem = Some("it exists with other records".to_owned()),
            None => {
                self.batch.push(RecordBytes::copy_from_slice(body));
                if self.batch.len() >= BATCH {
                    self.write(log, ids, report).await?;
                }
            }
        }
        Ok(true)
    }

    /// The record that the store had at this position before the import.
    async fn present_at(
        &mut self,
        log: &dyn Log,
        at: Version,
    ) -> Result<Option<RecordBytes>, LogError> {
        if !self.batch.is_empty() {
            return Ok(None);
        }
        let is_read = |(number, _): &(Version, RecordBytes)| *number == at;
        if !self.present.iter().any(is_read) && self.written.next() == at {
            self.present = log.read(&self.name, at, BATCH).await?;
        }
        let found = self.present.iter().find(|record| is_read(record));
        Ok(found.map(|(_, body)| body.clone()))
    }

    async fn write(
        &mut self,
        log: &dyn Log,
        ids: &mut AppendIds,
        report: &mut ExchangeReport,
    ) -> Result<(), ExchangeError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        let (len, id): (u64, AppendId) = (batch.len() as u64, ids.next_id());
        let mut appended = log
            .append(&self.name, self.written, id, batch.clone())
            .await;
        if matches!(appended, Err(AppendError::Indeterminate)) {
            appended = log.append(&self.name, self.written, id, batch).await;
        }
        self.written = appended?;
        self.is_changed = true;
        report.records += len;
        Ok(())
    }

    async fn end(
        mut self,
        log: &dyn Log,
        ids: &mut AppendIds,
        report: &mut ExchangeReport,
    ) -> Result<(), ExchangeError> {
        if self.problem.is_none() {
            self.write(log, ids, report).await?;
        }
        match self.problem {
            Some(problem) => report.left_out.push((self.name, problem)),
            None if self.is_changed => report.streams += 1,
            None => report.present += 1,
        }
        drop(self.lock);
        Ok(())
    }
}
