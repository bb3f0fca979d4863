//! Labels for the terms in the receipts of stops and in the records of sessions.

use std::time::Duration;

use allstop_core::receipt::{
    EndMethod, EndProof, ItemKind, NotStoppedReason, ReceiptItem, WaitReason,
};
use allstop_core::{Cause, StopReason, Timestamp};
use allstop_runtime::{InterruptedTurn, OrphanedWork};
use allstop_terminal::duration;
use allstop_tools::permission::Denial;

/// Replaces the underscores of a term by spaces.
pub(crate) fn plain(word: &str) -> String {
    word.replace('_', " ")
}

/// Label for a piece of work that has not begun, by the event that it waits for.
pub(crate) fn waits_for(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Permission => "waits for permission",
    }
}

/// Label for the state of an item.
pub(super) fn state(item: &ReceiptItem) -> String {
    let waits = item.waits_for.map(|reason| waits_for(reason).to_owned());
    waits.unwrap_or_else(|| plain(item.state.as_str()))
}

/// Label for the stop reason of a turn.
pub(crate) fn stop_reason(reason: StopReason) -> String {
    match reason {
        StopReason::MaxStepsReached => "step limit reached".to_owned(),
        StopReason::MaxTurnsReached => "turn limit reached".to_owned(),
        StopReason::MaxBudgetReached => "budget used up".to_owned(),
        StopReason::Guardrail => "refused by a guardrail".to_owned(),
        other => plain(other.as_str()),
    }
}

/// Describes the ending of a turn that did not complete, for people.
pub(crate) fn describe_ending(reason: StopReason, cause: Option<&Cause>) -> String {
    use StopReason::{Cancelled, Shutdown, Timeout};
    match cause {
        Some(cause) if matches!(reason, Cancelled | Shutdown | Timeout) => {
            format!("the turn was {}", cause.stopped_by())
        }
        cause => {
            let detail = cause.and_then(|cause| cause.detail.as_ref());
            let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
            format!("{}{detail}", stop_reason(reason))
        }
    }
}

/// Describes a denied call by its label. Without a label, names the tool, and the path of a sub-agent's call. The
/// caller prints `denied:` before this text. A reason that was written for models may begin with the same word. This
/// word is then removed from the reason.
pub(crate) fn denial(denial: &Denial, label: Option<&str>) -> String {
    let beginnings = ["permission was denied: ", "denied: ", "denied "];
    let reason = &*denial.reason;
    let reason = beginnings
        .iter()
        .find_map(|beginning| reason.strip_prefix(beginning))
        .unwrap_or(reason);
    let id = denial.call_id.as_str();
    let call = match label {
        Some(label) => label.to_owned(),
        None if id.contains('/') => format!("{} ({id})", denial.tool),
        None => denial.tool.to_string(),
    };
    match (reason, label) {
        ("permission was denied", _) => call,
        (reason, Some(_)) => format!("{call} · {reason}"),
        (reason, None) => format!("{call}: {reason}"),
    }
}

/// Short name of a kind of work.
pub(super) fn kind(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::ModelCall => "model",
        ItemKind::ToolCall => "tool",
        ItemKind::Permission => "question",
        other => other.as_str(),
    }
}

/// Describes the state of a turn that an earlier process left unfinished.
pub(crate) fn describe_interrupted(turn: &InterruptedTurn) -> &'static str {
    if turn.is_kept && !turn.effects.is_empty() {
        "the last turn has no end in the log, after a crash or a failed store; its message and completed steps stay in the \
         conversation, but these calls do not:"
    } else if turn.is_kept {
        "the last turn has no end in the log, after a crash or a failed store; its message and completed steps stay in the \
         conversation"
    } else {
        "the last turn has no end in the log, after a crash or a failed store; its messages are not in the conversation"
    }
}

/// Label for the method by which the work ended.
pub(super) fn how(how: EndMethod) -> &'static str {
    match how {
        EndMethod::Acknowledged => "ended on request",
        EndMethod::ConnectionClosed => "connection closed",
        EndMethod::Dropped => "dropped",
        EndMethod::NotBegun => "not begun",
        EndMethod::Sigterm => "SIGTERM",
        EndMethod::Sigkill => "SIGKILL",
        EndMethod::RemoteConfirmed => "ended by its server",
        EndMethod::Failed => "failed when asked",
        EndMethod::OwnerDied => "its process died",
    }
}

