//! Parses the bytes of a terminal into keys.

use std::time::Duration;

use vte::{Params, Parser, Perform};

/// A key, or an equivalent input such as a paste or a change of focus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A letter.
    Letter(char),
    /// Pasted text of one or more lines.
    Paste(String),
    /// Enter, which sends the text.
    Enter,
    /// Alt-Enter, Shift-Enter or Ctrl-J, which adds a line.
    NewLine,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Left.
    Left,
    /// Right.
    Right,
    /// One word to the left.
    WordLeft,
    /// One word to the right.
    WordRight,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Home.
    Home,
    /// End.
    End,
    /// Ctrl-K.
    KillToEnd,
    /// Ctrl-U.
    KillToStart,
    /// Ctrl-W, Alt-Backspace.
    KillWordBack,
    /// Alt-D.
    KillWord,
    /// Ctrl-Y.
    Yank,
    /// Ctrl-D.
    EndOfInput,
    /// Ctrl-L.
    Redraw,
    /// Ctrl-R.
    Search,
    /// Ctrl-G.
    OpenEditor,
    /// Ctrl-_.
    Undo,
    /// Ctrl-T.
    Transpose,
    /// Escape alone.
    Escape,
    /// Tab.
    Complete,
    /// Shift-Tab.
    NextMode,
    /// The window has gained the focus.
    FocusGained,
    /// The window has lost the focus.
    FocusLost,
}

impl Key {
    /// True if the key changes the text of a line.
    pub(super) fn edits(&self) -> bool {
        matches!(
            self,
            Self::Letter(_)
                | Self::Paste(_)
                | Self::NewLine
                | Self::Backspace
                | Self::Delete
                | Self::EndOfInput
                | Self::KillToEnd
                | Self::KillToStart
                | Self::KillWordBack
                | Self::KillWord
                | Self::Yank
                | Self::Transpose
        )
    }

    /// True if the key ends a line. A terminal that returns whole lines ends each line with
    /// [`NewLine`](Self::NewLine).
    pub fn ends_line(&self) -> bool {
        matches!(self, Self::Enter | Self::NewLine)
    }
}

/// Time within which the parts of one sequence arrive, even over a slow connection. After that time, an Escape counts
/// as a separate key. Escape stops a turn, so an arrow key that arrives in two pieces must not count as Escape.
pub(super) const SEQUENCE_MAX: Duration = Duration::from_millis(300);

/// Parses keys. A sequence may arrive in pieces, but without a pause between them.
#[derive(Default)]
pub(super) struct KeyParser {
    parser: Parser,
    state: ParserState,
}

#[derive(Default)]
struct ParserState {
    keys: Vec<Key>,
    /// The text of the current paste.
    paste: Option<String>,
    /// True if the last byte was an Escape, so the next key has Alt.
    escaped: bool,
    /// True if a sequence has begun and not ended.
    in_sequence: bool,
    /// True if the sequence SS3 has begun: the next byte is its last. Terminals in the application mode send it for
    /// arrow keys.
    in_ss3: bool,
}

impl std::fmt::Debug for KeyParser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyParser").finish_non_exhaustive()
    }
}

impl KeyParser {
    /// Returns the keys that these bytes complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        for byte in bytes {
            // The parser does not know these keys with Alt. Within a sequence, the parser would execute the byte as a
            // control character, and then wait for the rest of the sequence.
            let is_alt = self.state.escaped && matches!(byte, b'\r' | b'\n' | 0x7f | 0x08);
            self.state.escaped = *byte == 0x1b;
            self.state.in_sequence |= self.state.escaped;
            if is_alt && self.state.paste.is_none() {
                self.forget_sequence();
                self.state.keys.push(match byte {
                    b'\r' | b'\n' => Key::NewLine,
                    _ => Key::KillWordBack,
                });
            } else {
                self.parser.advance(&mut self.state, &[*byte]);
            }
        }
        std::mem::take(&mut self.state.keys)
    }

    /// True if the next bytes within [`SEQUENCE_MAX`] may belong to the last sequence.
    pub(super) fn is_in_sequence(&self) -> bool {
        self.state.in_sequence && self.state.paste.is_none()
    }

    /// Ends a sequence after [`SEQUENCE_MAX`] without further bytes. Returns the Escape key if the sequence is a single
    /// Escape. A paste ends only with its end mark.
    pub(super) fn end_sequence(&mut self) -> Option<Key> {
        if !self.is_in_sequence() {
            return None;
        }
        let is_escape = self.state.escaped;
        self.forget_sequence();
        is_escape.then_some(Key::Escape)
    }

    fn forget_sequence(&mut self) {
        self.parser = Parser::default();
        self.state.escaped = false;
        self.state.in_sequence = false;
        self.state.in_ss3 = false;
    }
}

