//! The object of `allstop ps --json`. With `--watch`, each look is one object.

use std::sync::Arc;

use allstop_core::SessionId;
use allstop_core::Timestamp;
use allstop_core::ids::BackgroundId;
use allstop_remote::{
    OwnedCommandReport, OwnedSessionReport, ProcessReport, RemoteError, RemoteProcess,
};
use allstop_runtime::OrphanedWork;
use serde::Serialize;

use crate::commands::unreported_sessions::{LeftSession, UnreportedSessions};
use crate::json_document::DocumentSchema;

/// Keys of the object.
#[derive(Serialize)]
struct PsKeys<'a> {
    /// Open sessions of all processes.
    sessions: Vec<SessionKeys<'a>>,
    /// Running commands of all processes that belong to no session.
    commands: Vec<CommandKeys<'a>>,
    /// Processes of this user, also those without an open session.
    processes: Vec<ProcessKeys<'a>>,
    /// Sessions that no process has open, with work that was left running.
    left_sessions: Vec<LeftKeys<'a>>,
    /// Processes and sessions whose work may run, but is not listed.
    problems: Vec<String>,
}

/// An open session and its process.
#[derive(Serialize)]
struct SessionKeys<'a> {
    pid: u32,
    #[serde(flatten)]
    session: &'a OwnedSessionReport,
}

/// A command and its process.
#[derive(Serialize)]
struct CommandKeys<'a> {
    pid: u32,
    #[serde(flatten)]
    command: &'a OwnedCommandReport,
}

/// A process. A process that does not answer has a problem, and only its pid is known.
#[derive(Serialize)]
struct ProcessKeys<'a> {
    pid: u32,
    command: Option<&'a str>,
    folder: Option<&'a std::path::Path>,
    store: Option<&'a std::path::Path>,
    started_at: Option<Timestamp>,
    is_starting: bool,
    is_server: bool,
    problem: Option<String>,
}

#[derive(Serialize)]
struct LeftKeys<'a> {
    session_id: &'a SessionId,
    folder: Option<&'a str>,
    left_work: Vec<LeftWork<'a>>,
}

#[derive(Serialize)]
struct LeftWork<'a> {
    id: &'a BackgroundId,
    name: &'a Arc<str>,
    /// True if the work was left running on purpose.
    detached: bool,
    /// Pid of the command, in its PID namespace.
    pid: Option<u32>,
    /// True if the work is in another PID namespace.
    out_of_view: bool,
}

/// Returns the object for the asked processes and for the rest of the store.
pub(super) fn line(
    found: &[(RemoteProcess, Result<ProcessReport, RemoteError>)],
    unreported: &UnreportedSessions,
) -> String {
    let reports = found.iter().filter_map(|(_, report)| report.as_ref().ok());
    let sessions = reports.flat_map(|process| {
        let pid = process.pid;
        let sessions = process.sessions.iter();
        sessions.map(move |session| SessionKeys { pid, session })
    });
    let reports = found.iter().filter_map(|(_, report)| report.as_ref().ok());
    let commands = reports.flat_map(|process| {
        let pid = process.pid;
        let commands = process.commands.iter();
        commands.map(move |command| CommandKeys { pid, command })
    });
    let silent = found.iter().filter_map(|(_, report)| report.as_ref().err());
    let silent = silent.map(ToString::to_string);
    DocumentSchema::Ps.line(&PsKeys {
        sessions: sessions.collect(),
        commands: commands.collect(),
        processes: found.iter().map(process_keys).collect(),
        left_sessions: unreported.left.iter().map(left_keys).collect(),
        problems: silent.chain(unreported.problems()).collect(),
    })
}

fn process_keys(
    (process, report): &(RemoteProcess, Result<ProcessReport, RemoteError>),
) -> ProcessKeys<'_> {
    match report {
        Ok(report) => ProcessKeys {
            pid: report.pid,
            command: Some(&report.command),
            folder: Some(&report.folder),
            store: report.store.as_deref(),
            started_at: Some(report.started_at),
            is_starting: report.is_starting,
            is_server: report.is_server,
            problem: None,
        },
        Err(error) => ProcessKeys {
            pid: process.number.pid,
            command: None,
            folder: None,
            store: None,
            started_at: None,
            is_starting: false,
            is_server: false,
            problem: Some(error.to_string()),
        },
    }
}

fn left_keys(left: &LeftSession) -> LeftKeys<'_> {
    LeftKeys {
        session_id: &left.id,
        folder: left.folder.as_deref(),
        left_work: left.work.iter().map(LeftWork::of).collect(),
    }
}

impl<'a> LeftWork<'a> {
    fn of(work: &'a OrphanedWork) -> Self {
        Self {
            id: &work.id,
            name: &work.name,
            detached: work.detached,
            pid: work.process.as_ref().map(|process| process.pid),
            out_of_view: work.is_out_of_view(),
        }
    }
}
