//! The note to the model about the calls that the conversation does not show.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::message::Message;
use crate::terminal_text::{escape, is_unsafe};
use crate::turn::effects::{CallEffect, LostTurn, TurnEffects};

/// Maximum length of a note, in bytes: about two thousand tokens. A turn's line and a call's line are much shorter.
const NOTE_BYTES_MAX: usize = 8 * 1024;

/// Beginning of each note.
const NOTE_HEADER: &str = "Note of Allstop, not of the user: the calls below are not in this conversation, because their \
                           turns were stopped, refused, undone or cut off by a crash. The calls may have changed \
                           something. Do not repeat a completed call without being asked to.\n";

/// Maximum length of the line that counts the calls that a note does not name.
const COUNT_BYTES_MAX: usize = 64;

/// The note to the model about these turns. `None` if there are none.
pub(super) fn note_about(lost: &[LostTurn]) -> Option<Arc<Message>> {
    if lost.is_empty() {
        return None;
    }
    let mut text = NOTE_HEADER.to_owned();
    let mut omitted = 0;
    for turn in named_in_note(lost) {
        omitted += turn.effects.omitted;
        if turn.effects.calls.is_empty() {
            continue;
        }
        text.push_str(&header_of(&turn));
        for call in &turn.effects.calls {
            text.push_str(&line_about(call, turn.input.is_empty()));
        }
    }
    let mut text = text.trim_end().to_owned();
    if omitted > 0 {
        let _never_fails = write!(text, "\n{omitted} other calls are not listed.");
    }
    Some(Arc::new(Message::Note { text: text.into() }))
}

/// These turns with the calls that a note names. The other calls are only counted. Calls with an unknown outcome come
/// first, because the model must not repeat them; of the others, the newest are named.
pub(super) fn named_in_note(lost: &[LostTurn]) -> Vec<LostTurn> {
    let newest = lost.iter().enumerate().rev().flat_map(|(turn, of_turn)| {
        let calls = of_turn.effects.calls.iter().enumerate().rev();
        calls.map(move |(place, call)| (turn, place, call))
    });
    let (uncertain, rest): (Vec<_>, Vec<_>) = newest.partition(|(_, _, call)| call.is_uncertain());
    let mut named: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); lost.len()];
    let mut bytes = NOTE_HEADER.len() + COUNT_BYTES_MAX;
    for (turn, place, call) in uncertain.into_iter().chain(rest) {
        let mut more = line_about(call, lost[turn].input.is_empty()).len();
        if named[turn].is_empty() {
            more += header_of(&lost[turn]).len();
        }
        if bytes + more <= NOTE_BYTES_MAX {
            bytes += more;
            named[turn].insert(place);
        }
    }
    let turns = lost.iter().zip(named);
    let turns = turns.map(|(turn, named)| {
        let calls = &turn.effects.calls;
        let omitted = turn.effects.omitted + (calls.len() - named.len()) as u32;
        let calls = named
            .into_iter()
            .map(|place| calls[place].clone())
            .collect();
        LostTurn {
            effects: TurnEffects { calls, omitted },
            ..turn.clone()
        }
    });
    turns.collect()
}

/// Line of a note above the calls of a turn.
fn header_of(turn: &LostTurn) -> String {
    match &*turn.input {
        "" => format!("Turn {}.\n", turn.turn),
        input => format!(
            "Turn {}. Its message began with: {}\n",
            turn.turn,
            one_line(input)
        ),
    }
}

/// `is_refused` is true if a guardrail refused the turn: its texts must not reach the model.
fn line_about(call: &CallEffect, is_refused: bool) -> String {
    let mut named = call.clone();
    named.label = named.label.filter(|_| !is_refused);
    let mut line = format!("- {named}.");
    let result = call.result.as_deref().unwrap_or_default().trim();
    if !result.is_empty() {
        let _never_fails = write!(line, " Its result began with: {}", one_line(result));
    }
    line.push('\n');
    line
}

/// Escapes line ends and other control characters, so that a text cannot look like a line of the note.
fn one_line(text: &str) -> String {
    escape(text, is_unsafe).into_owned()
}