impl Perform for ParserState {
    fn print(&mut self, c: char) {
        self.in_sequence = false;
        if std::mem::take(&mut self.in_ss3) {
            let key = if c == 'M' {
                Some(Key::Enter)
            } else {
                move_of(c)
            };
            self.keys.extend(key);
            return;
        }
        match &mut self.paste {
            Some(paste) => paste.push(c),
            None if c == '\x7f' => self.keys.push(Key::Backspace),
            None => self.keys.push(Key::Letter(c)),
        }
    }

    fn execute(&mut self, byte: u8) {
        if let Some(paste) = &mut self.paste {
            match byte {
                b'\r' | b'\n' => paste.push('\n'),
                b'\t' => paste.push('\t'),
                _ => {}
            }
            return;
        }
        self.keys.push(match byte {
            b'\r' => Key::Enter,
            b'\n' => Key::NewLine,
            0x7f | 0x08 => Key::Backspace,
            0x01 => Key::Home,
            0x02 => Key::Left,
            0x04 => Key::EndOfInput,
            0x05 => Key::End,
            0x06 => Key::Right,
            0x07 => Key::OpenEditor,
            b'\t' => Key::Complete,
            0x0b => Key::KillToEnd,
            0x0c => Key::Redraw,
            0x0e => Key::Down,
            0x10 => Key::Up,
            0x12 => Key::Search,
            0x14 => Key::Transpose,
            0x15 => Key::KillToStart,
            0x17 => Key::KillWordBack,
            0x19 => Key::Yank,
            0x1f => Key::Undo,
            _ => return,
        });
    }

    fn csi_dispatch(&mut self, params: &Params, _: &[u8], _ignore: bool, action: char) {
        self.in_sequence = false;
        let mut params = params.iter().filter_map(|group| group.first().copied());
        let (first, second) = (params.next().unwrap_or(0), params.next().unwrap_or(1));
        match (action, first) {
            ('~', 200) => {
                self.paste = Some(String::new());
                return;
            }
            ('~', 201) => {
                self.keys.extend(self.paste.take().map(Key::Paste));
                return;
            }
            _ if self.paste.is_some() => return,
            _ => {}
        }
        // Keys in the forms CSI u (the keyboard protocol of kitty) and `modifyOtherKeys` of xterm.
        let pressed = match (action, first) {
            ('u', _) => Some((first, second)),
            ('~', 27) => params.next().map(|code| (code, second)),
            _ => None,
        };
        if let Some((code, modifiers)) = pressed {
            self.keys.extend(match (code, modifiers) {
                (13, 0 | 1) => Some(Key::Enter),
                (13, _) => Some(Key::NewLine),
                (27, _) => Some(Key::Escape),
                (127, _) => Some(Key::Backspace),
                (9, 2) => Some(Key::NextMode),
                (9, _) => Some(Key::Complete),
                _ => None,
            });
            return;
        }
        // Ctrl or Alt with an arrow.
        let is_word = matches!(second, 3 | 5);
        self.keys.push(match (action, first) {
            ('C', _) if is_word => Key::WordRight,
            ('D', _) if is_word => Key::WordLeft,
            ('~', 1 | 7) => Key::Home,
            ('~', 4 | 8) => Key::End,
            ('~', 3) => Key::Delete,
            ('Z', _) => Key::NextMode,
            ('I', _) => Key::FocusGained,
            ('O', _) => Key::FocusLost,
            _ => match move_of(action) {
                Some(key) => key,
                None => return,
            },
        });
    }

    fn osc_dispatch(&mut self, _: &[&[u8]], _ended_by_bell: bool) {
        self.in_sequence = false;
    }

    fn unhook(&mut self) {
        self.in_sequence = false;
    }

    fn esc_dispatch(&mut self, _: &[u8], _ignore: bool, byte: u8) {
        self.in_sequence = false;
        if self.paste.is_some() {
            return;
        }
        self.keys.push(match byte {
            b'O' => {
                self.in_sequence = true;
                self.in_ss3 = true;
                return;
            }
            b'b' => Key::WordLeft,
            b'f' => Key::WordRight,
            b'd' => Key::KillWord,
            // A letter typed soon after Escape. Without this rule, the letter would be lost.
            b' '..=b'~' => Key::Letter(char::from(byte)),
            _ => return,
        });
    }
}

