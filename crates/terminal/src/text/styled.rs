//! Text for a terminal. Text from outside is escaped on insertion, and only a style adds control sequences.
//!
//! An [`OutputQueue`](super::super::OutputQueue) takes this type, and escapes all other text itself, so no caller can
//! forget to escape a text. Styled text leaves this type only through a queue. Therefore no caller can format it into a
//! string and escape it twice.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use allstop_core::terminal_text::{self, OWN_ROW_MARK, is_unsafe};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::escape;
use super::width::widest;

/// Beginning of a command after the words of a hint.
const COMMAND_BEHIND_WORDS: &str = ": allstop ";
/// Beginning of a line that is a command. The terminal breaks a long command, so that a copy contains no line end.
const COMMAND: &str = "allstop ";

/// Units that follow a number after a blank.
const UNITS: [&str; 9] = ["s", "ms", "min", "h", "d", "B", "KB", "MB", "%"];

/// A text for a terminal. Every inserted string is escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Styled {
    text: String,
}

/// Joins parts into one line. A string is escaped, including its line ends, and a styled text stays unchanged.
#[macro_export]
macro_rules! styled {
    ($($part:expr),* $(,)?) => {{
        let mut styled = $crate::Styled::default();
        $(styled.push(&$part);)*
        styled
    }};
}
pub(crate) use styled;

/// A part of a styled text.
pub trait StyledPart {
    /// Appends the part, escaped if it is not styled text.
    fn push_to(&self, styled: &mut Styled);
}

impl Styled {
    /// A text of several lines. Its line ends and tabs stay.
    pub fn text(text: &str) -> Self {
        let text = escape::text(text).into_owned();
        Self { text }
    }

    /// Like [`text`](Self::text), for a text in which only the program itself has written [`OWN_ROW_MARK`].
    pub fn marked_text(text: &str) -> Self {
        let is_wrong = |c| is_unsafe(c) && !matches!(c, '\n' | '\t' | OWN_ROW_MARK);
        let text = terminal_text::escape(text, is_wrong).into_owned();
        Self { text }
    }

    /// A text that is already escaped, and may contain this crate's own control sequences.
    pub(crate) fn of_escaped(text: String) -> Self {
        Self { text }
    }

    /// Appends a part.
    pub fn push(&mut self, part: &(impl StyledPart + ?Sized)) {
        part.push_to(self);
    }

    /// Appends a part, and ends the line.
    pub fn push_line(&mut self, part: &(impl StyledPart + ?Sized)) {
        part.push_to(self);
        self.text.push('\n');
    }

    /// Wraps the text in one of this crate's own control sequences. The last line end stays outside the sequence.
    pub(super) fn within(mut self, begin: &str, end: &str) -> Self {
        let is_ended = self.text.ends_with('\n');
        self.text.truncate(self.text.len() - usize::from(is_ended));
        self.text = format!("{begin}{}{end}", self.text);
        if is_ended {
            self.text.push('\n');
        }
        self
    }

