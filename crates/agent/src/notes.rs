//! Notes for the model about background work that has ended since its last note.

use std::sync::Arc;

use allstop_core::receipt::ItemState;
use allstop_core::turn::{Note, RecordedWork};
use allstop_tools::BackgroundHost as _;

use crate::background::Background;
use crate::history::History;

/// Characters of output in a note: the part that a person would read first. The model can request the rest.
const NOTE_OUTPUT_CHARS: usize = 2_000;

/// Maximum number of notes in one turn; the rest follows with the next turn.
const NOTES_MAX: usize = 16;

/// Notes for the start of the next turn. The log decides: a note from a turn that was rolled back is sent again.
pub(crate) fn untold(history: &History, background: &Background) -> Vec<Note> {
    let History::Logged(session) = history else {
        return Vec::new();
    };
    let untold = session.state().untold().take(NOTES_MAX);
    untold.map(|work| note(work, background)).collect()
}

fn note(work: &RecordedWork, background: &Background) -> Note {
    let how = match &work.ended {
        Some((ItemState::Finished { .. }, Some(code))) => {
            format!("has ended with exit code {code}")
        }
        Some((ItemState::Finished { .. }, None)) | None => "has ended".to_owned(),
        Some((ItemState::Stopped { .. }, _)) => "was stopped".to_owned(),
        Some(_) => "has ended, and nobody saw how".to_owned(),
    };
    let mut text = format!("Background work {} (`{}`) {how}.", work.id, work.name);
    let live = background.works();
    if let Some(live) = live.iter().find(|live| live.id == work.id) {
        let said = live.end().and_then(|end| end.answer);
        let answers = said.is_some();
        let output = said.map_or_else(|| live.output(), |said| said.to_string());
        let skipped = output.chars().count().saturating_sub(NOTE_OUTPUT_CHARS);
        let tail: String = output.chars().skip(skipped).collect();
        if !tail.trim().is_empty() {
            text.push_str(match (answers, skipped > 0) {
                (true, false) => " It says:\n",
                (true, true) => " The end of what it says:\n",
                (false, true) => " The end of its output:\n",
                (false, false) => " Its output:\n",
            });
            text.push_str(tail.trim_end());
        }
    }
    Note {
        id: work.id.clone(),
        text: Arc::from(text),
    }
}