/// Label for the proof that an item has ended.
pub(super) fn verified(verified: EndProof) -> &'static str {
    match verified {
        EndProof::FutureDropped => "future dropped",
        EndProof::TaskEnded => "task ended",
        EndProof::ThreadEnded => "thread ended",
        EndProof::SocketClosed => "socket closed",
        EndProof::ProcessGroupEmpty => "process group empty",
        EndProof::ProcessTreeEmpty => "process tree empty",
        EndProof::RemoteConfirmed => "confirmed by its server",
    }
}

/// Label for the reason why work still runs after a stop.
pub(super) fn why(why: NotStoppedReason) -> &'static str {
    match why {
        NotStoppedReason::OutsideExtent => "outside the extent of this stop",
        NotStoppedReason::BlockingThread => "a blocking thread",
        NotStoppedReason::BlocksItsThread => "blocks its thread, so it cannot be dropped",
        NotStoppedReason::ProcessesLeft => "processes are left",
        NotStoppedReason::NotConfirmed => "no confirmation",
        NotStoppedReason::WatcherGone => "its watcher has ended",
        NotStoppedReason::NotAcknowledged => "it has not acknowledged the stop",
        NotStoppedReason::NotAsked => "dry run, not asked to stop",
    }
}

/// Formats a whole number of milliseconds; from one second on, uses a larger unit.
pub(super) fn whole_milliseconds(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => duration(Duration::from_millis(ms)),
    }
}

/// Age of a timestamp, in one unit. If the clock was set back, the age is `now`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.unix_ms().saturating_sub(at.unix_ms()) / 1_000;
    match seconds {
        ..1 => "now".to_owned(),
        1..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400), // at least two
    }
}

/// Describes background work of an earlier process: the work still runs, or has ended since.
pub(crate) fn found(work: &OrphanedWork) -> String {
    let runs = match (work.alive, work.is_out_of_view()) {
        (_, true) => "may still run, in another PID namespace",
        (true, _) => "still runs",
        (false, _) => "has ended",
    };
    format!("{} of an earlier process {runs}: {}", work.id, work.name)
}

/// Like [`found`], but with the chat command that stops the work.
pub(crate) fn found_in_chat(work: &OrphanedWork) -> String {
    let found = found(work);
    if work.alive {
        format!("{found} · to stop it: /stop {}", work.id)
    } else {
        found
    }
}

/// Line with the `command` that stops the background work; `None` if the number of works is 0.
pub(crate) fn to_stop(works: usize, command: &str) -> Option<String> {
    match works {
        0 => None,
        1 => Some(format!("to stop it: {command}")),
        _ => Some(format!("to stop them: {command}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let at = |ms| Timestamp::from_unix_ms(ms);
        assert_eq!(age(at(5_000), at(0)), "now");
        assert_eq!(age(at(0), at(59_000)), "59 s ago");
        assert_eq!(age(at(0), at(47 * 3_600_000)), "47 h ago");
        assert_eq!(age(at(i64::MIN), at(i64::MAX)), "106751991167 days ago");
    }

    /// Regression: the printed text contained the word twice: `denied: shell: permission was denied`.
    #[test]
    fn denial_is_named_once() {
        for (reason, said) in [
            ("permission was denied", "shell"),
            ("permission was denied: not today", "shell: not today"),
            (
                "denied: no terminal or client to ask",
                "shell: no terminal or client to ask",
            ),
            (
                "denied by the permission rule `shell`",
                "shell: by the permission rule `shell`",
            ),
            ("the tool is gone", "shell: the tool is gone"),
        ] {
            assert_eq!(denial(&denied("call_1", reason), None), said);
        }
    }

    /// Regression: five denied calls had five lines `denied: shell`.
    #[test]
    fn denial_names_the_command_or_the_call_of_the_sub_agent() {
        let own = denied("call_1", "permission was denied: not today");
        let said = denial(&own, Some("shell: make"));
        assert_eq!(said, "shell: make · not today");
        let nested = denied("call_1/call_2", "permission was denied");
        assert_eq!(denial(&nested, None), "shell (call_1/call_2)");
    }

    fn denied(call: &str, reason: &str) -> Denial {
        Denial {
            call_id: call.into(),
            tool: "shell".into(),
            reason: reason.to_owned(),
        }
    }
}
