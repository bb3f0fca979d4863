//! Notes for the model about background work that has ended since the previous notes.

use std::sync::Arc;

use allstop_core::receipt::ItemState;
use allstop_core::turn::{BackgroundNote, RecordedWork};
use allstop_tools::BackgroundHost as _;

use crate::background::SessionBackground;
use crate::history::RunHistory;

/// Maximum number of characters of output in a note. The note contains the end of the output, the part that a person
/// would read first. The model can request the rest.
const NOTE_OUTPUT_CHARS: usize = 2_000;

/// Maximum number of notes in one turn. The remaining notes follow with the next turn.
const NOTES_MAX: usize = 16;

/// Returns the notes for the start of the next turn. The log determines which notes are undelivered, so a note from a
/// turn that was rolled back is sent again.
pub(crate) fn undelivered_notes(
    history: &RunHistory,
    background: &SessionBackground,
) -> Vec<BackgroundNote> {
    let RunHistory::Logged(session) = history else {
        return Vec::new();
    };
    let works = session.state().unreported_background().take(NOTES_MAX);
    works.map(|work| note(work, background)).collect()
}

fn note(work: &RecordedWork, background: &SessionBackground) -> BackgroundNote {
    let how = match &work.ended {
        Some((ItemState::Finished { .. }, Some(code))) => {
            format!("has ended with exit code {code}")
        }
        Some((ItemState::Finished { .. }, None)) | None => "has ended".to_owned(),
        Some((ItemState::Stopped { .. }, _)) => "was stopped".to_owned(),
        Some(_) => "has ended with an unknown outcome".to_owned(),
    };
    let mut text = format!("Background work {} (`{}`) {how}.", work.id, work.name);
    let live = background.works();
    if let Some(live) = live.iter().find(|live| live.id == work.id) {
        let answer = live.end().and_then(|end| end.answer);
        let is_answer = answer.is_some();
        let output = answer.map_or_else(|| live.output(), |answer| answer.to_string());
        let skipped = output.chars().count().saturating_sub(NOTE_OUTPUT_CHARS);
        let tail: String = output.chars().skip(skipped).collect();
        if !tail.trim().is_empty() {
            text.push_str(match (is_answer, skipped > 0) {
                (true, false) => " Its answer:\n",
                (true, true) => " The end of its answer:\n",
                (false, true) => " The end of its output:\n",
                (false, false) => " Its output:\n",
            });
            text.push_str(tail.trim_end());
        }
    }
    BackgroundNote {
        id: work.id.clone(),
        text: Arc::from(text),
    }
}
