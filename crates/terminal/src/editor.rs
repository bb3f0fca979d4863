//! The line that a person edits.
//!
//! Editing uses rustyline's `LineBuffer`, but not rustyline's own loop. Rustyline's loop writes to the terminal itself,
//! and prints other output above the prompt only in whole lines. In this crate, only one thread writes to the terminal,
//! and an answer appears letter by letter above the prompt.

use rustyline::At;
use rustyline::Word;
use rustyline::line_buffer::{ChangeListener, DeleteListener, Direction, LineBuffer};

use super::edit_history::EditHistory;
use super::keys::Key;
use super::pasted_text::PastedTexts;

/// Maximum bytes of text that can be typed or pasted at once. A long source file has about this size. A longer text
/// should be in a file that the model reads.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// Result of a pressed key.
#[derive(Debug, PartialEq, Eq)]
pub enum EditResult {
    /// The text or the cursor may have changed.
    Edited,
    /// Enter: the text was submitted.
    Submitted(String),
    /// Ctrl-D on an empty line.
    EndOfInput,
    /// The key Up in the first line of the text.
    Back,
    /// The key Down in the last line of the text.
    Forward,
    /// The key for a search through earlier lines.
    Search,
    /// The text is too long.
    TooLong,
}

/// The line that a person edits.
#[derive(Debug)]
pub struct LineEditor {
    buffer: LineBuffer,
    killed: String,
    pasted: PastedTexts,
    earlier: EditHistory,
}

/// Listener for changes of the buffer that ignores all changes.
struct NoListener;

impl DeleteListener for NoListener {
    fn delete(&mut self, _idx: usize, _string: &str, _dir: Direction) {}
}

impl ChangeListener for NoListener {
    fn insert_char(&mut self, _idx: usize, _c: char) {}
    fn insert_str(&mut self, _idx: usize, _string: &str) {}
    fn replace(&mut self, _idx: usize, _old: &str, _new: &str) {}
}

/// Listener that keeps the text deleted by Ctrl-K, Ctrl-U, Ctrl-W or Alt-D, so that Ctrl-Y can insert the text again.
struct KillBuffer<'a>(&'a mut String);

impl DeleteListener for KillBuffer<'_> {
    fn delete(&mut self, _idx: usize, string: &str, _dir: Direction) {
        string.clone_into(self.0);
    }
}

impl Default for LineEditor {
    fn default() -> Self {
        Self {
            buffer: LineBuffer::with_capacity(TEXT_BYTES_MAX),
            killed: String::new(),
            pasted: PastedTexts::default(),
            earlier: EditHistory::default(),
        }
    }
}

impl LineEditor {
    /// The current text, with tokens for long pasted texts.
    pub fn text(&self) -> &str {
        self.buffer.as_str()
    }

    /// Position of the cursor, in bytes.
    pub fn cursor(&self) -> usize {
        self.buffer.pos()
    }

    /// The current text, with the long pasted texts.
    pub fn whole_text(&self) -> String {
        self.pasted.unfold(self.text())
    }

    /// Replaces the text, and returns the old text. A long text is shown as a token.
    pub fn replace(&mut self, text: &str) -> String {
        let old = self.text().to_owned();
        let text = self.pasted.fold(text.to_owned(), "");
        self.buffer.update(&text, text.len(), &mut NoListener);
        old
    }

    /// Takes the text for sending, and begins a new line.
    fn take(&mut self) -> String {
        let whole = self.whole_text();
        self.buffer.update("", 0, &mut NoListener);
        self.pasted.clear();
        self.earlier.clear();
        whole
    }

