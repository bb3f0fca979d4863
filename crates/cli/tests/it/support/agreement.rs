//! Compares the reports of a run (envelope, receipt, exit code) with the facts (log, processes in `/proc`).

use serde_json::Value;

use super::wait::within;
use super::{Ended, Place};
use std::time::Duration;

/// Time after the end of the command within which its keeper processes must end the remaining processes.
const OUTLIVES_MAX: Duration = Duration::from_secs(4);

/// The envelope (the JSON object with the result) of a finished run. With `--stream-json`, the envelope is the last
/// line.
///
/// # Errors
/// If the envelope is invalid, or disagrees with the exit code.
pub(crate) fn envelope(ended: &Ended) -> Result<Value, String> {
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let parse = |line: &str| -> Result<Value, String> {
        serde_json::from_str(line).map_err(|error| format!("{error}: {line:?}"))
    };
    let Some((last, before)) = lines.split_last() else {
        return Err("no envelope".into());
    };
    for line in before {
        if parse(line)?["schema"] != "allstop.event/1" {
            return Err(format!("neither an event nor the last line: {line}"));
        }
    }
    let envelope = parse(last)?;
    super::schema::check("envelope", &envelope)?;
    if envelope["exit_code"] != ended.code {
        return Err(format!(
            "exit code {} in the envelope",
            envelope["exit_code"]
        ));
    }
    let codes: &[i32] = match envelope["stop_reason"].as_str().unwrap_or_default() {
        "completed" => &[0],
        "error" => &[1],
        "timeout" => &[124],
        "cancelled" => &[130],
        "shutdown" => &[143, 129],
        other => return Err(format!("an unexpected stop reason: {other}")),
    };
    if !codes.contains(&ended.code) {
        return Err(format!(
            "{} with exit code {}",
            envelope["stop_reason"], ended.code
        ));
    }
    Ok(envelope)
}

/// Compares an envelope with the remaining processes and with the log. Call this function immediately after the end of
/// the run. Returns the log.
///
/// # Errors
/// Describes the first disagreement.
pub(crate) fn check(place: &Place, envelope: &Value) -> Result<Value, String> {
    check_processes(place, envelope)?;
    let Some(session) = envelope["session_id"].as_str() else {
        let has_no_turn = envelope["turn"].is_null();
        ensure(has_no_turn, || "a turn without a session".into())?;
        return Ok(Value::Null);
    };
    let log = log_of(place, session)?;
    if let Some(number) = envelope["turn"].as_u64() {
        check_turn(envelope, turn_of(&log, number))?;
    }
    Ok(log)
}

/// The turn with this number in a log; null if the log has no such turn.
pub(crate) fn turn_of(log: &Value, number: u64) -> &Value {
    let turns = log["turns"].as_array().map_or(&[][..], Vec::as_slice);
    let turn = turns.iter().find(|turn| turn["turn"] == number);
    turn.unwrap_or(&Value::Null)
}

/// If the receipt is quiet, no process may be left. Otherwise the receipt must name every remaining process. Except for
/// kept background work, no process may outlive the command for long.
fn check_processes(place: &Place, envelope: &Value) -> Result<(), String> {
    let left = place.leftovers();
    let receipt = &envelope["receipt"];
    let keeps = envelope["background"]
        .as_array()
        .is_some_and(|kept| !kept.is_empty());
    let left_something = |item: &Value| {
        let outside = item["state"] == "still_running" && item["why"] == "outside_extent";
        ["still_running", "unreachable", "refused"]
            .contains(&item["state"].as_str().unwrap_or_default())
            && !outside
    };
    let items = receipt["items"].as_array().map_or(&[][..], Vec::as_slice);
    let breaks_quiet = items.iter().any(left_something);
    if !receipt.is_null() && (receipt["quiet"] == true) == breaks_quiet {
        return Err("`quiet` does not go with the items".into());
    }
    if receipt["cancel_observed"] == true && breaks_quiet {
        return Err("`cancel_observed` does not go with the items".into());
    }
    if left.is_empty() {
        return Ok(());
    }
    if !keeps && (receipt.is_null() || receipt["quiet"] == true) {
        return Err(format!("still there, and no receipt says so: {left:#?}"));
    }
    let gone = within(OUTLIVES_MAX, || place.leftovers().is_empty().then_some(()));
    if gone.is_none() && !keeps {
        return Err(format!("still there long after: {:#?}", place.leftovers()));
    }
    Ok(())
}

