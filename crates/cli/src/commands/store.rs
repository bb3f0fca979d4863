//! `allstop store`: checks, copies, compacts, repairs, exports and imports the store in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use allstop_core::counted::{byte_size, counted, grouped};
use allstop_core::error_chain;
use allstop_log::{
    CutStream, ExchangeError, ExchangeReport, ExportLines, Log, LogError, LogErrorKind, Progress,
    RepairReport, SqliteLog, StoreCheckReport, StoreMaintenance, StoreProblem, StreamName, export,
    import, open_for_reading,
};
use allstop_process::this_process;
use allstop_runtime::{Config, StoreChoice};
use allstop_task::end_of_cut_task;
use allstop_terminal::{OutputPriority, Styled, TextRole, styled};
use serde_json::json;

use crate::args::{STDIN, StoreAction, StoreArgs, StoreCommandArgs};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use crate::start::project;

/// Time between two lines about the progress of a check.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// A check, a back-up, a compaction or a repair that has begun continues on its thread.
pub(crate) async fn store(args: &StoreCommandArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let path = path_of(&args.store, host)?;
    let flags = SameFlags::of_store(&args.store);
    match &args.action {
        StoreAction::Check { json } => {
            let check = maintenance(&path)?.check(check_progress(host)).await;
            let report = check.map_err(|error| store_problem(&error))?;
            show_check(&report, *json, &flags, host);
            Ok(u8::from(!report.problems.is_empty()))
        }
        StoreAction::Backup { to } => {
            let to = std::path::absolute(to).unwrap_or_else(|_| to.clone());
            if to.symlink_metadata().is_ok() {
                let message = format!("{} exists", to.display());
                return Err(CliError::failure(message).hint("name a new file"));
            }
            let written = maintenance(&path)?.back_up(&to).await;
            let bytes = written.map_err(|error| store_problem(&error))?;
            let size = byte_size(bytes);
            show(host, format!("wrote {} ({size})", to.display()));
            let checked = maintenance(&to)?.check(check_progress(host)).await;
            let report = checked.map_err(|error| store_problem(&error))?;
            if !report.problems.is_empty() {
                host.note("the store has damage, and so has its back-up:");
                show_check(&report, false, &flags, host);
            }
            Ok(u8::from(!report.problems.is_empty()))
        }
        StoreAction::Compact => {
            let compacted = maintenance(&path)?.compact().await;
            let report = compacted.map_err(|error| store_problem(&error))?;
            let (before, after) = (byte_size(report.before), byte_size(report.after));
            show(
                host,
                format!("{}: {before} before, {after} now", path.display()),
            );
            if report.is_written_back {
                return Ok(0);
            }
            Err(CliError::failure("another process reads the store, so removed text may still be in its `-wal` file")
                .hint("stop the process and repeat the command; `allstop ps` lists the processes of your user"))
        }
        StoreAction::Repair => {
            let checked = maintenance(&path)?.check(check_progress(host)).await;
            if checked.is_ok_and(|report| report.problems.is_empty()) {
                show(host, "no problem found: the store stays as it is");
                return Ok(0);
            }
            let now = SystemTime::now().into();
            let end = move |stream: &StreamName, kept: &[_]| {
                end_of_cut_task(stream, kept, this_process(), now)
            };
            let repaired = maintenance(&path)?.repair(Box::new(end)).await;
            let report = repaired.map_err(|error| match error.kind() {
                LogErrorKind::Busy => CliError::failure(error_chain(&error)).hint(
                    "a repair needs the store alone: end the processes that `allstop ps` lists, then repeat the command",
                ),
                _ => store_problem(&error),
            })?;
            show_repair(&report, host);
            Ok(0)
        }
        StoreAction::Export { to } => {
            let log = open_for_reading(&path).await;
            let log = log.map_err(|error| store_problem(&error))?;
            let report = export_to(&*log, to).await?;
            let text = exchanged("exported", &report);
            // Standard output may be the export.
            host.note(&text);
            Ok(name_left_out(&report, host))
        }
        StoreAction::Import { from } => {
            let report = import_from(&path, from).await?;
            show(host, exchanged("imported", &report));
            Ok(name_left_out(&report, host))
        }
    }
}

fn path_of(args: &StoreArgs, host: &ProcessHost) -> Result<PathBuf, CliError> {
    let project = project::trusted_silently(&host.folder);
    let user = ProcessHost::config_file();
    let config = Config::load_with_project(user.as_deref(), project.as_deref())?;
    match ProcessHost::store(args, config.store.path)? {
        StoreChoice::Sqlite(path) => Ok(path),
        StoreChoice::Memory | StoreChoice::Nats(_) => {
            Err(CliError::usage("this command needs a store in a file"))
        }
    }
}

fn maintenance(path: &Path) -> Result<StoreMaintenance, CliError> {
    StoreMaintenance::of(path).map_err(|error| store_problem(&error))
}