    /// Handles a pressed key.
    pub fn press(&mut self, key: Key) -> EditResult {
        if key.edits() {
            let adds_letter = matches!(key, Key::Letter(c) if !c.is_whitespace());
            let (line, cursor) = (self.buffer.as_str(), self.buffer.pos());
            self.earlier.keep(line, cursor, adds_letter);
        }
        let (before, after) = self.buffer.as_str().split_at(self.buffer.pos());
        let token_before = self.pasted.token_before(before).unwrap_or(1);
        let token_after = self.pasted.token_after(after).unwrap_or(1);
        let buffer = &mut self.buffer;
        let mut kill = KillBuffer(&mut self.killed);
        match key {
            Key::Letter(c) => {
                if buffer.insert(c, 1, &mut NoListener).is_none() {
                    return EditResult::TooLong;
                }
            }
            Key::Paste(text) => {
                if text.len() + self.pasted.len() > TEXT_BYTES_MAX {
                    return EditResult::TooLong;
                }
                let text = self.pasted.fold(text, buffer.as_str());
                let has_room = text.is_empty() || buffer.yank(&text, 1, &mut NoListener).is_some();
                if !has_room {
                    return EditResult::TooLong;
                }
            }
            Key::NewLine => return self.press(Key::Letter('\n')),
            Key::Enter => return EditResult::Submitted(self.take()),
            Key::EndOfInput if buffer.is_empty() => return EditResult::EndOfInput,
            Key::EndOfInput | Key::Delete => {
                drop(buffer.delete(repeat(token_after), &mut NoListener));
            }
            Key::Backspace => {
                drop_moved(buffer.backspace(repeat(token_before), &mut NoListener));
            }
            Key::Left => drop_moved(buffer.move_backward(repeat(token_before))),
            Key::Right => drop_moved(buffer.move_forward(repeat(token_after))),
            Key::Transpose => drop_moved(buffer.transpose_chars(&mut NoListener)),
            Key::Undo => {
                if let Some((line, cursor)) = self.earlier.undo(buffer.as_str()) {
                    buffer.update(&line, cursor, &mut NoListener);
                }
            }
            Key::WordLeft => drop_moved(buffer.move_to_prev_word(Word::Emacs, 1)),
            Key::WordRight => drop_moved(buffer.move_to_next_word(At::AfterEnd, Word::Emacs, 1)),
            Key::Home => drop_moved(buffer.move_home()),
            Key::End => drop_moved(buffer.move_end()),
            Key::KillToEnd => drop_moved(buffer.kill_line(&mut kill)),
            Key::KillToStart => drop_moved(buffer.discard_line(&mut kill)),
            Key::KillWordBack => drop_moved(buffer.delete_prev_word(Word::Emacs, 1, &mut kill)),
            Key::KillWord => {
                drop_moved(buffer.delete_word(At::AfterEnd, Word::Emacs, 1, &mut kill));
            }
            Key::Yank => {
                let killed = self.killed.clone();
                return self.press(Key::Paste(killed));
            }
            Key::Up => match self.line_above() {
                Some(at) => self.buffer.set_pos(at),
                None => return EditResult::Back,
            },
            Key::Down => match self.line_below() {
                Some(at) => self.buffer.set_pos(at),
                None => return EditResult::Forward,
            },
            Key::Search => return EditResult::Search,
            Key::Redraw
            | Key::OpenEditor
            | Key::Escape
            | Key::Complete
            | Key::NextMode
            | Key::FocusGained
            | Key::FocusLost => {}
        }
        EditResult::Edited
    }

    /// Byte position of the cursor after a move to the line above. The cursor keeps its number of letters from the
    /// start of the line, or moves to the end of a shorter line. `None` in the first line.
    fn line_above(&self) -> Option<usize> {
        let (before, _) = self.text().split_at(self.cursor());
        let (above, line) = before.rsplit_once('\n')?;
        let (_, shown) = above.rsplit_once('\n').unwrap_or(("", above));
        Some(above.len() - shown.len() + bytes_of(shown, line.chars().count()))
    }

    /// Byte position of the cursor after a move to the line below, like [`line_above`](Self::line_above). `None` in the
    /// last line.
    fn line_below(&self) -> Option<usize> {
        let (before, after) = self.text().split_at(self.cursor());
        let (_, line) = before.rsplit_once('\n').unwrap_or(("", before));
        let (rest, below) = after.split_once('\n')?;
        let below = below.lines().next().unwrap_or_default();
        Some(before.len() + rest.len() + 1 + bytes_of(below, line.chars().count()))
    }
}

