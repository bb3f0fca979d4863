//! The lines of `allstop ps --json`. Every line has `sessions`, so a script can read the open sessions of all lines.

use std::sync::Arc;

use allstop_core::SessionId;
use allstop_core::ids::BackgroundId;
use allstop_remote::{ProcessReport, RemoteError, RemoteProcess};
use allstop_runtime::OrphanedWork;
use serde::Serialize;

use crate::commands::unreported_sessions::{LeftSession, UnreportedSessions};

/// A list without elements: a line that is not about a process with open sessions.
type NoSessions = [(); 0];

/// A process that did not report its sessions, such as a suspended one.
#[derive(Serialize)]
struct SilentProcess {
    pid: u32,
    problem: String,
    sessions: NoSessions,
}

/// A session that no process has open, with work that was left running.
#[derive(Serialize)]
struct LeftLine<'a> {
    session_id: &'a SessionId,
    folder: Option<&'a str>,
    left_work: Vec<LeftWork<'a>>,
    sessions: NoSessions,
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

/// A session of the store whose work may run, but is not listed.
#[derive(Serialize)]
struct ProblemLine {
    problem: String,
    sessions: NoSessions,
}

/// Returns the lines for the asked processes and for the rest of the store.
pub(super) fn lines(
    found: &[(RemoteProcess, Result<ProcessReport, RemoteError>)],
    unreported: &UnreportedSessions,
) -> Vec<String> {
    let processes = found.iter().map(|(process, report)| match report {
        Ok(report) => line(report),
        Err(error) => line(&SilentProcess {
            pid: process.number.pid,
            problem: error.to_string(),
            sessions: [],
        }),
    });
    let left = unreported.left.iter().map(left_line);
    let problems = unreported.problems().into_iter().map(|problem| {
        line(&ProblemLine {
            problem,
            sessions: [],
        })
    });
    processes.chain(left).chain(problems).collect()
}

fn left_line(left: &LeftSession) -> String {
    line(&LeftLine {
        session_id: &left.id,
        folder: left.folder.as_deref(),
        left_work: left.work.iter().map(LeftWork::of).collect(),
        sessions: [],
    })
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

fn line(value: &impl Serialize) -> String {
    // These types always have a form in JSON.
    serde_json::to_string(value).unwrap_or_default()
}
