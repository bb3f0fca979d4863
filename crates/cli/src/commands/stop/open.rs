//! Stop of all open sessions. The requests to one process do not wait for other processes.

use std::collections::HashSet;

use allstop_core::SessionId;
use futures::future::join_all;

use super::super::open_session::{StartingProcess, stops_in_store, used_store};
use super::super::ps::failed;
use super::{SessionStopLine, StopResults};
use crate::args::StoreArgs;
use crate::error::CliError;
use allstop_remote::{
    OwnedCommandReport, ProcessNumber, RemoteExtent, RemoteProcess, RemoteStopParams, SocketFolder,
    each_process,
};

/// Processes that were asked to stop their sessions, and these sessions.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Sessions that the processes reported.
    pub(super) known: HashSet<SessionId>,
    pub(super) processes: HashSet<ProcessNumber>,
}

/// Stops all open sessions of the named store. If the arguments name no store, stops the open sessions of every store.
///
/// # Errors
/// If the folder of the sockets cannot be read.
///
/// # Cancel safety
/// Dropping the future does not cancel the stop.
pub(super) async fn stop_all(
    params: impl Fn(&SessionId) -> RemoteStopParams,
    store: &StoreArgs,
    folder: &SocketFolder,
) -> Result<(StopResults, Asked), CliError> {
    let params = &params;
    let each = each_process(folder, async |process, report| {
        let mut found = StopResults::default();
        let mut known = Vec::new();
        match report {
            Ok(report) if stops_in_store(store, report.store.as_deref()) => {
                let store = used_store(store, report.store.as_deref());
                let starting = StartingProcess::of(&report);
                found
                    .problems
                    .extend(starting.as_ref().map(StartingProcess::not_stopped));
                let sessions = report.sessions.iter();
                let sessions: Vec<_> = sessions.map(|session| session.session_id.clone()).collect();
                // All sessions stop concurrently, so none waits while the grace of another session passes.
                let requests: Vec<_> = sessions.iter().map(params).collect();
                let stopping = requests.iter().map(|request| process.stop(request));
                for (session, stopped) in sessions.into_iter().zip(join_all(stopping).await) {
                    match stopped {
                        Ok(answer) => {
                            let line = SessionStopLine::answered(session.clone(), answer);
                            found.answered(line, &store);
                        }
                        // The session has ended by itself and may have left work. It is not added to `known`, so the
                        // later scan of the store finds that work.
                        Err(unanswered)
                            if unanswered.error.is_of_ended_session()
                                && unanswered.accepted.is_none() =>
                        {
                            continue;
                        }
                        Err(unanswered) => found.problem(&unanswered.error),
                    }
                    known.push(session);
                }
                stop_commands(&process, &report.commands, params, &mut found).await;
            }
            Ok(_of_another_store) => {}
            Err(error) => found.problem(&error),
        }
        (process.number, known, found)
    });
    let (mut all, mut asked) = (StopResults::default(), Asked::default());
    for (number, known, found) in each.await.map_err(|error| failed(&error))? {
        asked.processes.insert(number);
        asked.known.extend(known);
        all.extend(found);
    }
    Ok((all, asked))
}

/// Stops the commands of a process that belong to no session.
async fn stop_commands(
    process: &RemoteProcess,
    commands: &[OwnedCommandReport],
    params: impl Fn(&SessionId) -> RemoteStopParams,
    found: &mut StopResults,
) {
    let commands = commands.iter();
    let requests = commands.map(|command| params(&SessionId::new(command.command_id.as_str())));
    // A command has no turn.
    let requests: Vec<_> = requests
        .filter(|request| request.extent != RemoteExtent::Turn)
        .collect();
    let stopping = requests.iter().map(|request| process.stop(request));
    for (request, stopped) in requests.iter().zip(join_all(stopping).await) {
        match stopped {
            Ok(answer) => {
                let id = request.session_id.clone();
                found.answers.push(SessionStopLine::of_command(id, answer));
            }
            // The command has ended by itself.
            Err(unanswered) if unanswered.error.is_of_ended_session() => {}
            Err(unanswered) => found.problem(&unanswered.error),
        }
    }
}
