//! Stop of a session that no process has open. The answer comes from the session's log, which needs no lock. If
//! orphaned work of the session (background work without an owner, or processes of calls whose owner and keeper were
//! killed) runs, this process opens the session and stops the work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::{ReceiptItem, StopInfo};
use allstop_core::turn::SessionState;
use allstop_core::{Extent, Receipt, SessionId, StopId};
use allstop_log::{Log, read_session};
use allstop_runtime::{OrphanedWork, scan_orphans};
use allstop_scope::{Scope, StopRequest};
use allstop_session::StopTarget;
use allstop_session::orphan_search::OrphanSearch;
use allstop_session::orphaned_calls::{missed_calls, settled_orphaned_calls};

use super::super::dying::{background_markers, dying_processes_gone};
use super::super::sessions::{open, resolve};
use super::super::unreported_sessions::UnreachableSession;
use super::orphaned_work::OrphanedSessions;
use super::{SessionStopLine, StopResults};
use crate::args::{StopArgs, StoreArgs};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use allstop_remote::RemoteExtent;

/// Maximum wait for a process to release its session. Such a process is about to end, or is another `allstop stop`.
/// Another stop takes at most its grace and the time for force.
const ENDING_MAX: Duration = Duration::from_secs(4);
/// Maximum attempts to open the session. An attempt fails only if another process has opened the session since this
/// process read its log.
const OPENS_MAX: usize = 8;
/// Pause between two checks during a wait of at most [`ENDING_MAX`].
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Answers a request to stop a session that no process has open. `accepted` is set if the session's process accepted
/// the stop, but ended before it answered. `store` names the store of the session.
///
/// # Errors
/// If the store has no such session, if another process has the session open, or if a process accepted the stop but
/// ended without an answer.
///
/// # Cancel safety
/// Dropping the future does not cancel the stop.
pub(super) async fn answer(
    given: &str,
    accepted: Option<&StopId>,
    by: &str,
    args: &StopArgs,
    store: &StoreArgs,
    host: &ProcessHost,
) -> Result<StopResults, CliError> {
    let flags = SameFlags::of_store(store);
    let reading = async {
        let log = open(store, host).await?;
        let id = resolve(&*log, given, &flags).await?;
        let state = read_ended(&*log, &id).await?;
        Ok((log, id, state))
    };
    let (log, id, mut state) = match reading.await {
        Err(error) if accepted.is_some() => return Err(unread_receipt(given, &error, &flags)),
        read => read?,
    };
    if let Some(accepted) = accepted {
        let endings = state.turns().iter().filter_map(|turn| turn.ending.as_ref());
        let receipts = endings.filter_map(|ending| ending.receipt.as_ref());
        // The session's last receipt is compared first. This receipt may belong to a stop of more than one turn, and
        // can then be newer than the receipts of all turns.
        let mut all = receipts.chain(state.last_receipt()).rev();
        if let Some(own) = all.find(|receipt| receipt.stop_id() == accepted) {
            let receipt = Receipt::clone(own);
            return Ok(StopResults {
                answers: vec![SessionStopLine::new(id, receipt)],
                ..StopResults::default()
            });
        }
        // A stop that found no work has no receipt in the log. But if a turn is still open in the log, the process
        // ended before it wrote the end of the turn.
        if state.open_turn().is_some() {
            let message = format!(
                "the process of session `{id}` accepted the stop and has closed the session, but the store has no receipt \
                 of this stop: the process was killed, or could not write to the store"
            );
            let receipt = flags.command(&format!("receipt {id}"));
            let hint = format!("`{receipt}` lists the calls whose outcome is unknown");
            return Err(CliError::failure(message).hint(hint));
        }
    }
    let scope = Scope::root("stop", host.scopes());
    let mut orphans = settled_orphaned_calls(&state, &scope).await;
    for _ in 0..OPENS_MAX {
        let Some(target) = target_of(&state, &orphans.works, args) else {
            break;
        };
        let left = OrphanedSessions::of_session(Arc::clone(&log), host.scopes(), id.clone());
        if let Some(left) = left.await? {
            let answers = left.stop(&target, args, by).await;
            if answers.iter().all(|answer| answer.receipt.quiet()) {
                let kept = kept_markers(&state, &orphans.works, args);
                dying_processes_gone(std::slice::from_ref(&id), kept, host).await?;
            }
            return Ok(StopResults {
                answers,
                ..StopResults::default()
            });
        }
        // Another stop opened the session first. If work remains after that stop, the next attempt finds this work.
        state = read_ended(&*log, &id).await?;
        orphans = settled_orphaned_calls(&state, &scope).await;
    }
    let unsearched = unsearched_item(&orphans, args);
    if unsearched.is_none() {
        let kept = kept_markers(&state, &[], args);
        let gone = dying_processes_gone(std::slice::from_ref(&id), kept, host).await;
        gone.map_err(|left| match &*orphans.works {
            [] => left,
            // The arguments do not cover these processes, but a stop with the default extent does.
            _ => left.hint(format!(
                "end them: `{}`",
                flags.command(&format!("stop {id}"))
            )),
        })?;
    }
    let info = info(&id, &state, by, args, host);
    let mut receipt = Receipt::already_ended(info, unsearched.into_iter().collect());
    if let Some(missed) = missed_calls(&state).filter(|_| covers_background(args)) {
        receipt = receipt.with_missed_work(missed);
    }
    if args.preview {
        receipt = receipt.as_preview();
    }
    let last = state.turns().last();
    let ending = last.and_then(|turn| turn.ending.as_ref());
    Ok(StopResults {
        answers: vec![SessionStopLine {
            stop_reason: ending.map(|ending| ending.reason),
            ..SessionStopLine::new(id, receipt)
        }],
        ..StopResults::default()
    })
}