/// Key that moves the cursor, by the last letter of its sequence.
fn move_of(letter: char) -> Option<Key> {
    Some(match letter {
        'A' => Key::Up,
        'B' => Key::Down,
        'C' => Key::Right,
        'D' => Key::Left,
        'H' => Key::Home,
        'F' => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_pastes_are_recognised_in_any_pieces() {
        let bytes =
            "hé\x7f\x1b[D\x1b[1;5C\x1b[200~a\r\nb\x1b[201~\x1b\r\x1bb\x1b[3~\x04\t\x12\x07\x1b[Z\x1b[O\x1b[I\r"
                .as_bytes();
        let whole = KeyParser::default().read(bytes);
        let paste = Key::Paste("a\n\nb".to_owned());
        assert_eq!(
            whole,
            [
                Key::Letter('h'),
                Key::Letter('é'),
                Key::Backspace,
                Key::Left,
                Key::WordRight,
                paste,
                Key::NewLine,
                Key::WordLeft,
                Key::Delete,
                Key::EndOfInput,
                Key::Complete,
                Key::Search,
                Key::OpenEditor,
                Key::NextMode,
                Key::FocusLost,
                Key::FocusGained,
                Key::Enter,
            ]
        );
        let mut keys = KeyParser::default();
        let one_by_one: Vec<Key> = bytes.iter().flat_map(|byte| keys.read(&[*byte])).collect();
        assert_eq!(one_by_one, whole);
    }

    #[test]
    fn keys_of_other_modes_of_a_terminal_are_recognised() {
        let read = |bytes: &[u8]| {
            let mut keys = KeyParser::default();
            let read = keys.read(bytes);
            assert!(!keys.is_in_sequence(), "{bytes:?}");
            read
        };
        // The application mode.
        assert_eq!(read(b"\x1bOAa"), [Key::Up, Key::Letter('a')]);
        assert_eq!(
            read(b"\x1bOH\x1bOF\x1bOM"),
            [Key::Home, Key::End, Key::Enter]
        );
        assert_eq!(read(b"\x1bOPa"), [Key::Letter('a')]);
        // Shift-Enter, Ctrl-Enter, and Enter.
        assert_eq!(
            read(b"\x1b[13;2u\x1b[27;5;13~\x1b[13u"),
            [Key::NewLine, Key::NewLine, Key::Enter]
        );
        assert_eq!(read(b"\x1b[27u\x1b[9;2u"), [Key::Escape, Key::NextMode]);
    }

    #[test]
    fn an_escape_alone_swallows_nothing_that_comes_later() {
        let mut keys = KeyParser::default();
        for begun in [&b"\x1b"[..], b"\x1b[", b"\x1b[1;", b"\x1b]0;x"] {
            assert_eq!(keys.read(begun), []);
            assert!(keys.is_in_sequence(), "{begun:?}");
            let alone = (begun == b"\x1b").then_some(Key::Escape);
            assert_eq!(keys.end_sequence(), alone);
            assert_eq!(keys.read(b"a\r"), [Key::Letter('a'), Key::Enter]);
            assert!(!keys.is_in_sequence());
        }
        assert_eq!(keys.read(b"\x1bb"), [Key::WordLeft]);
        assert!(!keys.is_in_sequence());
        // Regression: a letter soon after Escape was lost.
        assert_eq!(keys.read(b"\x1b"), []);
        assert_eq!(keys.read(b"hi"), [Key::Letter('h'), Key::Letter('i')]);
    }

    #[test]
    fn a_pause_in_the_end_mark_of_a_paste_ends_nothing() {
        let mut keys = KeyParser::default();
        assert_eq!(keys.read(b"\x1b[200~one\x1b[20"), []);
        assert_eq!(keys.end_sequence(), None);
        assert_eq!(keys.read(b"1~"), [Key::Paste("one".to_owned())]);
    }

    #[test]
    fn a_paste_never_sends_anything_by_itself() {
        let keys = KeyParser::default().read(b"\x1b[200~rm -rf x\r\x1b[201~");
        assert_eq!(keys, [Key::Paste("rm -rf x\n".to_owned())]);
    }
}
