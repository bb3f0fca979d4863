//! Lines for records and events of a session that the outcome of a message does not show.

use allstop_core::CallId;
use allstop_core::counted::counted;
use allstop_core::record::SessionRecord;
use allstop_session::BackgroundItem;

use super::labels::{plain, stop_reason};

/// Line for a record; `None` if the record is not shown. `of_message` is true if a message, and not background work,
/// began the turn.
pub(crate) fn describe(record: &SessionRecord, of_message: bool) -> Option<String> {
    Some(match record {
        SessionRecord::TurnStopped { reason, cause, .. } if !of_message => {
            let reason = stop_reason(*reason);
            format!("the turn that background work started has ended: {reason}: {cause}")
        }
        SessionRecord::BackgroundEnded {
            id,
            state,
            exit_code,
            ..
        } => {
            let code = exit_code.map_or(String::new(), |code| format!(", exit code {code}"));
            format!("{id} has ended: {}{code}", plain(state.as_str()))
        }
        SessionRecord::Compacted {
            messages_dropped,
            turns_dropped,
            ..
        } => {
            let turns = counted(u64::from(*turns_dropped), "turn", "turns");
            let messages = counted(u64::from(*messages_dropped), "message", "messages");
            format!("older turns were summarised: {turns}, {messages}")
        }
        _ => return None,
    })
}

/// Line for a summary that is being made.
pub(crate) fn describe_summary_start(turns: u32) -> String {
    let turns = counted(u64::from(turns), "older turn", "older turns");
    format!("long conversation: {turns} will be summarised")
}

/// Line for work that runs after the end of a turn; `None` if no work runs.
pub(crate) fn describe_running(running: &[BackgroundItem]) -> Option<String> {
    let names = running
        .iter()
        .map(|work| format!("{} ({})", work.id, work.name));
    let names = names.collect::<Vec<_>>().join(", ");
    (!running.is_empty()).then(|| format!("in the background: {names}"))
}

/// Line for an answer to an external tool call that arrived after the end of the call.
pub(crate) fn describe_late_answer(call_id: &CallId, name: &str) -> String {
    format!("{name} ({call_id}) answered after its end: the answer is discarded")
}