async fn open(path: &Path) -> Result<Arc<dyn Log>, CliError> {
    let log = SqliteLog::open(path).await;
    Ok(Arc::new(log.map_err(|error| store_problem(&error))?))
}

/// The error of a store, with its remedy.
pub(super) fn store_problem(error: &LogError) -> CliError {
    let problem = CliError::failure(error_chain(error));
    match error.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn exchange_failed(path: &Path, error: &ExchangeError) -> CliError {
    match error {
        ExchangeError::Log(error) => store_problem(error),
        error => CliError::failure(format!("{}: {}", path.display(), error_chain(error))),
    }
}

/// Shows the progress of a long check at a terminal.
pub(super) fn check_progress(host: &ProcessHost) -> Progress {
    let stderr = host.output.stderr().clone();
    let style = host.terminal.style(stderr.is_terminal());
    let mut last = Instant::now();
    Box::new(move |done, all| {
        if stderr.is_terminal() && last.elapsed() >= PROGRESS_PAUSE {
            last = Instant::now();
            let text = format!("checked {} of {} records", grouped(done), grouped(all));
            let line = style.paint(TextRole::Dim, Styled::text(&text));
            stderr.lines(line, OutputPriority::Required);
        }
    })
}

fn show(host: &ProcessHost, text: impl Into<String>) {
    let text: String = text.into();
    let stdout = host.output.stdout();
    stdout.lines(styled![text], OutputPriority::Last);
}

fn show_check(report: &StoreCheckReport, json: bool, flags: &SameFlags, host: &ProcessHost) {
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    if json {
        let result = json!({
            "schema": "allstop.store-check/1",
            "streams": report.streams,
            "records": report.records,
            "problems": problems,
        });
        host.output
            .stdout()
            .json(&result.to_string(), OutputPriority::Last);
        return;
    }
    for problem in &problems {
        show(host, problem.clone());
    }
    let read = report.to_string();
    if problems.is_empty() {
        show(host, format!("{read}: no problem found"));
    } else {
        let repair = flags.command("store repair");
        let is_unopened = |problem: &StoreProblem| matches!(problem, StoreProblem::Unopened(_));
        show(
            host,
            if report.problems.iter().any(is_unopened) {
                "the sessions and tasks were not checked".to_owned()
            } else {
                format!("{read} can be read")
            },
        );
        host.note(&format!(
            "`{repair}` keeps the damaged files and continues with the readable records"
        ));
    }
}

fn show_repair(report: &RepairReport, host: &ProcessHost) {
    for CutStream {
        stream,
        version,
        before,
    } in &report.cut
    {
        let name = short_name(stream);
        let of = before.map_or_else(String::new, |before| format!(" of {before}"));
        let text = match version.0 {
            0 => format!("{name}: no record could be read"),
            _ => format!("{name}: the first {version}{of} records were kept"),
        };
        show(host, text);
    }
    let records = counted(report.records, "record", "records");
    show(host, format!("the store has {records} now"));
    show(
        host,
        format!("the damaged files: {}*", report.damaged.display()),
    );
}

/// Name of a session or task for people.
fn short_name(stream: &StreamName) -> String {
    stream.as_str().replacen('/', " ", 1)
}

fn exchanged(verb: &str, report: &ExchangeReport) -> String {
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
fn name_left_out(report: &ExchangeReport, host: &ProcessHost) -> u8 {
    for (stream, why) in &report.left_out {
        host.note(&format!("left out {}: {why}", short_name(stream)));
    }
    u8::from(!report.left_out.is_empty())
}

async fn export_to(log: &dyn Log, to: &Path) -> Result<ExchangeReport, CliError> {
    let failed = |error: &ExchangeError| exchange_failed(to, error);
    let mut file: Box<dyn Write + Send> = if to.as_os_str() == STDIN {
        Box::new(io::stdout())
    } else {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(to);
        Box::new(file.map_err(|error| failed(&error.into()))?)
    };
    let mut buffered = BufWriter::new(&mut file);
    let mut write = |line: &str| buffered.write_all(line.as_bytes());
    let report = export(log, &mut write).await;
    let report = report.map_err(|error| failed(&error))?;
    buffered.flush().map_err(|error| failed(&error.into()))?;
    Ok(report)
}

async fn import_from(store: &Path, from: &Path) -> Result<ExchangeReport, CliError> {
    let failed = |error: &ExchangeError| exchange_failed(from, error);
    let file: Box<dyn BufRead + Send> = if from.as_os_str() == STDIN {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(from).map_err(|error| failed(&error.into()))?;
        Box::new(BufReader::new(file))
    };
    let mut lines = file.lines();
    let export = ExportLines::new(&mut lines).map_err(|error| failed(&error))?;
    let log = open(store).await?;
    let report = import(&*log, export).await;
    report.map_err(|error| failed(&error))
}
