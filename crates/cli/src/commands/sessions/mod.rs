//! `allstop sessions`: reads sessions from the log, even while other processes write to them, and removes sessions.
//!
//! The commands `list` and `show` take no lock and change nothing, so both work while a run has the session open. The
//! user can name a session by its id, by its number in the list, or by a part of the id that no other id contains. The
//! list shows such a part: the last letters.

mod complete;
mod error;
mod export;
mod find;
mod list;
mod list_row;
pub(crate) mod pick;
mod printed;
mod remove;
mod show;
mod view;

use std::sync::Arc;
use std::time::SystemTime;

use allstop_core::SessionId;
use allstop_log::{Log, MemoryLog};
use allstop_remote::{OwnedSessionReport, processes};
use allstop_runtime::{ModelPrices, StoreChoice, open_store_for_reading};
use allstop_scope::{RootOptions, Scope};
use allstop_terminal::OutputPriority;

pub(crate) use self::complete::session_completions;
use self::error::SessionsError;
use self::find::list_number;
pub(crate) use self::find::resolve;
use self::printed::{Printed, View};
use self::remove::SessionFiles;
use self::show::ShowFormat;
use crate::args::{SessionsCommand, StoreArgs};
use crate::display::RECEIPT_WIDTH_DEFAULT;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use crate::start::project;

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// If the future is dropped, each session is either removed or unchanged.
pub(crate) async fn sessions(
    store: &StoreArgs,
    command: &SessionsCommand,
    host: &ProcessHost,
) -> Result<u8, CliError> {
    let (log, files, prices) = open_with_files(store, host).await?;
    let flags = SameFlags::of_store(store);
    let stdout = host.output.stdout();
    let view = View {
        style: host.terminal.style(stdout.is_terminal()),
        width: stdout.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT),
        now: SystemTime::now().into(),
    };
    let mut print = |printed| {
        match printed {
            Printed::Json(text) => stdout.json(&text, OutputPriority::Last),
            Printed::Text(text) => stdout.lines(text, OutputPriority::Last),
        };
    };
    let open = match command {
        SessionsCommand::Show { .. } => open_sessions(host).await,
        _ => Vec::new(),
    };
    let place = SessionsPlace {
        log: &*log,
        files: &files,
        open: &open,
        prices: &prices,
    };
    let done = on_log(command, place, view, &flags, &mut print).await;
    done.map_err(|error| error.into_problem(&flags))?;
    Ok(0)
}

/// Id of the session with this number in the list; `None` if `given` is not such a number.
///
/// # Errors
/// Returns the errors of [`resolve`] and [`open`].
///
/// # Cancel safety
/// Like [`resolve`].
pub(crate) async fn session_by_number(
    given: &str,
    store: &StoreArgs,
    host: &ProcessHost,
) -> Result<Option<SessionId>, CliError> {
    if list_number(given).is_none() {
        return Ok(None);
    }
    let log = open(store, host).await?;
    let id = resolve(&*log, given, &SameFlags::of_store(store)).await?;
    Ok(Some(id))
}

/// Opens the store. Never creates a store: if the default store does not exist, returns an empty log. On a read-only file
/// system, the log refuses changes.
///
/// # Errors
/// If a named store does not exist, or if the configuration or the store cannot be read.
pub(crate) async fn open(args: &StoreArgs, host: &ProcessHost) -> Result<Arc<dyn Log>, CliError> {
    let (log, ..) = open_with_files(args, host).await?;
    Ok(log)
}

/// Like [`open`]. Also returns the other files of the sessions, and the prices of models.
async fn open_with_files(
    args: &StoreArgs,
    host: &ProcessHost,
) -> Result<(Arc<dyn Log>, SessionFiles, ModelPrices), CliError> {
    let project = project::trusted_silently(&host.folder);
    let user = ProcessHost::config_file();
    let config = project.config(user.as_deref())?;
    let prices = ModelPrices::new(&config.model);
    let choice = ProcessHost::store(args, config.store.path)?;
    let files = SessionFiles {
        outputs: ProcessHost::spill_folder(&choice),
        history: choice.history_file(),
        scope: Scope::root("files of sessions", RootOptions::current()),
    };
    if let StoreChoice::Sqlite(path) = &choice
        && !path.exists()
    {
        return match &args.store {
            Some(given) => {
                let message = format!("store `{}` not found", given.display());
                Err(CliError::not_found(message)
                    .hint("name the store of the run: --store FILE, or the environment variable ALLSTOP_STORE"))
            }
            None => Ok((Arc::new(MemoryLog::new()), files, prices)),
        };
    }
    let scope = Scope::root("store", RootOptions::current());
    let store = open_store_for_reading(&choice, &scope).await?;
    Ok((Arc::clone(store.log()), files, prices))
}

/// Open sessions of this user's processes. Processes that do not answer are left out, because the log alone describes a
/// session well enough.
async fn open_sessions(host: &ProcessHost) -> Vec<OwnedSessionReport> {
    let asked = processes(&host.sockets).await.unwrap_or_default();
    let reports = asked.into_iter().filter_map(|(_, report)| report.ok());
    reports.flat_map(|report| report.sessions).collect()
}

/// The places with facts about sessions.
#[derive(Clone, Copy)]
struct SessionsPlace<'a> {
    log: &'a dyn Log,
    files: &'a SessionFiles,
    /// Open sessions, as their processes report them.
    open: &'a [OwnedSessionReport],
    /// Prices, with the configured price.
    prices: &'a ModelPrices,
}

/// Runs the command on a log. After an error, only the output from before the error is printed.
async fn on_log(
    command: &SessionsCommand,
    place: SessionsPlace<'_>,
    view: View,
    flags: &SameFlags,
    print: &mut (dyn FnMut(Printed) + Send),
) -> Result<(), SessionsError> {
    let SessionsPlace { log, files, .. } = place;
    let printed = match command {
        SessionsCommand::List { json, limit, all } => {
            let limit = list::limit(*json, *all, *limit);
            list::list(log, view, *json, limit).await?
        }
        SessionsCommand::Show { id, json, full } => {
            let format = ShowFormat {
                as_json: *json,
                with_receipts: *full,
            };
            show::show(place, view, flags, id, format).await?
        }
        SessionsCommand::Export { id, json } => export::export(log, id, *json).await?,
        SessionsCommand::Rm { ids } => return remove::remove(log, files, ids, print).await,
        SessionsCommand::Prune { limits, dry_run } => {
            return remove::prune((log, files), (limits, *dry_run), flags, view.now, print).await;
        }
    };
    print(printed);
    Ok(())
}

#[cfg(test)]
mod test_records;
#[cfg(test)]
mod tests;
