//! `allstop store`: checks, copies, compacts, repairs, exports and imports the store in a file.

mod exchange;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use allstop_core::counted::{byte_size, counted, grouped};
use allstop_core::error_chain;
use allstop_log::{
    CutStream, LogError, LogErrorKind, MaintenanceStop, Progress, RepairReport, StoreCheckReport,
    StoreMaintenance, StoreProblem, StreamName, open_for_reading,
};
use allstop_process::this_process;
use allstop_runtime::StoreChoice;
use allstop_task::end_of_cut_task;
use allstop_terminal::{OutputPriority, Styled, TextRole, styled};
use serde_json::json;

use crate::args::{STDIN, StoreAction, StoreArgs, StoreCommandArgs};
use crate::error::{CliError, CliErrorKind};
use crate::host::ProcessHost;
use crate::json_document::DocumentSchema;
use crate::shell_command::SameFlags;
use crate::start::project;
use exchange::{exchanged, export_to, import_from, name_left_out};

/// Time between two lines about the progress of a check.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// Runs the command and returns its exit code. The first signal stops the command, which undoes its changes. The second
/// signal ends the process.
///
/// # Cancel safety
/// A check, a back-up, a compaction or a repair that has begun continues on its thread.
pub(crate) async fn store(args: &StoreCommandArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let path = path_of(&args.store, host)?;
    let stop = MaintenanceStop::default();
    let mut work = pin!(on_store(args, &path, &stop, host));
    if may_block(&args.action) {
        return work.await;
    }
    let mut signals = host.signals()?;
    let signal = tokio::select! {
        done = &mut work => return done,
        signal = signals.next() => signal,
    };
    stop.stop();
    tokio::select! {
        done = &mut work => {
            // The work may have been complete before the stop.
            if done.is_err() {
                host.note(what_stays(&args.action));
            }
            Ok(done.unwrap_or(signal.exit_code()))
        }
        signal = signals.next() => {
            host.note("ended at once: temporary files may stay");
            Ok(signal.exit_code())
        }
    }
}

/// True if the command can wait for a pipe for ever. A signal then ends the process at once.
fn may_block(action: &StoreAction) -> bool {
    match action {
        StoreAction::Import { .. } => true,
        StoreAction::Export { to } => to.as_os_str() == STDIN,
        _ => false,
    }
}

/// Text for a command that was stopped.
fn what_stays(action: &StoreAction) -> &'static str {
    match action {
        StoreAction::Check { .. } | StoreAction::Import { .. } => "stopped",
        StoreAction::Backup { .. } | StoreAction::Export { .. } => "stopped: nothing was written",
        StoreAction::Compact => "stopped: the store stays as it was",
        StoreAction::Repair => "stopped: the damaged files stay as they were",
    }
}

async fn on_store(
    args: &StoreCommandArgs,
    path: &Path,
    stop: &MaintenanceStop,
    host: &ProcessHost,
) -> Result<u8, CliError> {
    let flags = SameFlags::of_store(&args.store);
    let open = |path: &Path| {
        let store = StoreMaintenance::of(path).map_err(|error| store_problem(&error))?;
        Ok::<_, CliError>(store.stopped_by(stop))
    };
    match &args.action {
        StoreAction::Check { json } => {
            let check = open(path)?.check(check_progress(host)).await;
            let report = check.map_err(|error| store_problem(&error))?;
            show_check(&report, *json, &flags, host);
            Ok(u8::from(!report.problems.is_empty()))
        }
        StoreAction::Backup { to } => {
            let to = std::path::absolute(to).unwrap_or_else(|_| to.clone());
            for end in ["", "-wal", "-shm", "-journal"] {
                let mut name = to.clone().into_os_string();
                name.push(end);
                refuse_existing(Path::new(&name))?;
            }
            let written = open(path)?.back_up(&to, check_progress(host)).await;
            let report = written.map_err(|error| store_problem(&error))?;
            let size = byte_size(report.len);
            show(host, format!("wrote {} ({size})", to.display()));
            let is_whole = report.check.problems.is_empty();
            if !is_whole {
                host.note("the store has damage, and so has its back-up:");
                show_check(&report.check, false, &flags, host);
            }
            Ok(u8::from(!is_whole))
        }
        StoreAction::Compact => {
            let compacted = open(path)?.compact().await;
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
            match open(path)?.check(check_progress(host)).await {
                Ok(report) if report.problems.is_empty() => {
                    show(host, "no problem found: the store stays as it is");
                    return Ok(0);
                }
                // These can be repaired.
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        LogErrorKind::Corrupt | LogErrorKind::RepairUnfinished
                    ) => {}
                Err(error) => return Err(store_problem(&error)),
            }
            let now = SystemTime::now().into();
            let end = move |stream: &StreamName, kept: &[_]| {
                end_of_cut_task(stream, kept, this_process(), now)
            };
            let repaired = open(path)?.repair(Box::new(end)).await;
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
            if to.as_os_str() != STDIN {
                refuse_existing(to)?;
            }
            // A store that does not exist is not created.
            open(path)?;
            let log = open_for_reading(path).await;
            let log = log.map_err(|error| store_problem(&error))?;
            let report = export_to(&*log, to, stop).await?;
            let text = exchanged("exported", &report);
            // Standard output may be the export.
            host.note(&text);
            Ok(name_left_out(&report, host))
        }
        StoreAction::Import { from } => {
            let report = import_from(path, from).await?;
            show(host, exchanged("imported", &report));
            Ok(name_left_out(&report, host))
        }
    }
}

fn path_of(args: &StoreArgs, host: &ProcessHost) -> Result<PathBuf, CliError> {
    let project = project::trusted_silently(&host.folder);
    let user = ProcessHost::config_file();
    let config = project.config(user.as_deref())?;
    match ProcessHost::store(args, config.store.path)? {
        StoreChoice::Sqlite(path) => Ok(path),
        StoreChoice::Memory | StoreChoice::Nats(_) => {
            Err(CliError::usage("this command needs a store in a file"))
        }
    }
}

fn refuse_existing(path: &Path) -> Result<(), CliError> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let message = format!("{} exists", path.display());
    Err(CliError::failure(message).hint("name a new file, or remove this one"))
}

/// The error of a store, with its remedy.
pub(super) fn store_problem(error: &LogError) -> CliError {
    let kind = match error.kind() {
        LogErrorKind::Busy => CliErrorKind::Busy,
        _ => CliErrorKind::Failed,
    };
    let problem = CliError::failure(error_chain(error)).kind(kind);
    match error.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
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
    stdout.sentences(styled![text], OutputPriority::Last);
}

fn show_check(report: &StoreCheckReport, json: bool, flags: &SameFlags, host: &ProcessHost) {
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    if json {
        let result = json!({
            "streams": report.streams,
            "records": report.records,
            "problems": problems,
        });
        DocumentSchema::StoreCheck.print(&result, host.output.stdout());
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