/// Checks that the log and the envelope agree about the last turn of the run.
fn check_turn(envelope: &Value, turn: &Value) -> Result<(), String> {
    let (said, logged) = (&envelope["stop_reason"], &turn["stop_reason"]);
    let agree = |is_so: bool, what: &str| ensure(is_so, || format!("{what}: the log has {turn:#}"));
    let conversation = envelope["receipt"]["conversation"].as_str();
    // If a stop comes after the turn, for example during the wait for background work, the answer stays in the
    // envelope.
    if logged == "completed" && envelope["output"] != "" {
        return Ok(());
    }
    if conversation == Some("unknown") {
        // Even if it is unknown which part of the turn was kept, the end of the turn and its stop reason may be known.
        let is_of_store = said == "error" && envelope["error"]["kind"] == "store";
        // A turn that failed without a stop has an error.
        let is_said = said != "error" || !envelope["error"].is_null();
        let has_ended = is_said && said != "completed" && (logged.is_null() || logged == said);
        return agree(is_of_store || has_ended, "an unknown conversation");
    }
    // The wait for background work was stopped after the commit, so the answer exists.
    if logged == "completed" && said != "completed" {
        let is_answered = envelope["output"]
            .as_str()
            .is_some_and(|text| !text.is_empty());
        let is_cut = ["cancelled", "timeout", "shutdown"]
            .iter()
            .any(|reason| said == reason);
        return agree(is_answered && is_cut, "completed, or not");
    }
    let both_completed = (said == "completed") == (logged == "completed");
    agree(both_completed, "completed, or not")?;
    let was_kept = conversation == Some("kept_completed_steps");
    agree(!was_kept || !logged.is_null(), "nothing was kept")?;
    agree(logged.is_null() || said == logged, "another stop reason")?;
    check_receipts(envelope, turn)
}

/// Checks that the receipts of the turn's stop in the log and in the envelope are equal.
fn check_receipts(envelope: &Value, turn: &Value) -> Result<(), String> {
    let (said, logged) = (&envelope["receipt"], &turn["receipt"]);
    if said.is_null() || logged.is_null() || said["extent"] != logged["extent"] {
        return Ok(());
    }
    let mut keys = ["stop_id", "cause", "conversation"].into_iter();
    let other = keys.find(|key| said[key] != logged[key]);
    ensure(other.is_none(), || {
        format!("another {other:?} in the log: {logged:#}")
    })
}

/// Returns an error with this text unless the condition holds.
pub(crate) fn ensure(is_so: bool, lie: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(lie()) }
}

/// A session as `sessions show` prints it.
pub(crate) fn log_of(place: &Place, session: &str) -> Result<Value, String> {
    let shown = place
        .sessions()
        .args("show --json --full")
        .arg(session)
        .end();
    if shown.code != 0 {
        return Err(format!("the session cannot be shown: {shown:#?}"));
    }
    serde_json::from_str(&shown.stdout).map_err(|error| error.to_string())
}

/// The stop reason of the last turn in the only session; `None` if the store has no session or the turn has no end.
pub(crate) fn last_stop_reason(place: &Place) -> Result<Option<String>, String> {
    if !place.store().exists() {
        return Ok(None);
    }
    let listed = place.sessions().args("list --json").end();
    let listed: Value =
        serde_json::from_str(&listed.stdout).map_err(|error| format!("{error}: {listed:#?}"))?;
    let Some(session) = listed["sessions"][0]["session_id"].as_str() else {
        return Ok(None);
    };
    let log = log_of(place, session)?;
    let last = log["turns"].as_array().and_then(|turns| turns.last());
    Ok(last.and_then(|turn| turn["stop_reason"].as_str().map(Into::into)))
}
