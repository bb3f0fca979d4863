//! From the bytes of a terminal to keys.

use std::time::Duration;

use vte::{Params, Parser, Perform};

/// A key, or what is as good as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A letter.
    Letter(char),
    /// Several lines or one, as they were pasted.
    Paste(String),
    /// Enter: it is sent.
    Enter,
    /// Alt-Enter or Ctrl-J: a line more.
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
    Cancel,
    /// Escape alone.
    Escape,
    /// Tab.
    Complete,
    /// Shift-Tab.
    NextMode,
    /// The window is looked at.
    FocusGained,
    /// Another window is looked at.
    FocusLost,
}

impl Key {
    /// True if it ends a line, in a terminal that gives whole lines too.
    pub fn ends_line(&self) -> bool {
        matches!(self, Self::Enter | Self::NewLine)
    }
}

/// Time within which the parts of one sequence arrive, also over a slow connection. After it an Escape was a separate key.
pub(super) const SEQUENCE_MAX: Duration = Duration::from_millis(100);

/// Reads keys. A sequence may come in pieces, but not with a pause between them.
#[derive(Default)]
pub(super) struct KeyParser {
    parser: Parser,
    state: ParserState,
}

#[derive(Default)]
struct ParserState {
    keys: Vec<Key>,
    /// The text that is being pasted.
    paste: Option<String>,
    /// Escape came right before: the next key is one with Alt.
    escaped: bool,
    /// A sequence has begun, and not ended.
    in_sequence: bool,
}

impl std::fmt::Debug for KeyParser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyParser").finish_non_exhaustive()
    }
}

impl KeyParser {
    /// The keys that these bytes complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        for byte in bytes {
            // Not known to the parser: within a sequence it would carry the byte out and go on waiting.
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

    /// True if more may belong to what was read last, if it comes within [`SEQUENCE_MAX`].
    pub(super) fn is_in_sequence(&self) -> bool {
        self.state.in_sequence && self.state.paste.is_none()
    }

    /// Nothing more has come within that time. What is pasted ends only with its mark.
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
    }
}

impl Perform for ParserState {
    fn print(&mut self, c: char) {
        self.in_sequence = false;
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
            0x07 => Key::Cancel,
            b'\t' => Key::Complete,
            0x0b => Key::KillToEnd,
            0x0c => Key::Redraw,
            0x0e => Key::Down,
            0x10 => Key::Up,
            0x12 => Key::Search,
            0x15 => Key::KillToStart,
            0x17 => Key::KillWordBack,
            0x19 => Key::Yank,
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
        // Ctrl or Alt with an arrow.
        let is_word = matches!(second, 3 | 5);
        self.keys.push(match (action, first) {
            ('A', _) => Key::Up,
            ('B', _) => Key::Down,
            ('C', _) if is_word => Key::WordRight,
            ('D', _) if is_word => Key::WordLeft,
            ('C', _) => Key::Right,
            ('D', _) => Key::Left,
            ('H', _) | ('~', 1 | 7) => Key::Home,
            ('F', _) | ('~', 4 | 8) => Key::End,
            ('~', 3) => Key::Delete,
            ('Z', _) => Key::NextMode,
            ('I', _) => Key::FocusGained,
            ('O', _) => Key::FocusLost,
            _ => return,
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
            b'b' => Key::WordLeft,
            b'f' => Key::WordRight,
            b'd' => Key::KillWord,
            _ => return,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_keys_and_pastes_are_told_apart_in_whatever_pieces_they_come() {
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
                Key::Cancel,
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
