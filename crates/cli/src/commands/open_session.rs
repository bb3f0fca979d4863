//! Open sessions of this user's processes, and the search for the session that a command names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::SessionId;
use allstop_nats::NatsOptions;

use super::ps::failed;
use super::sessions::session_by_number;
use crate::args::StoreArgs;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::serve::cluster::names_servers;
use crate::short_id::{LAST, is_meant, short};
use allstop_remote::{
    OwnedCommandReport, OwnedSessionReport, ProcessReport, RemoteError, RemoteProcess,
    SocketFolder, processes,
};

/// Open session, and the process that has opened it.
pub(super) struct OpenTarget {
    pub(super) process: RemoteProcess,
    /// Command of the process.
    pub(super) command: Arc<str>,
    pub(super) session: SessionId,
    /// True if a turn runs or waits.
    pub(super) is_busy: bool,
    /// True if a watching terminal may answer the permission questions of the session.
    pub(super) takes_answers: bool,
    /// File of the process's store, or the URLs of its NATS servers.
    pub(super) store: Option<PathBuf>,
    /// Milliseconds since the last record of the session.
    quiet_ms: u64,
}

/// True if a stop with these store flags covers the sessions of `store`. If the flags name a store, the stop covers
/// only that store.
pub(super) fn stops_in_store(named: &StoreArgs, store: Option<&Path>) -> bool {
    // Through links, different paths may lead to the same file.
    let file = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Some(named) = &named.store else {
        return true;
    };
    store.is_some_and(|store| match (nats_servers(named), nats_servers(store)) {
        // One common server is enough: a process may name only some servers of a cluster.
        (Some(named), Some(used)) => named.iter().any(|server| used.contains(server)),
        (None, None) => file(store) == file(named),
        _ => false,
    })
}

/// The addresses of the NATS servers that a store names, in a form that can be compared; `None` for a file.
pub(super) fn nats_servers(store: &Path) -> Option<Vec<String>> {
    let servers = store.to_str().filter(|store| names_servers(store))?;
    let addresses = NatsOptions::new(servers).addresses().to_lowercase();
    let address = |server: &str| {
        let address = server.split_once("://").map_or(server, |(_, rest)| rest);
        let address = address.trim_end_matches('/');
        let address = address.replacen("localhost", "127.0.0.1", 1);
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        if has_port {
            address
        } else {
            format!("{address}:4222")
        }
    };
    Some(addresses.split(',').map(address).collect())
}

/// Store flags for commands on a session of a process with this store. The named store comes first.
pub(super) fn used_store(named: &StoreArgs, store: Option<&Path>) -> StoreArgs {
    // The commands on a session need a file.
    let file = store.filter(|store| nats_servers(store).is_none());
    let used = named.store.as_deref().or(file);
    StoreArgs {
        store: used.map(Path::to_owned),
    }
}

/// Maximum wait for a process that is starting.
const STARTING_MAX: Duration = Duration::from_secs(2);
/// Pause between two requests during this wait.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A process that has not opened its session yet.
#[derive(Debug)]
pub(super) struct StartingProcess {
    command: String,
    pid: u32,
    store: Option<PathBuf>,
}

impl StartingProcess {
    /// The process of this report, if it is starting.
    pub(super) fn of(report: &ProcessReport) -> Option<Self> {
        report.is_starting.then(|| Self {
            command: report.command.clone(),
            pid: report.pid,
            store: report.store.clone(),
        })
    }

    /// Error for a stop, which needs an open session.
    pub(super) fn not_stopped(&self) -> CliError {
        let Self { command, pid, .. } = self;
        let message =
            format!("`{command}` is starting in process {pid}: its session is not open yet");
        CliError::failure(message).hint(format!("stop the process itself: kill {pid}"))
    }
}

/// Answers of this user's processes to the request for their open sessions.
#[derive(Default)]
pub(super) struct AskedProcesses {
    /// Processes that have not opened their session yet.
    pub(super) starting: Vec<StartingProcess>,
    /// All open sessions that the processes reported.
    pub(super) open: Vec<OpenTarget>,
    /// Running commands that belong to no session. Only a stop accepts their ids.
    pub(super) commands: Vec<OpenTarget>,
    /// Errors of the processes that did not answer.
    pub(super) silent: Vec<RemoteError>,
}

impl AskedProcesses {
    /// Keeps the sessions that a stop with these store flags covers.
    pub(super) fn in_store(mut self, named: &StoreArgs) -> Self {
        let covers = |store: &Option<PathBuf>| stops_in_store(named, store.as_deref());
        self.open.retain(|target| covers(&target.store));
        self.commands.retain(|target| covers(&target.store));
        self.starting.retain(|process| covers(&process.store));
        self
    }
}

