//! From the bytes of a terminal to keys.

use vte::{Params, Parser, Perform};

/// A key, or what is as good as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// A letter.
    Letter(char),
    /// Several lines or one, as they were pasted.
    Paste(String),
    /// Enter: it is sent.
    Enter,
    /// Alt-Enter or Ctrl-J: a line more.
    NewLine,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Up,
    Down,
    Home,
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
    /// Tab.
    Complete,
}

/// Reads keys. A sequence may come in pieces.
#[derive(Default)]
pub(super) struct Keys {
    parser: Parser,
    read: Read,
}

#[derive(Default)]
struct Read {
    keys: Vec<Key>,
    /// The text that is being pasted.
    paste: Option<String>,
    /// Escape came right before: the next key is one with Alt.
    escaped: bool,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys that these bytes complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        for byte in bytes {
            // Not known to the parser: within a sequence it would carry the byte out and go on waiting.
            let is_alt = self.read.escaped && matches!(byte, b'\r' | b'\n' | 0x7f | 0x08);
            self.read.escaped = *byte == 0x1b;
            if is_alt && self.read.paste.is_none() {
                self.parser = Parser::default();
                self.read.keys.push(match byte {
                    b'\r' | b'\n' => Key::NewLine,
                    _ => Key::KillWordBack,
                });
            } else {
                self.parser.advance(&mut self.read, &[*byte]);
            }
        }
        std::mem::take(&mut self.read.keys)
    }
}

impl Perform for Read {
    fn print(&mut self, c: char) {
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
            _ => return,
        });
    }

    fn esc_dispatch(&mut self, _: &[u8], _ignore: bool, byte: u8) {
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
            "hé\x7f\x1b[D\x1b[1;5C\x1b[200~a\r\nb\x1b[201~\x1b\r\x1bb\x1b[3~\x04\t\x12\x07\r"
                .as_bytes();
        let whole = Keys::default().read(bytes);
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
                Key::Enter,
            ]
        );
        let mut keys = Keys::default();
        let one_by_one: Vec<Key> = bytes.iter().flat_map(|byte| keys.read(&[*byte])).collect();
        assert_eq!(one_by_one, whole);
    }

    #[test]
    fn a_paste_never_sends_anything_by_itself() {
        let keys = Keys::default().read(b"\x1b[200~rm -rf x\r\x1b[201~");
        assert_eq!(keys, [Key::Paste("rm -rf x\n".to_owned())]);
    }
}
