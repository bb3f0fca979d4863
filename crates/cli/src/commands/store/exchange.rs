//! `allstop store export` and `import`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use allstop_core::counted::{counted, grouped};
use allstop_core::error_chain;
use allstop_log::{
    ExchangeError, ExchangeReport, ExportLines, Log, MaintenanceStop, SqliteLog, export, import,
};

use super::{short_name, store_problem};
use crate::args::STDIN;
use crate::error::CliError;
use crate::host::ProcessHost;

fn exchange_failed(path: &Path, error: &ExchangeError) -> CliError {
    match error {
        ExchangeError::Log(error) => store_problem(error),
        error => CliError::failure(format!("{}: {}", path.display(), error_chain(error))),
    }
}

pub(super) fn exchanged(verb: &str, report: &ExchangeReport) -> String {
    let streams = counted(report.streams, "session or task", "sessions and tasks");
    let records = counted(report.records, "record", "records");
    match report.present {
        0 => format!("{verb} {streams}, {records}"),
        present => format!(
            "{verb} {streams}, {records}; {} already there",
            grouped(present)
        ),
    }
}

/// Names the streams that were left out. Returns the exit code.
pub(super) fn name_left_out(report: &ExchangeReport, host: &ProcessHost) -> u8 {
    for (stream, why) in &report.left_out {
        host.note(&format!("left out {}: {why}", short_name(stream)));
    }
    u8::from(!report.left_out.is_empty())
}

/// A file that is removed when this value is dropped, unless it is complete.
struct UnfinishedFile<'a>(Option<&'a Path>);

impl<'a> UnfinishedFile<'a> {
    fn create(path: &'a Path) -> io::Result<(Self, File)> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok((Self(Some(path)), file))
    }

    fn complete(mut self) {
        self.0 = None;
    }
}

impl Drop for UnfinishedFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // The user may have removed it.
            drop(fs::remove_file(path));
        }
    }
}

/// Writes an export. If it fails, is stopped or is dropped, no file stays.
pub(super) async fn export_to(
    log: &dyn Log,
    to: &Path,
    stop: &MaintenanceStop,
) -> Result<ExchangeReport, CliError> {
    let failed = |error: &ExchangeError| exchange_failed(to, error);
    let (unfinished, file): (_, Box<dyn Write + Send>) = if to.as_os_str() == STDIN {
        (UnfinishedFile(None), Box::new(io::stdout()))
    } else {
        let created = UnfinishedFile::create(to);
        let (unfinished, file) = created.map_err(|error| failed(&error.into()))?;
        (unfinished, Box::new(file))
    };
    let mut buffered = BufWriter::new(file);
    let mut write = |line: &str| {
        if stop.is_stopped() {
            return Err(io::Error::other("stopped"));
        }
        buffered.write_all(line.as_bytes())
    };
    let report = export(log, &mut write).await;
    let report = report.map_err(|error| failed(&error))?;
    buffered.flush().map_err(|error| failed(&error.into()))?;
    unfinished.complete();
    Ok(report)
}

/// Imports an export into the store. If the file cannot be read or is no export, no store is created.
pub(super) async fn import_from(store: &Path, from: &Path) -> Result<ExchangeReport, CliError> {
    let failed = |error: &ExchangeError| exchange_failed(from, error);
    let file: Box<dyn BufRead + Send> = if from.as_os_str() == STDIN {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(from).map_err(|error| failed(&error.into()))?;
        Box::new(BufReader::new(file))
    };
    let mut lines = file.lines();
    let export = ExportLines::new(&mut lines).map_err(|error| failed(&error))?;
    let opened = SqliteLog::open(store).await;
    let log = opened.map_err(|error| store_problem(&error))?;
    let report = import(&log, export).await;
    report.map_err(|error| failed(&error))
}
