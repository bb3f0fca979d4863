//! The line that a person edits.
//!
//! Editing uses rustyline's `LineBuffer`, but not rustyline's own loop. Rustyline's loop writes to the terminal itself,
//! and prints other output above the prompt only in whole lines. In this crate, only one thread writes to the terminal,
//! and an answer appears letter by letter above the prompt.

use rustyline::At;
use rustyline::Word;
use rustyline::line_buffer::{ChangeListener, DeleteListener, Direction, LineBuffer};

use super::keys::Key;

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
}

/// Listener for changes of the buffer that ignores all changes. A listener could record changes for an undo, but this
/// editor has no undo.
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
        }
    }
}

impl LineEditor {
    /// The current text.
    pub fn text(&self) -> &str {
        self.buffer.as_str()
    }

    /// Position of the cursor, in bytes.
    pub fn cursor(&self) -> usize {
        self.buffer.pos()
    }

    /// Replaces the text, and returns the old text.
    pub fn replace(&mut self, text: &str) -> String {
        let old = self.text().to_owned();
        self.buffer.update(text, text.len(), &mut NoListener);
        old
    }

    /// Handles a pressed key.
    pub fn press(&mut self, key: Key) -> EditResult {
        let buffer = &mut self.buffer;
        let mut kill = KillBuffer(&mut self.killed);
        match key {
            Key::Letter(c) => {
                if buffer.insert(c, 1, &mut NoListener).is_none() {
                    return EditResult::TooLong;
                }
            }
            Key::Paste(text) => {
                let has_room = text.is_empty() || buffer.yank(&text, 1, &mut NoListener).is_some();
                if !has_room {
                    return EditResult::TooLong;
                }
            }
            Key::NewLine => return self.press(Key::Letter('\n')),
            Key::Enter => return EditResult::Submitted(self.replace("")),
            Key::EndOfInput if buffer.is_empty() => return EditResult::EndOfInput,
            Key::EndOfInput | Key::Delete => drop(buffer.delete(1, &mut NoListener)),
            Key::Backspace => drop_moved(buffer.backspace(1, &mut NoListener)),
            Key::Left => drop_moved(buffer.move_backward(1)),
            Key::Right => drop_moved(buffer.move_forward(1)),
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
            | Key::Cancel
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
    fn what_has_no_room_is_refused_whole() {
        let mut editor = LineEditor::default();
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(editor.press(paste(&long)), EditResult::TooLong);
        assert_eq!(editor.text(), "");
    }
}
