//! Check of a whole store.

use std::fmt;
use std::path::Path;

use allstop_core::counted::counted;

use super::super::classify::{is_stopped, sqlite_error};
use super::super::read_only::open_store_or_copy;
use super::readable::{ReadableParts, streams, visit_rows};
use super::stop::MaintenanceStop;
use crate::{LogError, LogErrorKind, StreamName, Version};

/// Maximum number of problems in the structure of the file that are reported.
const FILE_PROBLEMS_MAX: usize = 20;

/// Receives the number of rows that are done, and the number of all rows.
pub type Progress = Box<dyn FnMut(u64, u64) + Send>;

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreCheckReport {
    /// Number of readable streams: sessions, tasks and other streams.
    pub streams: u64,
    /// Number of readable records.
    pub records: u64,
    /// The problems. Empty if the store is whole.
    pub problems: Vec<StoreProblem>,
}

/// The readable part of the store.
impl fmt::Display for StoreCheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = counted(self.streams, "session or task", "sessions and tasks");
        let records = counted(self.records, "record", "records");
        write!(f, "{streams} with {records}")
    }
}

/// A problem of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreProblem {
    /// The write-ahead log is damaged, or the file of the store was cut. The rest of the store was not checked, because
    /// SQLite would change the files.
    Unopened(String),
    /// The structure of the file is damaged.
    File(String),
    /// Records of this stream are damaged or missing.
    Stream {
        /// The stream.
        stream: StreamName,
        /// The last readable record before the damage; 0 if the first record is damaged.
        readable: Version,
        /// The last record of the stream.
        version: Version,
    },
    /// Records without a readable stream.
    UnknownRecords(u64),
}

impl fmt::Display for StoreProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unopened(error) => f.write_str(error),
            Self::File(problem) => write!(f, "the file is damaged: {problem}"),
            Self::Stream {
                stream,
                readable,
                version,
            } if readable == version => {
                write!(f, "{stream}: the position of the last record is wrong")
            }
            Self::Stream {
                stream,
                readable,
                version,
            } => write!(f, "{stream}: {readable} of {version} records are readable"),
            Self::UnknownRecords(count) => write!(f, "records without a session or task: {count}"),
        }
    }
}

pub(super) fn check(
    path: &Path,
    stop: &MaintenanceStop,
    progress: Progress,
) -> Result<StoreCheckReport, LogError> {
    let mut report = StoreCheckReport {
        streams: 0,
        records: 0,
        problems: Vec::new(),
    };
    let (store, _copy) = match open_store_or_copy(path) {
        Err(error)
            if matches!(
                error.kind(),
                LogErrorKind::DamagedLog | LogErrorKind::Incomplete
            ) =>
        {
            let problem = StoreProblem::Unopened(error.to_string());
            report.problems.push(problem);
            return Ok(report);
        }
        opened => opened?,
    };
    let failed = |error| sqlite_error(path, error);
    // All reads see the same state of the store.
    let mut connection = store.connection;
    stop.watch(&mut connection).map_err(failed)?;
    let view = connection.transaction().map_err(failed)?;
    let limit = FILE_PROBLEMS_MAX;
    let mut structure = view
        .prepare(&format!("PRAGMA integrity_check({limit})"))
        .map_err(failed)?;
    match structure.query_map([], |row| row.get::<_, String>(0)) {
        Ok(lines) => {
            for line in lines {
                match line {
                    Ok(line) if line == "ok" => {}
                    Ok(line) => {
                        let line = line.replace('\n', "; ");
                        report.problems.push(StoreProblem::File(line));
                    }
                    Err(error) if is_stopped(&error) => return Err(failed(error)),
                    Err(_) => break,
                }
            }
        }
        Err(error) if is_stopped(&error) => return Err(failed(error)),
        Err(error) => report.problems.push(StoreProblem::File(error.to_string())),
    }
    let known = streams(&view).map_err(failed)?;
    let mut parts = ReadableParts::new(&known);
    let mut records = 0;
    let visit = |row| {
        records += u64::from(parts.add(&row));
        Ok(())
    };
    visit_rows(&view, visit, progress).map_err(failed)?;
    report.records = records;
    report.streams = known.len() as u64;
    let mut damaged: Vec<_> = known
        .iter()
        .filter_map(|(id, stream)| {
            let part = parts.of(*id);
            let end = (part.version, part.last_record);
            (stream.end != Some(end)).then(|| StoreProblem::Stream {
                stream: StreamName::new(stream.name.as_str()),
                readable: Version(part.version),
                version: Version(stream.end.map_or(part.version, |(version, _)| version)),
            })
        })
        .collect();
    damaged.sort_by_key(ToString::to_string);
    report.problems.append(&mut damaged);
    let unknown = parts.streams().filter(|id| !known.contains_key(id)).count();
    if unknown > 0 {
        report
            .problems
            .push(StoreProblem::UnknownRecords(unknown as u64));
    }
    Ok(report)
}
