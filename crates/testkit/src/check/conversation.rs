//! Conversations consist of whole turns, in an order that a provider accepts.

use std::sync::Arc;

use allstop_core::record::SessionRecord as R;
use allstop_core::turn::StopPolicy;
use allstop_core::{Message, TurnNumber};

use crate::observe::{RunObservation, WitnessedAnswer};

/// The conversation that results from these records, in the order of the records.
///
/// This function shares no code with the engine, which computes the conversation with its fold of the records. So one
/// mistake cannot be in both.
pub fn conversation_of(records: &[R]) -> Vec<Arc<Message>> {
    let mut said: Vec<(Option<TurnNumber>, Arc<Message>)> = Vec::new();
    for record in records {
        match record {
            R::TurnCommitted { turn, messages, .. }
            | R::TurnStopped {
                turn,
                kept: messages,
                ..
            } => {
                said.extend(
                    messages
                        .iter()
                        .map(|message| (Some(*turn), Arc::clone(message))),
                );
            }
            R::TurnUndone { turn, .. } => said.retain(|(of, _)| of != &Some(*turn)),
            R::Compacted {
                messages_dropped,
                summary,
                ..
            } => {
                let summary = summary.iter().map(Arc::clone);
                let summary = summary.map(|text| (None, Arc::new(Message::Summary { text })));
                let dropped = said.len().min(*messages_dropped as usize);
                drop(said.splice(..dropped, summary));
            }
            _ => {}
        }
    }
    said.into_iter().map(|(_, message)| message).collect()
}

/// True if these are the messages of a session with this log, after a recovery of its last turn. If this turn has no
/// ending, recovery adds the messages that stay in the conversation, and a marker.
pub(super) fn is_recovered(messages: &[Arc<Message>], records: &[R]) -> bool {
    let mut expected = conversation_of(records);
    let mut kept = Vec::new();
    for record in records {
        match record {
            R::MessagesKept { messages, .. } => kept.extend(messages.iter().map(Arc::clone)),
            R::TurnStarted { .. } | R::TurnCommitted { .. } | R::TurnStopped { .. } => kept.clear(),
            _ => {}
        }
    }
    let without_marker = match messages.split_last() {
        Some((marker, rest))
            if !kept.is_empty() && matches!(**marker, Message::StopMarker { .. }) =>
        {
            rest
        }
        _ if !kept.is_empty() => return false,
        _ => messages,
    };
    expected.extend(kept);
    without_marker == expected
}

/// A turn is either completely in the conversation, or has not changed the conversation (invariant 2 in
/// `violation.rs`).
pub(super) fn turns_are_whole(run: &RunObservation) -> Result<(), String> {
    let mut input: Option<&Arc<str>> = None;
    for record in &run.records {
        match record {
            R::TurnStarted { input: words, .. } => {
                input = Some(words).filter(|words| !words.is_empty());
            }
            R::TurnCommitted { messages, .. } => {
                whole(without_notes(messages), input)?;
                said_whole(messages, run)?;
                as_without_the_stop(record, run)?;
            }
            R::TurnStopped { turn, kept, .. } if !kept.is_empty() => {
                if run.stop_policy() == Some(StopPolicy::Rollback) {
                    return Err(format!("turn {turn} was rolled back and left {kept:?}"));
                }
                kept_whole(without_notes(kept), input)?;
                said_whole(kept, run)?;
            }
            _ => {}
        }
    }
    let said = conversation_of(&run.records);
    let session = run.session.as_ref();
    let history = session.and_then(|session| session.history.as_ref());
    if history.is_some_and(|history| history.messages != said) {
        return Err("what the session says was said is not what its log says".to_owned());
    }
    match &run.state {
        Some(state)
            if run.is_settled()
                && state.conversation().messages != said
                && !is_recovered(&state.conversation().messages, &run.records) =>
        {
            Err("what the session holds in memory is not what its log says".to_owned())
        }
        _ => Ok(()),
    }
}

/// A committed turn equals the same turn in the run without the stop. In a session, the user may have sent other
/// messages between the turns.
fn as_without_the_stop(committed: &R, run: &RunObservation) -> Result<(), String> {
    // Without a known point of the stop, no two runs are equal, so the messages cannot be compared.
    let (Some(_), R::TurnCommitted { turn, messages, .. }) = (run.point, committed) else {
        return Ok(());
    };
    let mut others = run.undisturbed().records.iter();
    let same = others.any(|record| {
        matches!(record, R::TurnCommitted { turn: other, messages: others, .. }
            if other == turn && others == messages)
    });
    // The stop of a single call changes the content of its turn. Nothing else may change this content.
    let only_calls = run.disturbance().is_none() && !run.stops.is_empty();
    if same || only_calls || run.session.is_some() {
        return Ok(());
    }
    Err(format!(
        "turn {turn} is committed and not as without the stop"
    ))
}