/// Error for a stop that the process of the session accepted, and whose receipt cannot be read.
fn unread_receipt(id: &str, error: &CliError, flags: &SameFlags) -> CliError {
    let why = &error.message;
    let message = format!(
        "the process of session `{id}` accepted the stop, but sent no receipt, and the receipt cannot be read: {why}"
    );
    let receipt = flags.command(&format!("receipt {id}"));
    CliError::failure(message).hint(format!("later: `{receipt}`"))
}

/// Target of a stop with these arguments within the orphaned work; `None` if the arguments cover no orphaned work.
fn target_of(
    state: &SessionState,
    orphans: &[OrphanedWork],
    args: &StopArgs,
) -> Option<StopTarget> {
    let mut left = scan_orphans(state);
    left.extend_from_slice(orphans);
    left.retain(|work| work.alive);
    match &args.call {
        Some(call) => {
            let named = left.iter().find(|work| work.id.as_str() == call);
            named.map(|work| StopTarget::Background(work.id.clone()))
        }
        None => (!left.is_empty() && args.extent != RemoteExtent::Turn)
            .then_some(StopTarget::TurnAndBackground),
    }
}

/// Receipt item for processes of the extent that the search could not account for. `None` if the search has finished.
fn unsearched_item(orphans: &OrphanSearch, args: &StopArgs) -> Option<ReceiptItem> {
    orphans
        .unsearched
        .item()
        .filter(|_| covers_background(args))
}

/// True if a stop with these arguments covers all background work.
fn covers_background(args: &StopArgs) -> bool {
    args.call.is_none() && args.extent != RemoteExtent::Turn
}

/// Markers of the background work that a stop with these arguments does not end. A marker is an environment variable
/// that identifies the processes of a call.
fn kept_markers(state: &SessionState, orphans: &[OrphanedWork], args: &StopArgs) -> Vec<Arc<str>> {
    if covers_background(args) && !args.preview {
        return Vec::new();
    }
    background_markers(state, orphans)
}

/// Waits until no process has the session open, and reads the session.
async fn read_ended(log: &dyn Log, id: &SessionId) -> Result<SessionState, CliError> {
    let until = Instant::now() + ENDING_MAX;
    loop {
        let read = read_session(log, id).await;
        let (state, owner) = read.map_err(|error| CliError::failure(error.to_string()))?;
        let Some(owner) = owner else {
            return Ok(state);
        };
        if Instant::now() >= until {
            let (id, pid) = (id.clone(), owner.pid);
            return Err(CliError::failure(
                UnreachableSession { id, pid }.to_string(),
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Description of a stop that finds no work, for its receipt.
fn info(
    id: &SessionId,
    state: &SessionState,
    by: &str,
    args: &StopArgs,
    host: &ProcessHost,
) -> StopInfo {
    let (extent, target) = match (&args.call, args.extent) {
        (Some(call), _) => (Extent::Call, format!("session/{id}/call/{call}")),
        (None, RemoteExtent::Turn) => {
            let last = state.turns().last();
            let turn = last.map_or_else(String::new, |last| format!("/turn/{}", last.turn));
            (Extent::Turn, format!("session/{id}{turn}"))
        }
        (None, RemoteExtent::TurnAndBackground) => {
            (Extent::TurnAndBackground, format!("session/{id}"))
        }
        (None, RemoteExtent::Session) => (Extent::Session, format!("session/{id}")),
    };
    let request = StopRequest::new(extent, args.cause(by)).target(target);
    Scope::root("stop", host.scopes()).stop_info(&request)
}
