//! Export and import of all streams as JSON lines.
//!
//! ```text
//! {"schema":"allstop.store/1"}
//! {"stream":"session/01J…","number":1,"record":{…}}
//! ```
//!
//! The lines of a stream follow each other, in the order of the records. A record has exactly the bytes of the store.

use std::io;

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
    for (stream, _) in log.list("").await? {
        // All records are read before the first one is written, so that no stream is cut.
        let mut next = Version(1);
        let mut lines = Vec::new();
        let problem = loop {
            let records = match log.read(&stream, next, BATCH).await {
                Ok(records) => records,
                Err(error) => break Some(error.to_string()),
            };
            let Some((last, _)) = records.last() else {
                break None;
            };
            next = last.next();
            let mut batch = records.iter().map(|(at, body)| line_of(&stream, *at, body));
            match batch.try_for_each(|line| line.map(|line| lines.push(line))) {
                Ok(()) => {}
                Err(error) => break Some(error.to_string()),
            }
        };
        if let Some(problem) = problem {
            report.left_out.push((stream, problem));
            continue;
        }
        for line in &lines {
            write(line)?;
        }
        report.streams += 1;
        report.records += lines.len() as u64;
    }
    Ok(report)
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

/// Appends the records of an export to a log. A stream that exists with other records, or that a process has in use, is
/// left out. An import that was interrupted can be repeated.
///
/// # Cancel safety
/// If the future is dropped, a part of the records is imported.
///
/// # Errors
/// If the text is not an export or the store fails. A part of the records may be imported.
pub async fn import(
    log: &dyn Log,
    lines: &mut (dyn Iterator<Item = io::Result<String>> + Send),
) -> Result<ExchangeReport, ExchangeError> {
    let mut report = ExchangeReport::default();
    let mut ids = AppendIds::new();
    let mut stream: Option<ImportedStream> = None;
    for (number, line) in (1_u64..).zip(lines) {
        let line = line?;
        let wrong = |source| ExchangeError::Line {
            line: number,
            source,
        };
        if number == 1 {
            let header: Header<'_> = serde_json::from_str(&line).map_err(|e| wrong(Some(e)))?;
            if header.schema != SCHEMA {
                return Err(wrong(None));
            }
            continue;
        }
        let parsed: Line<'_> = serde_json::from_str(&line).map_err(|e| wrong(Some(e)))?;
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
    Ok(report)
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
