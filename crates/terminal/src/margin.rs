//! The margin: a mark in front of each row that the program itself prints. Text from outside, such as an answer of a
//! model, has no margin and cannot make the mark. So a person always sees who wrote a row.
//!
//! The Unicode mark is an unsafe character ([`OWN_ROW_MARK`]), and is escaped in
//! every text from outside. The ASCII mark is a common character, so a row from outside that begins with this mark is
//! shifted by one column. A row that begins with a letter that looks like the Unicode mark is shifted too.

use std::borrow::Cow;

use allstop_core::terminal_text::OWN_ROW_MARK;
use anstyle::AnsiColor;
use unicode_width::UnicodeWidthChar as _;

use super::text::{Style, Styled, letters};

/// Columns of the margin.
const COLUMNS: usize = 2;
const MARK_ASCII: char = '|';
/// Signs of the program's own text, with their form in ASCII.
const SIGNS: [(char, &str); 3] = [('·', "-"), ('…', "..."), ('→', "->")];
/// The colour of the mark. No text of an answer has this colour.
const COLOUR: AnsiColor = AnsiColor::BrightBlue;

/// The margin of a stream. Without a style, rows have no margin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Margin {
    style: Option<Style>,
}

impl Margin {
    pub(super) fn new(style: Style) -> Self {
        Self { style: Some(style) }
    }

    /// Columns that the margin takes.
    pub(super) fn columns(self) -> usize {
        self.style.map_or(0, |_| COLUMNS)
    }

    /// The program's own text, without the signs that a terminal for ASCII cannot draw.
    pub(super) fn drawable(self, lines: Styled) -> Styled {
        match self.style {
            Some(style) if !style.is_unicode() && !lines.as_str().is_ascii() => {
                let mut text = lines.into_string();
                for (sign, ascii) in SIGNS {
                    text = text.replace(sign, ascii);
                }
                Styled::of_escaped(text)
            }
            _ => lines,
        }
    }

    /// Adds the mark to each line of the program's own text.
    pub(super) fn own(self, lines: &Styled) -> Styled {
        let Some(style) = self.style else {
            return lines.clone();
        };
        let mark = mark(style);
        let mut text = String::with_capacity(lines.as_str().len() + 32);
        for line in lines.as_str().split_inclusive('\n') {
            text.push_str(&mark);
            if line != "\n" {
                text.push(' ');
            }
            text.push_str(line);
        }
        Styled::of_escaped(text)
    }

    /// True if the terminal may break this row of text from outside: no part of it could be taken for the program's own
    /// row.
    pub(super) fn may_wrap(self, row: &Styled) -> bool {
        let Some(style) = self.style else {
            return true;
        };
        if style.is_unicode() {
            !row.as_str().contains(looks_like_mark)
        } else {
            !row.as_str().contains(MARK_ASCII)
        }
    }

    /// A row of text from outside, shifted if it could be taken for the program's own row.
    pub(super) fn outside(self, row: &str) -> Cow<'_, str> {
        let Some(style) = self.style else {
            return Cow::Borrowed(row);
        };
        let mut shown = letters(row)
            .filter_map(|(c, is_control)| (!is_control && c.width() != Some(0)).then_some(c));
        let is_alike = match shown.next() {
            Some(first) if style.is_unicode() => looks_like_mark(first),
            Some(first) => first == MARK_ASCII,
            None => false,
        };
        if is_alike {
            Cow::Owned(format!(" {row}"))
        } else {
            Cow::Borrowed(row)
        }
    }
}

fn mark(style: Style) -> String {
    let mark = if style.is_unicode() {
        OWN_ROW_MARK
    } else {
        MARK_ASCII
    };
    if style.is_coloured() {
        let colour = COLOUR.on_default();
        format!("{colour}{mark}{colour:#}")
    } else {
        mark.to_string()
    }
}

/// True for the letters that fill the left or right part of a column, and for heavy vertical lines.
fn looks_like_mark(c: char) -> bool {
    matches!(
        c,
        '\u{2588}'..='\u{2590}' | '\u{2595}' | '\u{2503}' | '\u{275a}' | '\u{2759}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AnswerFormat;
    use crate::AnswerStream;

    fn margin(unicode: bool) -> Margin {
        Margin::new(Style::new(false, unicode))
    }

    #[test]
    fn own_lines_have_the_mark() {
        let own = |unicode, text: &str| {
            let own = margin(unicode).own(&Styled::text(text));
            own.shown().to_owned()
        };
        assert_eq!(own(true, "a\n\nb"), "▎ a\n▎\n▎ b");
        assert_eq!(own(false, "a\n"), "| a\n");
        let drawable = margin(false).drawable(Styled::text("a · b → c…"));
        assert_eq!(drawable.shown(), "a - b -> c...");
        let none = Margin::default().own(&Styled::text("a"));
        assert_eq!(none.shown(), "a");
        let coloured = Margin::new(Style::new(true, true)).own(&Styled::text("a"));
        assert_eq!(coloured.shown(), "\u{1b}[94m▎\u{1b}[0m a");
    }

    /// Every row of every answer, also after letters without a column, begins with something else.
    #[test]
    fn no_row_from_outside_has_the_mark() {
        let forged = [
            "▎ ■ Turn 1 stopped by you",
            "**▎ ■ Turn 1 stopped**",
            "\u{200d}▎ x",
            "\u{301}▌ x",
            "```\n▎ x\n| x\n▌ x\n```",
            "| a | b |\n| - | - |\n| | c |",
            "> | x",
            "- x\n  | y",
            "| ■ Turn 1 stopped",
            "|",
            "# | x",
        ];
        for unicode in [true, false] {
            let margin = margin(unicode);
            for format in [AnswerFormat::Markdown, AnswerFormat::Plain] {
                for text in forged {
                    let mut stream = AnswerStream::new(Style::new(false, unicode), format);
                    let mut parts = stream.push(text);
                    parts.extend(stream.finish());
                    for row in parts.iter().flat_map(|part| part.rows(40)) {
                        let row = margin.outside(row.as_str()).into_owned();
                        let shown = row.trim_start_matches(['\u{200d}', '\u{301}']);
                        let is_forged = if unicode {
                            shown.starts_with(['▎', '▌'])
                        } else {
                            shown.starts_with('|')
                        };
                        assert!(!is_forged, "{row}");
                    }
                }
            }
        }
    }
}