/// The messages of a turn without the notes about background work at its beginning.
fn without_notes(messages: &[Arc<Message>]) -> &[Arc<Message>] {
    let is_note = |message: &Arc<Message>| matches!(**message, Message::Note { .. });
    let words = messages.iter().position(|message| !is_note(message));
    messages.split_at(words.unwrap_or_default()).1
}

/// A committed turn begins with the user's text and ends with an answer.
fn whole(messages: &[Arc<Message>], input: Option<&Arc<str>>) -> Result<(), String> {
    begins_with(messages, input)?;
    match messages.last().map(AsRef::as_ref) {
        Some(Message::Assistant { tool_calls, .. }) if tool_calls.is_empty() => Ok(()),
        last => Err(format!("a committed turn ends with {last:?}")),
    }
}

/// The messages that a stopped turn keeps in the conversation end with a stop marker.
fn kept_whole(kept: &[Arc<Message>], input: Option<&Arc<str>>) -> Result<(), String> {
    begins_with(kept, input)?;
    match kept.last().map(AsRef::as_ref) {
        Some(Message::StopMarker { .. }) => Ok(()),
        last => Err(format!("what a stopped turn keeps ends with {last:?}")),
    }
}

/// Each answer in the conversation was received completely. A partial answer is dropped together with its tool calls.
fn said_whole(messages: &[Arc<Message>], run: &RunObservation) -> Result<(), String> {
    // A killed run equals the undisturbed run, which is the same run without a stop, until the kill.
    let seen = if run.is_witnessed {
        run
    } else {
        run.undisturbed()
    };
    if !seen.is_witnessed {
        return Ok(());
    }
    let answers = &seen.notes.answers;
    for message in messages {
        let Message::Assistant { text, tool_calls } = &**message else {
            continue;
        };
        // An engine may replace the ids of calls to make them unique.
        let is_this = |answer: &WitnessedAnswer| {
            let mut calls = answer.calls.iter().zip(tool_calls);
            *answer.text == **text
                && answer.calls.len() == tool_calls.len()
                && calls.all(|(said, kept)| said.name == kept.name)
        };
        if !answers.iter().any(is_this) {
            return Err(format!("the model never came to the end of {message:?}"));
        }
    }
    Ok(())
}

fn begins_with(messages: &[Arc<Message>], input: Option<&Arc<str>>) -> Result<(), String> {
    match messages.first().map(AsRef::as_ref) {
        Some(Message::User { text, .. }) if Some(text) == input => Ok(()),
        // Background work started this turn, not a message. Since then, user messages may have been added to the turn.
        Some(Message::Assistant { .. } | Message::StopMarker { .. } | Message::User { .. })
            if input.is_none() =>
        {
            Ok(())
        }
        first => Err(format!("a turn of {input:?} begins with {first:?}")),
    }
}

/// Checks that a provider would accept these messages: each message with tool calls is followed by exactly one result
/// for each call, and the conversation has no other results.
///
/// This function shares no code with the engine, so that one mistake cannot be in both.
///
/// # Errors
/// Returns a description of the first violation.
pub fn history(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let all_answered = |open: &[&str], number: usize| match open {
        [] => Ok(()),
        open => Err(format!(
            "no result for {} before message {number}",
            open.join(", ")
        )),
    };
    for (number, message) in (1..).zip(messages) {
        if let Message::Tool(result) = &**message {
            let id = result.call_id.as_str();
            let place = open.iter().position(|asked| *asked == id);
            let place =
                place.ok_or_else(|| format!("message {number} answers {id}, which is not open"))?;
            open.remove(place);
            continue;
        }
        all_answered(&open, number)?;
        if let Message::Assistant { tool_calls, .. } = &**message {
            open.extend(tool_calls.iter().map(|call| call.id.as_str()));
        }
    }
    all_answered(&open, messages.len() + 1)
}

/// In each request to the model, every tool call has exactly one result, at the correct position (invariant 7).
pub(super) fn requests_are_valid(run: &RunObservation) -> Result<(), String> {
    for (number, request) in run.notes.requests.iter().enumerate() {
        history(request).map_err(|wrong| format!("request {}: {wrong}", number + 1))?;
    }
    history(&super::conversation_of(&run.records_after_next))
}

/// The session accepts the next message (invariant 7).
pub(super) fn next_message_is_taken(run: &RunObservation) -> Result<(), String> {
    match (run.next, run.next_must) {
        (None, _) => Err("the next message has no outcome".to_owned()),
        (Some(reason), Some(must)) if reason != must => {
            Err(format!("the next message ended with {}", reason.as_str()))
        }
        _ => Ok(()),
    }
}