    /// The text with its control sequences.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The text with its control sequences, for tests.
    #[cfg(any(test, feature = "test-screen"))]
    pub fn shown(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_string(self) -> String {
        self.text
    }

    /// True if there is no text.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The lines of the text.
    pub fn lines(&self) -> impl Iterator<Item = Self> {
        self.text.lines().map(|line| Self {
            text: line.to_owned(),
        })
    }

    /// Indents each line except the first.
    #[must_use]
    pub fn hanging(&self, columns: usize) -> Self {
        let indent = format!("\n{:columns$}", "");
        let text = self.text.replace('\n', &indent);
        Self { text }
    }

    /// Removes blanks at the end of the text.
    #[must_use]
    pub fn trim_end(mut self) -> Self {
        self.text.truncate(self.text.trim_end().len());
        self
    }

    /// Width in columns, as most terminals measure it: by the width of the letters.
    pub fn width(&self) -> usize {
        if !self.text.contains('\x1b') {
            return self.text.width();
        }
        let letters = letters(&self.text).filter(|(_, is_control)| !is_control);
        letters.map(|(c, _)| c).collect::<String>().width()
    }

    /// Maximum columns of the text on any terminal.
    pub fn widest(&self) -> usize {
        let letters = letters(&self.text).filter(|(_, is_control)| !is_control);
        letters.map(|(c, _)| widest(c)).sum()
    }

    /// Cuts the text to at most `columns` columns, and appends `mark` if it was cut. The result fits on every terminal.
    #[must_use]
    pub fn cut(&self, columns: usize, mark: &str) -> Self {
        if self.widest() <= columns {
            return self.clone();
        }
        let room = columns.saturating_sub(mark.width());
        let mut used = 0;
        let mut text = String::new();
        let mut is_marked = false;
        for (c, is_control) in letters(&self.text) {
            used += if is_control { 0 } else { widest(c) };
            if is_control || used <= room {
                text.push(c);
            } else if !is_marked {
                text.push_str(mark);
                is_marked = true;
            }
        }
        Self { text }
    }

    /// Pads the text with spaces at its end to this width.
    #[must_use]
    pub fn pad(&self, columns: usize) -> Self {
        let missing = columns.saturating_sub(self.width());
        let text = format!("{}{:missing$}", self.text, "");
        Self { text }
    }

    /// Like [`pad`](Self::pad), but with the spaces before the text.
    #[must_use]
    pub fn pad_start(&self, columns: usize) -> Self {
        let missing = columns.saturating_sub(self.width());
        let text = format!("{:missing$}{}", "", self.text);
        Self { text }
    }

    /// Breaks long lines between words. The new rows keep the indentation of their line.
    #[must_use]
    pub fn fit(&self, columns: usize) -> Self {
        self.fit_hanging(columns, 0)
    }

    /// Like [`fit`](Self::fit), but indents the new rows of a line further.
    fn fit_hanging(&self, columns: usize, hanging: usize) -> Self {
        let mut fit = Self::default();
        for line in self.lines() {
            let indent = line.text.len() - line.text.trim_start_matches(' ').len();
            if line.width() <= columns || indent * 2 > columns {
                fit.push_line(&line);
                continue;
            }
            let hanging = if (indent + hanging) * 2 > columns {
                0
            } else {
                hanging
            };
            let rows = line.wrap(columns - indent - hanging);
            for (at, row) in rows.iter().enumerate() {
                let indent = if at == 0 { indent } else { indent + hanging };
                fit.push_line(&styled![" ".repeat(indent), row]);
            }
        }
        fit
    }

    /// Like [`fit`](Self::fit), but places a command at the end of a long line on a separate line, so that it can be
    /// copied.
    pub(crate) fn fit_with_command(&self, columns: usize, hanging: usize) -> Self {
        let mut fit = Self::default();
        for line in self.lines() {
            if line.text.starts_with(COMMAND) {
                fit.push_line(&line);
                continue;
            }
            let command = line.text.find(COMMAND_BEHIND_WORDS);
            let Some(at) = command.filter(|_| line.width() > columns) else {
                fit.push(&line.fit_hanging(columns, hanging));
                continue;
            };
            let (words, command) = line.text.split_at(at + 1);
            let [words, command] = [words, command.trim_start()].map(|text| Self {
                text: text.to_owned(),
            });
            fit.push(&words.fit_hanging(columns, hanging));
            fit.push_line(&command);
        }
        fit
    }

    /// Breaks the text between words into lines of at most `columns` columns. A longer word is broken at the end of the
    /// line.
    pub fn wrap(&self, columns: usize) -> Vec<Self> {
        let mut lines: Vec<Self> = Vec::new();
        let words = self.text.split(' ').filter(|word| !word.is_empty());
        let words = with_units(words);
        let words = words.iter().flat_map(|word| pieces(word, columns));
        for word in words {
            let word = Self {
                text: word.to_owned(),
            };
            match lines.last_mut() {
                Some(line) if line.width() + 1 + word.width() <= columns => {
                    line.text.push(' ');
                    line.text.push_str(&word.text);
                }
                _ => lines.push(word),
            }
        }
        lines
    }
}

/// Joins a number and its unit, such as `2.0 s`, which belong in one row.
fn with_units<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Cow<'a, str>> {
    let mut joined: Vec<Cow<'a, str>> = Vec::new();
    for word in words {
        let unit = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
        let is_unit = UNITS.contains(&unit);
        match joined.last_mut() {
            Some(last) if is_unit && last.ends_with(|c: char| c.is_ascii_digit()) => {
                let last = last.to_mut();
                last.push(' ');
                last.push_str(word);
            }
            _ => joined.push(Cow::Borrowed(word)),
        }
    }
    joined
}

/// Splits a word into pieces of at most `columns` columns, at least one character each.
fn pieces(word: &str, columns: usize) -> Vec<&str> {
    if word.width() <= columns {
        return vec![word];
    }
    let mut pieces = Vec::new();
    let (mut start, mut width) = (0, 0);
    for ((at, _), (c, is_control)) in word.char_indices().zip(letters(word)) {
        let more = if is_control {
            0
        } else {
            c.width().unwrap_or_default()
        };
        if width + more > columns && at > start {
            pieces.push(&word[start..at]);
            (start, width) = (at, 0);
        }
        width += more;
    }
    pieces.push(&word[start..]);
    pieces
}

/// The characters of a text. The flag of a character is true if the character belongs to a control sequence.
pub(crate) fn letters(text: &str) -> impl Iterator<Item = (char, bool)> {
    text.chars().scan(Sequence::None, |within, c| {
        let is_control = *within != Sequence::None || c == '\x1b';
        *within = match (*within, c) {
            (Sequence::None, '\x1b') => Sequence::Begun,
            (Sequence::Begun, '[') => Sequence::Style,
            (Sequence::Begun, ']') => Sequence::Link,
            (Sequence::Link, '\x1b') => Sequence::LinkEnd,
            (Sequence::Style, 'm') | (Sequence::LinkEnd, _) => Sequence::None,
            (within, _) => within,
        };
        Some((c, is_control))
    })
}