/// A number of letters, as the buffer takes it.
fn repeat(letters: usize) -> u16 {
    u16::try_from(letters).unwrap_or(u16::MAX)
}

/// Byte length of the first `letters` letters, or of the whole text if it has fewer letters.
fn bytes_of(text: &str, letters: usize) -> usize {
    text.char_indices()
        .nth(letters)
        .map_or(text.len(), |(at, _)| at)
}

/// Ignores the result of a key, which is true if the key changed the text or moved the cursor. The editor is drawn
/// again in both cases.
fn drop_moved(_moved: bool) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: impl IntoIterator<Item = Key>) -> (String, usize) {
        let mut editor = LineEditor::default();
        for key in keys {
            editor.press(key);
        }
        (editor.text().to_owned(), editor.cursor())
    }

    fn paste(text: &str) -> Key {
        Key::Paste(text.to_owned())
    }

    #[test]
    fn keys_edit_as_in_every_shell() {
        let (text, _) = typed([paste("one two"), Key::KillWordBack, Key::Home, Key::Yank]);
        assert_eq!(text, "twoone ");
        let flag = [paste("a👩‍🚀"), Key::Backspace];
        assert_eq!(typed(flag).0, "a", "what looks like one letter is one");
        let moved = [paste("one two"), Key::WordLeft, Key::KillToEnd];
        assert_eq!(typed(moved), ("one ".to_owned(), 4));
    }

    #[test]
    fn up_moves_through_the_lines_before_the_history() {
        let mut editor = LineEditor::default();
        editor.press(paste("abc\nde\nfgh"));
        assert_eq!(editor.press(Key::Up), EditResult::Edited);
        assert_eq!(editor.cursor(), 6, "the line above is shorter");
        assert_eq!(editor.press(Key::Up), EditResult::Edited);
        assert_eq!(editor.press(Key::Up), EditResult::Back);
        assert_eq!(editor.press(Key::Down), EditResult::Edited);
        assert_eq!(editor.press(Key::Down), EditResult::Edited);
        assert_eq!(editor.press(Key::Down), EditResult::Forward);
    }

    #[test]
    fn enter_submits_and_ctrl_d_leaves_an_empty_line() {
        let mut editor = LineEditor::default();
        editor.press(paste("hello"));
        assert_eq!(editor.press(Key::EndOfInput), EditResult::Edited);
        assert_eq!(
            editor.press(Key::Enter),
            EditResult::Submitted("hello".to_owned())
        );
        assert_eq!(editor.press(Key::EndOfInput), EditResult::EndOfInput);
    }

    #[test]
    fn a_long_paste_is_one_letter_that_expands() {
        let long = "x\n".repeat(10_000);
        let mut editor = LineEditor::default();
        editor.press(paste("see "));
        editor.press(paste(&long));
        assert_eq!(editor.text(), "see [pasted 10,000 lines]");
        editor.press(Key::Left);
        assert_eq!(editor.cursor(), 4);
        editor.press(Key::End);
        editor.press(Key::Backspace);
        assert_eq!(editor.text(), "see ");
        editor.press(Key::Undo);
        assert_eq!(
            editor.press(Key::Enter),
            EditResult::Submitted(format!("see {long}"))
        );
        editor.replace(&long);
        assert_eq!(editor.text(), "[pasted 10,000 lines]");
        assert_eq!(editor.press(Key::Enter), EditResult::Submitted(long));
    }

    #[test]
    fn undo_goes_back_word_by_word_and_transpose_swaps() {
        let mut editor = LineEditor::default();
        for c in "one tow".chars() {
            editor.press(Key::Letter(c));
        }
        editor.press(Key::Transpose);
        assert_eq!(editor.text(), "one two");
        let mut undone = Vec::new();
        for _ in 0..5 {
            editor.press(Key::Undo);
            undone.push(editor.text().to_owned());
        }
        assert_eq!(undone, ["one tow", "one ", "one", "", ""]);
    }

    #[test]
    fn what_has_no_room_is_refused_whole() {
        let mut editor = LineEditor::default();
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(editor.press(paste(&long)), EditResult::TooLong);
        assert_eq!(editor.text(), "");
    }
}
