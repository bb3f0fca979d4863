//! Notes for the model about background work that has ended since the previous notes.

use std::sync::Arc;

use allstop_core::receipt::ItemState;
use allstop_core::turn::{BackgroundNote, RecordedWork};
use allstop_scope::catch_panic;
use allstop_tools::BackgroundHost as _;

use crate::background::SessionBackground;
use crate::history::RunHistory;
use crate::hook::Hook;

/// Maximum number of characters of output in a note. The note contains the end of the output, the part that a person
/// would read first. The model can request the rest.
const NOTE_OUTPUT_CHARS: usize = 2_000;

/// Maximum number of notes in one turn. The remaining notes follow with the next turn.
const NOTES_MAX: usize = 16;

/// Returns the notes for the start of the next turn, as revised by the hooks. The log determines which notes are
/// undelivered, so a note from a turn that was rolled back is sent again.
pub(crate) fn undelivered_notes(
    history: &RunHistory,
    background: &SessionBackground,
    hooks: &[Arc<dyn Hook>],
) -> Vec<BackgroundNote> {
    let RunHistory::Logged(session) = history else {
        return Vec::new();
    };
    let works = session.state().unreported_background().take(NOTES_MAX);
    let notes = works.map(|work| note(work, background));
    notes.map(|note| revised(note, hooks)).collect()
}

fn revised(note: BackgroundNote, hooks: &[Arc<dyn Hook>]) -> BackgroundNote {
    let revise = |text, hook: &Arc<dyn Hook>| catch_panic(hook.name(), || hook.revise_note(text));
    let text = hooks.iter().try_fold(note.text, revise);
    let withheld = || {
        format!(
            "Background work {} has ended. A hook has failed, so its output is withheld.",
            note.id
        )
        .into()
    };
    BackgroundNote {
        text: text.unwrap_or_else(withheld),
        id: note.id,
    }
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
    let live = live.iter().find(|live| live.id == work.id);
    let answer = live.and_then(|live| live.end()?.answer);
    // After the end of its process, only the log has the answer.
    let answer = answer.or_else(|| work.answer.clone());
    let is_answer = answer.is_some();
    let output = answer.or_else(|| live.map(|live| live.output().into()));
    if let Some(output) = output {
        let (end, is_cut) = end_of(&output);
        if !end.trim().is_empty() {
            text.push_str(match (is_answer, is_cut) {
                (true, false) => " Its answer:\n",
                (true, true) => " The end of its answer:\n",
                (false, true) => " The end of its output:\n",
                (false, false) => " Its output:\n",
            });
            text.push_str(end.trim_end());
        }
    }
    BackgroundNote {
        id: work.id.clone(),
        text: Arc::from(text),
    }
}

/// The end of a text for a note. The flag is true if the text is longer.
pub(crate) fn end_of(text: &str) -> (&str, bool) {
    let start = text.char_indices().rev().nth(NOTE_OUTPUT_CHARS - 1);
    let start = start.map_or(0, |(start, _)| start);
    (&text[start..], start > 0)
}