/// Position in one of this crate's own control sequences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// Outside of a sequence.
    None,
    Begun,
    /// In a sequence of colours, which ends with `m`.
    Style,
    /// In the address of a link, which ends with `ESC \\`.
    Link,
    LinkEnd,
}

impl StyledPart for Styled {
    fn push_to(&self, styled: &mut Styled) {
        styled.text.push_str(&self.text);
    }
}

impl StyledPart for str {
    fn push_to(&self, styled: &mut Styled) {
        styled.text.push_str(&escape::line(self));
    }
}

impl StyledPart for String {
    fn push_to(&self, styled: &mut Styled) {
        self.as_str().push_to(styled);
    }
}

impl StyledPart for Cow<'_, str> {
    fn push_to(&self, styled: &mut Styled) {
        (**self).push_to(styled);
    }
}

impl StyledPart for Arc<str> {
    fn push_to(&self, styled: &mut Styled) {
        (**self).push_to(styled);
    }
}

impl StyledPart for fmt::Arguments<'_> {
    fn push_to(&self, styled: &mut Styled) {
        self.to_string().push_to(styled);
    }
}

impl<T: StyledPart + ?Sized> StyledPart for &T {
    fn push_to(&self, styled: &mut Styled) {
        (**self).push_to(styled);
    }
}

impl From<&str> for Styled {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Styled {
    fn from(text: String) -> Self {
        Self::text(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Style, TextRole};

    fn of(text: &str) -> Styled {
        Styled::text(text)
    }

    #[test]
    fn only_a_style_adds_control_sequences() {
        let style = Style::new(true, true);
        let painted = style.paint(TextRole::Good, "a\u{1b}[31mb\nc");
        let line = styled![painted, " ", "\u{1b}[2J", format_args!("{}\r", 1)];
        assert_eq!(
            line.as_str(),
            "\u{1b}[32ma\\u{1b}[31mb\\nc\u{1b}[0m \\u{1b}[2J1\\r"
        );
    }

    #[test]
    fn wide_letters_count_twice() {
        assert_eq!(of("你好世界").cut(5, "…"), of("你好…"));
        assert_eq!(of("你好世界").cut(8, "…"), of("你好世界"));
        assert_eq!(of("你好").pad(5), of("你好 "));
        assert_eq!(of("你好").pad_start(5), of(" 你好"));
        assert_eq!(of("abc").cut(0, "…"), of("…"));
    }

    #[test]
    fn control_sequences_take_no_column_and_are_closed() {
        let painted = Style::new(true, true).paint(TextRole::Good, "abcdef");
        assert_eq!(painted.width(), 6);
        assert_eq!(painted.cut(4, "…").as_str(), "\u{1b}[32mabc…\u{1b}[0m");
    }

    #[test]
    fn long_words_are_broken_at_the_end_of_the_line() {
        assert_eq!(of("a bb ccc").wrap(4), [of("a bb"), of("ccc")]);
        let broken = [of("a"), of("bcde"), of("fgh"), of("i")];
        assert_eq!(of("a bcdefgh i").wrap(4), broken);
        assert_eq!(of("日本語").wrap(1).len(), 3);
        let painted = Style::new(true, true).paint(TextRole::Dim, "ab cdefg");
        let rows = painted.wrap(4);
        assert_eq!(
            rows.iter().map(Styled::width).collect::<Vec<_>>(),
            [2, 4, 1]
        );
        assert!(of("").wrap(4).is_empty());
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let rows = of("stopped in 2.0 s, then 12 ms.").wrap(12);
        assert_eq!(rows, [of("stopped in"), of("2.0 s, then"), of("12 ms.")]);
    }

    #[test]
    fn long_lines_fit_between_words_and_keep_their_beginning() {
        let text = Styled::text("one two three\n  four five six\nshort");
        let fit = text.fit(10);
        assert_eq!(fit.shown(), "one two\nthree\n  four\n  five six\nshort\n");
        assert_eq!(Styled::text("a  b").fit(10).shown(), "a  b\n");
    }

    #[test]
    fn command_of_a_hint_stays_in_one_line() {
        let fit = |text, columns| Styled::text(text).fit_with_command(columns, 0);
        let hint = "session 1 · to go on: allstop resume 1 --model x";
        assert_eq!(fit(hint, 60).shown(), format!("{hint}\n"));
        assert_eq!(
            fit(hint, 15).shown(),
            "session 1 · to\ngo on:\nallstop resume 1 --model x\n"
        );
        assert_eq!(fit("no command", 5).shown(), "no\ncomma\nnd\n");
    }
}
