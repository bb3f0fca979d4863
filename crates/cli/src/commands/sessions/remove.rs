//! `sessions rm` and `sessions prune`.

use std::path::PathBuf;
use std::time::Duration;

use allstop_core::counted::counted;
use allstop_core::record::SessionRecord;
use allstop_core::{SessionId, Timestamp, error_chain};
use allstop_log::session::{decode, stream_of};
use allstop_log::{
    Log, LogErrorKind, SessionError, SessionSummary, Version, newest_sessions, read_session,
};
use allstop_runtime::{OrphanedWork, remove_session_with_output};
use allstop_scope::Scope;
use allstop_session::orphaned_calls::settled_orphaned_calls;
use allstop_terminal::{HistoryErasure, styled};
use futures::stream::{self, StreamExt as _};

use super::Printed;
use super::error::SessionsError;
use super::find::find;
use super::view::Work;
use crate::args::PruneLimits;
use crate::shell_command::SameFlags;

/// Number of sessions that are removed at once. The store deletes them in one transaction, and keeps a file open for each
/// of them.
const AT_ONCE: usize = 64;

/// Files of sessions outside the store.
#[derive(Debug)]
pub(super) struct SessionFiles {
    /// Folder of the sessions' long output.
    pub(super) outputs: PathBuf,
    /// File of the lines that were typed in chats.
    pub(super) history: Option<PathBuf>,
    /// Scope of the work that removes files.
    pub(super) scope: Scope,
}

/// Removes the sessions. Before the first removal, all ids are resolved and all sessions are checked, so a typing error
/// or a session in use removes nothing.
pub(super) async fn remove(
    log: &dyn Log,
    files: &SessionFiles,
    given: &[String],
    print: &mut (dyn FnMut(Printed) + Send),
) -> Result<(), SessionsError> {
    let mut ids = Vec::new();
    for given in given {
        let id = find(log, given).await?;
        if !ids.contains(&id) {
            check(log, files, &id, |work| work.alive == Some(true)).await?;
            ids.push(id);
        }
    }
    let mut failure = None;
    let mut each = |id: &SessionId, removed: Result<(), SessionsError>| match removed {
        Ok(()) => print(Printed::Text(styled![format_args!("removed {id}")])),
        Err(error) if failure.is_none() => failure = Some(error),
        Err(error) => print(kept(id, &error, None)),
    };
    remove_all(log, files, ids, &mut each).await?;
    failure.map_or(Ok(()), Err)
}

/// Removes old sessions. Names each session that must stay because it is in use.
pub(super) async fn prune(
    (log, files): (&dyn Log, &SessionFiles),
    (limits, dry_run): (&PruneLimits, bool),
    flags: &SameFlags,
    now: Timestamp,
    print: &mut (dyn FnMut(Printed) + Send),
) -> Result<(), SessionsError> {
    let sessions = newest_sessions(log).await?;
    let all = sessions.len();
    let mut ids = Vec::new();
    for session in sessions.into_iter().skip(limits.keep.unwrap_or(0)) {
        let id = session.id.clone();
        if let Some(min) = limits.older_than {
            let summary = SessionSummary::read(log, session).await?;
            if !is_older(&summary, min.0, now) {
                continue;
            }
        }
        match check(log, files, &id, |work| !work.is_gone()).await {
            Ok(()) => ids.push(id),
            Err(error) if error.keeps_session() => print(kept(&id, &error, Some(flags))),
            Err(error) => return Err(error),
        }
    }
    let (mut removed, mut failure) = (0, None);
    if dry_run {
        removed = ids.len();
        for id in &ids {
            print(Printed::Text(styled![format_args!("would remove {id}")]));
        }
    } else {
        let mut each = |id: &SessionId, done: Result<(), SessionsError>| match done {
            Ok(()) => {
                removed += 1;
                print(Printed::Text(styled![format_args!("removed {id}")]));
            }
            Err(error) if error.keeps_session() => print(kept(id, &error, Some(flags))),
            Err(error) => failure = failure.take().or(Some(error)),
        };
        remove_all(log, files, ids, &mut each).await?;
    }
    let removed = counted(removed as u64, "session", "sessions");
    let said = if dry_run {
        format!("{removed} of {all} would be removed")
    } else {
        format!("{removed} of {all} removed")
    };
    print(Printed::Text(styled![said]));
    failure.map_or(Ok(()), Err)
}

