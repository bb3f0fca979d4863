//! Colours and signs of an answer.

use std::sync::Arc;

use anstyle::{AnsiColor, Style as TextStyle};

use super::highlight::CodeToken;
use crate::{Span, Style};

/// Maximum bytes of an address. Terminals ignore longer ones.
const LINK_BYTES_MAX: usize = 2000;

/// Colours and signs of an answer, for one terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerTheme {
    style: Style,
}

impl AnswerTheme {
    pub(super) fn new(style: Style) -> Self {
        Self { style }
    }

    fn with(self, style: TextStyle) -> TextStyle {
        if self.style.is_coloured() {
            style
        } else {
            TextStyle::new()
        }
    }

    pub(super) fn heading(self, level: u8) -> TextStyle {
        let bold = TextStyle::new().bold();
        self.with(match level {
            1 => bold.underline().fg_color(Some(AnsiColor::Cyan.into())),
            2 => bold.fg_color(Some(AnsiColor::Cyan.into())),
            _ => bold,
        })
    }

    pub(super) fn inline_code(self) -> TextStyle {
        self.with(AnsiColor::Yellow.on_default())
    }

    /// The address, if the terminal may open it: an address of the web or of mail, without blanks and letters outside
    /// ASCII.
    pub(super) fn link(self, address: &str) -> Option<Arc<str>> {
        let is_known = ["https://", "http://", "mailto:"]
            .iter()
            .any(|scheme| address.starts_with(scheme));
        let is_plain =
            address.len() <= LINK_BYTES_MAX && address.bytes().all(|b| b.is_ascii_graphic());
        (self.style.has_links() && is_known && is_plain).then(|| address.into())
    }

    pub(super) fn dim(self) -> TextStyle {
        self.with(TextStyle::new().dimmed())
    }

    pub(super) fn code(self, token: CodeToken) -> TextStyle {
        let plain = TextStyle::new();
        self.with(match token {
            // Without other colours, the code must differ from the text around it.
            CodeToken::Unknown => return self.inline_code(),
            CodeToken::Plain => plain,
            CodeToken::Keyword => AnsiColor::Magenta.on_default(),
            CodeToken::Text | CodeToken::Added => AnsiColor::Green.on_default(),
            CodeToken::Number => AnsiColor::Yellow.on_default(),
            CodeToken::Comment => plain.dimmed(),
            CodeToken::Removed => AnsiColor::Red.on_default(),
        })
    }

    pub(super) fn bullet(self) -> Span {
        Span::new(self.style.pick("• ", "* "), self.dim())
    }

    pub(super) fn task(self, done: bool) -> Span {
        let sign = if done { "[x] " } else { "[ ] " };
        Span::new(sign, self.dim())
    }

    pub(super) fn quote(self) -> Span {
        Span::new(self.style.pick("│ ", "> "), self.dim())
    }

    pub(super) fn dash(self) -> Span {
        Span::new(self.style.pick("─", "-"), self.dim())
    }

    /// Separator between two cells, line below the header, and crossing of both.
    pub(super) fn table_lines(self) -> [&'static str; 3] {
        if self.style.is_unicode() {
            [" │ ", "─", "─┼─"]
        } else {
            [" | ", "-", "-+-"]
        }
    }
}
