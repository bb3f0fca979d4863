//! `sessions rm` and `sessions prune`.

use std::path::Path;
use std::time::Duration;

use allstop_core::counted::counted;
use allstop_core::{SessionId, Timestamp, error_chain};
use allstop_log::{Log, SessionError, SessionSummary, read_session, remove_session};
use allstop_terminal::styled;

use super::Printed;
use super::error::SessionsError;
use super::find::{find, newest_first};
use super::view::Work;
use crate::args::PruneLimits;
use crate::shell_command::SameFlags;

/// Removes the sessions one after another, and stops at the first session that cannot be removed. All ids are resolved
/// before the first removal, so after a typing error nothing is removed. `outputs` is the folder of the sessions' long
/// output.
pub(super) async fn remove(
    log: &dyn Log,
    outputs: &Path,
    given: &[String],
    print: &mut (dyn FnMut(Printed) + Send),
) -> Result<(), SessionsError> {
    let mut ids = Vec::new();
    for given in given {
        let id = find(log, given).await?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    for id in ids {
        remove_one(log, outputs, &id).await?;
        print(Printed::Text(styled![format_args!("removed {id}")]));
    }
    Ok(())
}

/// Removes old sessions. Names each session that must stay because it is in use.
pub(super) async fn prune(
    (log, outputs): (&dyn Log, &Path),
    (limits, dry_run): (&PruneLimits, bool),
    flags: &SameFlags,
    now: Timestamp,
    print: &mut (dyn FnMut(Printed) + Send),
) -> Result<(), SessionsError> {
    let sessions = newest_first(log).await?;
    let mut removed = 0;
    for session in sessions.iter().skip(limits.keep.unwrap_or(0)) {
        if limits
            .older_than
            .is_some_and(|min| !is_older(session, min.0, now))
        {
            continue;
        }
        let id = &session.id;
        let checked = check(log, id, |work| !work.is_gone()).await;
        let done = match checked {
            Ok(()) if !dry_run => remove_one(log, outputs, id).await,
            checked => checked,
        };
        let line = match done {
            Ok(()) => {
                removed += 1;
                let verb = if dry_run { "would remove" } else { "removed" };
                format!("{verb} {id}")
            }
            Err(
                stays @ (SessionsError::StillRuns { .. }
                | SessionsError::Session(
                    SessionError::InUse { .. } | SessionError::NotFound(_),
                )),
            ) => {
                let remedy = stays.hint(flags).map(|hint| format!("; {hint}"));
                format!(
                    "kept {id}: {}{}",
                    error_chain(&stays),
                    remedy.unwrap_or_default()
                )
            }
            Err(error) => return Err(error),
        };
        print(Printed::Text(styled![line]));
    }
    let (removed, all) = (counted(removed, "session", "sessions"), sessions.len());
    let said = if dry_run {
        format!("{removed} of {all} would be removed")
    } else {
        format!("{removed} of {all} removed")
    };
    print(Printed::Text(styled![said]));
    Ok(())
}

/// True if the last activity of the session is longer ago. A session whose time cannot be read counts as new.
fn is_older(session: &SessionSummary, min: Duration, now: Timestamp) -> bool {
    let age_ms = session.active_at.map(|at| now.unix_ms() - at.unix_ms());
    age_ms.is_some_and(|ms| u128::try_from(ms).is_ok_and(|ms| ms > min.as_millis()))
}

/// Removes a session and its long output.
async fn remove_one(log: &dyn Log, outputs: &Path, id: &SessionId) -> Result<(), SessionsError> {
    check(log, id, |work| work.alive == Some(true)).await?;
    remove_session(log, id).await?;
    // An error is ignored: most sessions have no long output, so the folder rarely exists.
    drop(std::fs::remove_dir_all(outputs.join(id.as_str())));
    Ok(())
}

/// Checks that no background work of the session runs, according to this predicate, and that no process has the session
/// open. The state of work in another PID namespace is unknown.
async fn check(
    log: &dyn Log,
    id: &SessionId,
    runs: impl Fn(&Work<'_>) -> bool,
) -> Result<(), SessionsError> {
    // An unreadable session is removed without this check, because no other command can use it.
    let Ok((state, owner)) = read_session(log, id).await else {
        return Ok(());
    };
    let works = state.background().iter().map(Work::of);
    let running: Vec<String> = works
        .filter(|work| runs(work))
        .map(|work| match work.stop_pid {
            Some(pid) => format!("{} (pid {pid})", work.name),
            None => work.name.to_owned(),
        })
        .collect();
    if !running.is_empty() {
        let id = id.to_string();
        return Err(SessionsError::StillRuns { id, running });
    }
    if owner.is_some() {
        let id = id.clone();
        return Err(SessionError::InUse { id, owner }.into());
    }
    Ok(())
}
