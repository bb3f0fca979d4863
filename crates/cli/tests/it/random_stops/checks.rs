//! Checks after each stopped run, and at the end of a session.

use std::time::Duration;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::Value;

use super::stopped_session::{FinishedRun, StoppedSession};
use crate::support::agreement::{self, ensure};
use crate::support::wait::within;
use crate::support::{Signal, history};

/// Maximum time between the end of the command and the end of its processes.
const OUTLIVES_MAX: Duration = Duration::from_secs(4);

/// Compares the reports of a stopped run with the facts: its processes and its log.
pub(super) fn after_round(stopped: &mut StoppedSession, round: &FinishedRun) -> Result<(), String> {
    ensure(!round.ended.stderr.contains("panicked"), || {
        "a panic".into()
    })?;
    let keeps = round.case.flags.contains(&"--keep-background");
    // The run was killed, so the envelope (the JSON object with the result) may be missing. But the run may also have
    // printed it before.
    if round.owes_nothing && agreement::envelope(&round.ended).is_err() {
        stopped.count("killed");
        let gone = within(OUTLIVES_MAX, || {
            stopped.place.leftovers().is_empty().then_some(())
        });
        ensure(gone.is_some() || keeps, || {
            format!("left by a killed run: {:#?}", stopped.place.leftovers())
        })?;
    } else {
        let envelope = agreement::envelope(&round.ended)?;
        check_cause(round, &envelope)?;
        let log = agreement::check(&stopped.place, &envelope)?;
        check_run(stopped, round, &envelope, &log)?;
        stopped.count(envelope["stop_reason"].as_str().unwrap_or_default());
        stopped.session = envelope["session_id"]
            .as_str()
            .map(Into::into)
            .or(stopped.session.take());
        if let Some(conversation) = envelope["receipt"]["conversation"].as_str() {
            stopped.count(format!("conversation {conversation}"));
        }
        if envelope["receipt"]["quiet"] == false {
            stopped.count("not quiet");
        }
    }
    // End the kept background work, because it must not run in the next round.
    stopped.place.kill_leftovers();
    find_session(stopped);
    Ok(())
}

/// Checks that the first cause determines the exit code, regardless of later signals.
fn check_cause(round: &FinishedRun, envelope: &Value) -> Result<(), String> {
    let mut allowed = vec![0];
    allowed.extend(round.first.iter().map(|signal| match *signal {
        Signal::INT => 130,
        Signal::HUP => 129,
        _ => 143,
    }));
    if round.case.timeout_ms.is_some() {
        allowed.push(124);
    }
    let error = envelope["error"]["kind"].as_str();
    // If a retry of the model call would begin after the deadline, the run ends with the error `unavailable` at once.
    let no_time = error == Some("unavailable") && round.case.timeout_ms.is_some();
    if no_time || error.is_some() && (round.case.is_remote || !round.case.faults.is_empty()) {
        allowed.push(1);
    }
    ensure(allowed.contains(&round.ended.code), || {
        format!("exit code {}, not one of {allowed:?}", round.ended.code)
    })?;
    let by_code = match round.ended.code {
        130 => "user",
        143 | 129 => "shutdown",
        124 => "deadline",
        _ => return Ok(()),
    };
    // A second stop can have another cause, if background work has begun after the first stop.
    let first = &envelope["receipts"][0];
    for kind in [&envelope["cause"]["kind"], &first["cause"]["kind"]] {
        ensure(kind.is_null() || kind == by_code, || {
            format!("exit code {} for {kind}: {envelope:#}", round.ended.code)
        })?;
    }
    Ok(())
}

/// Compares the turns of the run with the log: their number, their usage, and their background work.
fn check_run(
    stopped: &StoppedSession,
    round: &FinishedRun,
    envelope: &Value,
    log: &Value,
) -> Result<(), String> {
    let (first, last) = (
        stopped.turns + 1,
        envelope["turn"].as_u64().unwrap_or(stopped.turns),
    );
    if envelope["error"]["kind"] == "store" || envelope["session_id"].is_null() {
        return Ok(());
    }
    let turns: Vec<&Value> = (first..=last)
        .map(|number| agreement::turn_of(log, number))
        .collect();
    let untrue = |what: &str| Err(format!("{what}: {turns:#?}"));
    if turns_of(log) > last {
        return untrue("a turn that the envelope does not know of");
    }
    let Some((ended, before)) = turns.split_last() else {
        return Ok(());
    };
    if before.iter().any(|turn| turn["stop_reason"] != "completed") {
        return untrue("a turn came after one that was not completed");
    }
    if ended["stop_reason"].is_null() {
        // Because of the faults, the record that ends the turn was not written. The next open of the session writes
        // this record.
        return if round.case.faults.is_empty() {
            untrue("no ending")
        } else {
            Ok(())
        };
    }
    let sum = |pointer: &str| -> u64 {
        let numbers = turns
            .iter()
            .map(|turn| turn.pointer(pointer).and_then(Value::as_u64));
        numbers.flatten().sum()
    };
    for pointer in ["/usage/input_tokens", "/usage/output_tokens", "/steps"] {
        let said = envelope.pointer(pointer).and_then(Value::as_u64);
        if said != Some(sum(pointer)) {
            return untrue(&format!(
                "{pointer} is {said:?}, the log has {}",
                sum(pointer)
            ));
        }
    }
    if round.case.faults.is_empty() {
        check_background(envelope, log)?;
    }
    Ok(())
}