fn kept(id: &SessionId, why: &SessionsError, flags: Option<&SameFlags>) -> Printed {
    let remedy = flags.and_then(|flags| why.hint(flags));
    let remedy = remedy.map(|hint| format!("; {hint}"));
    let text = format!(
        "kept {id}: {}{}",
        error_chain(why),
        remedy.unwrap_or_default()
    );
    Printed::Text(styled![text])
}

/// True if the last activity of the session is longer ago. A session whose time cannot be read counts as new.
fn is_older(session: &SessionSummary, min: Duration, now: Timestamp) -> bool {
    let age_ms = session.active_at.map(|at| now.unix_ms() - at.unix_ms());
    age_ms.is_some_and(|ms| u128::try_from(ms).is_ok_and(|ms| ms > min.as_millis()))
}

/// Removes checked sessions: first their typed lines, then their output files, and then their records. After a crash in
/// between, the sessions are still there, and the removal can be repeated.
async fn remove_all(
    log: &dyn Log,
    files: &SessionFiles,
    ids: Vec<SessionId>,
    each: &mut (dyn FnMut(&SessionId, Result<(), SessionsError>) + Send),
) -> Result<(), SessionsError> {
    erase_history(log, files, &ids).await?;
    let remove = |id: SessionId| async move {
        let removed = remove_session_with_output(log, &files.outputs, &files.scope, &id).await;
        (id, removed.map_err(SessionsError::from))
    };
    let mut removed = stream::iter(ids).map(remove).buffered(AT_ONCE);
    while let Some((id, removed)) = removed.next().await {
        each(&id, removed);
    }
    Ok(())
}

/// Removes the messages of the sessions from the typed lines.
async fn erase_history(
    log: &dyn Log,
    files: &SessionFiles,
    ids: &[SessionId],
) -> Result<(), SessionsError> {
    let Some(path) = files.history.clone().filter(|path| path.exists()) else {
        return Ok(());
    };
    let failed = |source| SessionsError::History {
        path: path.clone(),
        source,
    };
    let mut erasure = HistoryErasure::read(path.clone()).map_err(failed)?;
    for id in ids {
        erase_messages(log, id, &mut erasure).await?;
    }
    erasure.save().map_err(failed)
}

async fn erase_messages(
    log: &dyn Log,
    id: &SessionId,
    erasure: &mut HistoryErasure,
) -> Result<(), SessionsError> {
    let (stream, mut next) = (stream_of(id), Version(1));
    loop {
        let records = match log.read(&stream, next, usize::MAX).await {
            Ok(records) => records,
            // A session with damage can still be removed.
            Err(error) if error.kind() == LogErrorKind::DamagedStream => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let Some((last, _)) = records.last() else {
            return Ok(());
        };
        next = last.next();
        for (_, record) in &records {
            if let Ok(Some(
                SessionRecord::TurnStarted { input: text, .. }
                | SessionRecord::MessageSteered { text, .. },
            )) = decode(record)
            {
                erasure.erase(&text);
            }
        }
    }
}

/// Checks that no background work of the session runs, according to this predicate, that no processes of its calls are
/// left, and that no process has the session open. The state of work in another PID namespace is unknown.
async fn check(
    log: &dyn Log,
    files: &SessionFiles,
    id: &SessionId,
    runs: impl Fn(&Work<'_>) -> bool,
) -> Result<(), SessionsError> {
    // An unreadable session is removed without this check, because no other command can use it.
    let Ok((state, owner)) = read_session(log, id).await else {
        return Ok(());
    };
    let named = |name: &str, pid: Option<u32>| match pid {
        Some(pid) => format!("{name} (pid {pid})"),
        None => name.to_owned(),
    };
    let works = state.background().iter().map(Work::of);
    let mut running: Vec<String> = works
        .filter(|work| runs(work))
        .map(|work| named(work.name, work.stop_pid))
        .collect();
    let mut is_searched = true;
    if owner.is_none() {
        let calls = settled_orphaned_calls(&state, &files.scope).await;
        let pid = |work: &OrphanedWork| work.process.as_ref().map(|process| process.pid);
        is_searched = calls.unsearched.is_empty();
        running.extend(calls.works.iter().map(|work| named(&work.name, pid(work))));
    }
    if !running.is_empty() {
        let id = id.to_string();
        return Err(SessionsError::StillRuns { id, running });
    }
    if !is_searched {
        let id = id.to_string();
        return Err(SessionsError::Unsearched { id });
    }
    if owner.is_some() {
        let id = id.clone();
        return Err(SessionError::InUse { id, owner }.into());
    }
    Ok(())
}