/// Asks all processes of this user for the open sessions that a stop with these store flags covers. If no such session
/// is open, but a process is starting, asks again for a short time.
///
/// # Errors
/// If the folder of the sockets cannot be read.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn ask_for_session(
    folder: &SocketFolder,
    store: &StoreArgs,
) -> Result<AskedProcesses, CliError> {
    let until = Instant::now() + STARTING_MAX;
    loop {
        let asked = ask_processes(folder).await?.in_store(store);
        let waits = asked.open.is_empty() && !asked.starting.is_empty();
        if !waits || Instant::now() >= until {
            return Ok(asked);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Asks all processes of this user for their open sessions.
///
/// # Errors
/// If the folder of the sockets cannot be read.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn ask_processes(folder: &SocketFolder) -> Result<AskedProcesses, CliError> {
    let mut asked = AskedProcesses::default();
    for (process, report) in processes(folder).await.map_err(|error| failed(&error))? {
        match report {
            Ok(report) => {
                asked.starting.extend(StartingProcess::of(&report));
                let (open, commands) = targets(&process, report);
                asked.open.extend(open);
                asked.commands.extend(commands);
            }
            Err(error) => asked.silent.push(error),
        }
    }
    Ok(asked)
}

/// The open sessions of a process, and its commands that belong to no session.
fn targets(process: &RemoteProcess, report: ProcessReport) -> (Vec<OpenTarget>, Vec<OpenTarget>) {
    let command: Arc<str> = report.command.into();
    let of_command = |one: OwnedCommandReport| OpenTarget {
        process: process.clone(),
        command: Arc::clone(&command),
        session: SessionId::new(one.command_id.as_str()),
        is_busy: true,
        takes_answers: false,
        store: report.store.clone(),
        quiet_ms: one.age_ms,
    };
    let commands = report.commands.into_iter().map(of_command).collect();
    let target = |session: OwnedSessionReport| OpenTarget {
        process: process.clone(),
        command: Arc::clone(&command),
        session: session.session_id,
        is_busy: session.is_busy,
        takes_answers: session.takes_answers,
        store: report.store.clone(),
        quiet_ms: session.quiet_ms,
    };
    (report.sessions.into_iter().map(target).collect(), commands)
}

/// If `given` is the id of an open session, returns it. If it is a number in the store's list of sessions, returns the
/// id of that session. Otherwise returns `given`.
///
/// # Errors
/// If no session has the number, or if the store failed.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn resolve_list_number(
    given: &str,
    open: &[OpenTarget],
    store: &StoreArgs,
    host: &ProcessHost,
) -> Result<String, CliError> {
    if open.iter().any(|target| target.session.as_str() == given) {
        return Ok(given.to_owned());
    }
    let numbered = session_by_number(given, store, host).await?;
    Ok(numbered.map_or_else(|| given.to_owned(), |id| id.to_string()))
}

/// Finds the open session that `given` names; `None` if no session matches. `last` selects the session that was active
/// most recently.
///
/// # Errors
/// If several sessions match.
pub(super) fn find_open_session(
    all: Vec<OpenTarget>,
    given: &str,
) -> Result<Option<OpenTarget>, CliError> {
    if given == LAST {
        // A turn may run for a long time without a new record, so a busy session counts as active now.
        let latest = |target: &OpenTarget| (!target.is_busy, target.quiet_ms);
        return Ok(all.into_iter().min_by_key(latest));
    }
    let (exact, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|target| target.session.as_str() == given);
    if let Some(target) = exact.into_iter().next() {
        return Ok(Some(target));
    }
    let mut matches: Vec<_> = others
        .into_iter()
        .filter(|target| is_meant(target.session.as_str(), given))
        .collect();
    if matches.len() > 1 {
        let ids = matches.iter().map(|target| short(target.session.as_str()));
        let ids: Vec<_> = ids.collect();
        let message = format!(
            "`{given}` matches {} sessions: {}",
            ids.len(),
            ids.join(", ")
        );
        return Err(
            CliError::usage(message).hint("choose one of these ids, or type more of the id")
        );
    }
    Ok(matches.pop())
}

/// Error for a command that finds no open session.
pub(super) fn no_session(problems: &[RemoteError]) -> CliError {
    match problems.first() {
        Some(problem) => CliError::failure(problem.to_string()),
        None => CliError::not_found("no session is open").hint(
            "`allstop ps` lists work that was left running, `allstop sessions list` all sessions",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_covers_only_the_named_store() {
        let covers = |named: Option<&str>, store: Option<&str>| {
            let store_args = StoreArgs {
                store: named.map(PathBuf::from),
            };
            stops_in_store(&store_args, store.map(Path::new))
        };
        assert!(covers(None, None) && covers(None, Some("/a.db")));
        assert!(covers(Some("/a.db"), Some("/a.db")));
        assert!(!covers(Some("/a.db"), Some("/b.db")) && !covers(Some("/a.db"), None));
        let cluster = Some("nats://10.0.0.1:4222,nats://10.0.0.2:4222");
        for named in [
            "nats://10.0.0.2",
            "tls://user:secret@10.0.0.1:4222/",
            "NATS://10.0.0.9:1,10.0.0.2:4222",
        ] {
            assert!(covers(Some(named), cluster), "{named}");
        }
        for named in ["nats://10.0.0.3", "nats://10.0.0.1:5222", "/a.db"] {
            assert!(!covers(Some(named), cluster), "{named}");
        }
        assert!(!covers(Some("nats://10.0.0.1"), Some("/a.db")));
        assert!(covers(
            Some("nats://localhost"),
            Some("nats://127.0.0.1:4222")
        ));
        assert!(covers(Some("nats://[::1]"), Some("nats://[::1]:4222")));
    }
}