fn turns_of(log: &Value) -> u64 {
    log["turns"]
        .as_array()
        .map_or(0, |turns| turns.len() as u64)
}

/// Checks that the receipt and the log agree about background work.
fn check_background(envelope: &Value, log: &Value) -> Result<(), String> {
    let items = envelope["receipt"]["items"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let ended = ["stopped", "finished"];
    for item in items.iter().filter(|item| item["kind"] == "background") {
        let works = log["background"].as_array().map_or(&[][..], Vec::as_slice);
        let logged = works.iter().find(|work| work["id"] == item["id"]);
        let logged = logged.map_or(&Value::Null, |work| &work["ended"]["state"]);
        let said = item["state"].as_str().unwrap_or_default();
        ensure(!ended.contains(&said) || logged == said, || {
            format!("{item:#}: the log has {logged}")
        })?;
    }
    Ok(())
}

/// Finds the session of a run that was killed before it printed the session id.
fn find_session(stopped: &mut StoppedSession) {
    if stopped.session.is_none() && stopped.place.store().exists() {
        let listed = stopped.place.sessions().args("list --json").end();
        // If the run was killed while it created the store, the list cannot be read.
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        stopped.session = listed["sessions"][0]["session_id"].as_str().map(Into::into);
    }
    // A killed run may have begun turns that it has not reported, so count the turns in the log.
    if let Some(session) = &stopped.session
        && let Ok(log) = agreement::log_of(&stopped.place, session)
    {
        stopped.turns = turns_of(&log);
    }
}

/// Checks that the next run works. Its request to the model must contain exactly the turns that the log lists as
/// committed or kept.
pub(super) fn next_run(stopped: &mut StoppedSession) -> Result<(), String> {
    let Some(session) = &stopped.session else {
        return Ok(());
    };
    let stays = |turn: &&Value| {
        turn["stop_reason"] == "completed"
            || turn["receipt"]["conversation"] == "kept_completed_steps"
    };
    let server = OpenAiServer::start([ServerAnswer::text("Yes.")]);
    let run = stopped
        .place
        .run()
        .args("--model any --json --base-url")
        .arg(server.url());
    let ended = run.arg("--session").arg(session).arg("check").end();
    ensure(ended.code == 0, || {
        format!("the next run failed: {ended:#?}")
    })?;
    agreement::check(&stopped.place, &agreement::envelope(&ended)?)?;
    let requests = server.requests();
    let messages = requests
        .first()
        .map_or(&[][..], |request| request.messages());
    history::assert_valid(messages);
    // The next run has ended an interrupted turn in the log. Its own turn is the last one.
    let log = agreement::log_of(&stopped.place, session)?;
    let turns = log["turns"].as_array().cloned().unwrap_or_default();
    let expected: Vec<&str> = turns
        .iter()
        .filter(stays)
        .filter_map(|turn| turn["input"].as_str())
        .filter(|input| *input != "check")
        .collect();
    // Consecutive user messages are sent as one message, together with the notes to the model between them.
    let sent = history::prompts(messages).join("\n\n");
    let sent: Vec<&str> = sent.split("\n\n").filter(|part| is_prompt(part)).collect();
    ensure(sent == expected, || {
        format!("the next run was told {sent:?}, and the log has {expected:?}: {log:#}")
    })?;
    stopped.count("turns that stay");
    Ok(())
}

/// True if the text is a prompt of this test, such as `quick 1.0`.
fn is_prompt(part: &str) -> bool {
    let number = part
        .split_once(' ')
        .and_then(|(_, number)| number.parse::<f64>().ok());
    number.is_some()
}
