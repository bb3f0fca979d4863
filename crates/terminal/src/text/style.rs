//! Choice of colours and symbols, from the environment variables and the kind of the stream.

use std::ffi::OsString;

use anstyle::{AnsiColor, Effects};

use super::super::narrowing::Narrowing;
use super::super::notification::NotificationMethod;
use super::styled::{Styled, StyledPart, styled};

/// Settings from the environment: colours, characters outside ASCII, and properties of the terminal. Only `main` reads
/// the environment.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    colour: Colour,
    dumb: bool,
    utf8: bool,
    narrowing: Narrowing,
    notification_method: NotificationMethod,
    links: bool,
}

/// Setting for colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Colour {
    Never,
    #[default]
    OnTerminals,
    Always,
}

impl Environment {
    /// Reads the environment with the given look-up, which in a program is `std::env::var_os`.
    pub fn read(look_up: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| look_up(name).filter(|value| !value.is_empty());
        let text = |name| set(name).map(|value| value.to_string_lossy().into_owned());
        let (program, term) = (text("TERM_PROGRAM"), text("TERM"));
        let (program, term) = (program.unwrap_or_default(), term.unwrap_or_default());
        let notification_method = NotificationMethod::of(&program, &term, set("TMUX").is_some());
        // The first variable that is set decides, as in POSIX.
        let locale = set("LC_ALL")
            .or_else(|| set("LC_CTYPE"))
            .or_else(|| set("LANG"))
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase();
        Self {
            colour: if set("NO_COLOR").is_some() {
                Colour::Never
            } else if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
                Colour::Always
            } else if set("CLICOLOR").is_some_and(|value| value == "0") {
                Colour::Never
            } else {
                Colour::OnTerminals
            },
            dumb: set("TERM").is_none_or(|value| value == "dumb"),
            utf8: locale.contains("utf-8") || locale.contains("utf8"),
            // When a window becomes narrower, `xterm`, the Linux console and `screen` cut the rows. All other terminals
            // break the rows. `tmux` also breaks the rows, in any terminal.
            narrowing: match set("TERM") {
                _ if set("TMUX").is_some() => Narrowing::Breaks,
                _ if set("XTERM_VERSION").is_some() => Narrowing::Cuts,
                Some(term) if term == "linux" || term == "screen" => Narrowing::Cuts,
                _ => Narrowing::Breaks,
            },
            notification_method,
            // The Linux console and GNU screen may show the address as text.
            links: !(term == "linux" || term.starts_with("screen")),
        }
    }

    /// True if the terminal interprets control sequences, which the live region needs.
    pub fn has_cursor(&self) -> bool {
        !self.dumb
    }

    /// Method by which the terminal notifies a person.
    pub fn notification_method(&self) -> NotificationMethod {
        self.notification_method
    }

    /// Treatment of rows by a terminal that becomes narrower.
    pub fn narrowing(&self) -> Narrowing {
        self.narrowing
    }

    /// The style for a stream. `is_terminal` is true if the stream is a terminal.
    pub fn style(&self, is_terminal: bool) -> Style {
        Style {
            colour: match self.colour {
                Colour::Never => false,
                Colour::OnTerminals => is_terminal && !self.dumb,
                Colour::Always => true,
            },
            unicode: self.utf8,
            links: is_terminal && !self.dumb && self.links,
        }
    }
}

/// Meaning of a piece of text, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRole {
    /// A success.
    Good,
    /// A state that needs attention.
    Warning,
    /// A failure.
    Bad,
    /// A failure that must not be overlooked.
    Alarm,
    /// The main part of its line.
    Strong,
    /// A detail that readers can skip.
    Dim,
}

/// A sign at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbol {
    /// Success with a known result.
    Good,
    /// Failure.
    Bad,
    /// Unknown result.
    Unknown,
    /// Running.
    Running,
    /// Ended by itself.
    Finished,
    /// Stopped.
    Stopped,
    /// Permission denied.
    Denied,
    /// Retried.
    Again,
}

/// Colours and letters of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    colour: bool,
    unicode: bool,
    links: bool,
}

impl Style {
    /// Creates a style from its settings. [`Environment::style`] gives the style of a stream.
    pub const fn new(colour: bool, unicode: bool) -> Self {
        Self {
            colour,
            unicode,
            links: false,
        }
    }

    /// True if the terminal may know links (the control sequence OSC 8).
    pub(crate) fn has_links(self) -> bool {
        self.links
    }

    /// True if text is coloured.
    pub fn is_coloured(self) -> bool {
        self.colour
    }

    /// True if letters outside ASCII may be drawn.
    pub fn is_unicode(self) -> bool {
        self.unicode
    }

    /// Picks one of two texts: `unicode` if characters outside ASCII may be drawn, otherwise `ascii`.
    pub fn pick<'a>(self, unicode: &'a str, ascii: &'a str) -> &'a str {
        if self.unicode { unicode } else { ascii }
    }

    /// Paints a text in the colour of its role. If the text ends with a line end, the closing control sequence comes
    /// before this line end.
    pub fn paint(self, role: TextRole, part: impl StyledPart) -> Styled {
        let text = styled![part];
        if !self.colour || text.is_empty() {
            return text;
        }
        let plain = anstyle::Style::new();
        let style = match role {
            TextRole::Good => AnsiColor::Green.on_default(),
            TextRole::Warning => AnsiColor::Yellow.on_default(),
            TextRole::Bad => AnsiColor::Red.on_default(),
            TextRole::Alarm => AnsiColor::Red
                .on_default()
                .effects(Effects::BOLD | Effects::INVERT),
            TextRole::Strong => plain.effects(Effects::BOLD),
            TextRole::Dim => plain.effects(Effects::DIMMED),
        };
        text.within(&style.to_string(), &format!("{style:#}"))
    }

    /// Formats a failure and its remedy.
    pub fn failure(self, message: &str, hint: Option<&str>) -> Styled {
        let mut lines = Styled::default();
        let error = self.paint(TextRole::Bad, "error:");
        lines.push_line(&styled![error, " ", Styled::text(message).hanging(2)]);
        for hint in hint.iter().flat_map(|hint| hint.lines()) {
            lines.push_line(&styled![self.paint(TextRole::Dim, "hint:"), " ", hint]);
        }
        lines
    }

    /// The sign without a colour, one column wide.
    pub fn symbol(self, symbol: Symbol) -> &'static str {
        match symbol {
            Symbol::Good => self.pick("✓", "+"),
            Symbol::Bad => self.pick("✗", "x"),
            Symbol::Unknown => "?",
            Symbol::Running => self.pick("▶", "!"),
            Symbol::Finished => self.pick("·", "."),
            Symbol::Stopped => self.pick("■", "#"),
            Symbol::Denied => self.pick("⊘", "-"),
            Symbol::Again => self.pick("↻", "~"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::read(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    fn colour(pairs: &[(&str, &str)], is_terminal: bool) -> bool {
        environment(pairs).style(is_terminal).colour
    }

    #[test]
    fn colours_obey_the_environment() {
        let xterm = ("TERM", "xterm-256color");
        assert!(colour(&[xterm], true));
        assert!(!colour(&[xterm], false));
        assert!(!colour(&[xterm, ("NO_COLOR", "1")], true));
        assert!(colour(&[xterm, ("NO_COLOR", "")], true), "empty is unset");
        assert!(!colour(&[xterm, ("CLICOLOR", "0")], true));
        assert!(colour(&[xterm, ("CLICOLOR_FORCE", "1")], false));
        assert!(!colour(&[xterm, ("CLICOLOR_FORCE", "0")], false));
        assert!(!colour(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true));
        assert!(!colour(&[("TERM", "dumb")], true));
        assert!(!colour(&[], true), "no TERM is no terminal that is known");
        assert!(colour(&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], true));
    }

    #[test]
    fn letters_obey_the_locale() {
        let unicode = |pairs: &[_]| environment(pairs).style(true).is_unicode();
        assert!(unicode(&[("LANG", "de_DE.UTF-8")]));
        assert!(unicode(&[("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(!unicode(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!unicode(&[]));
    }

    #[test]
    fn paint_closes_what_it_opens() {
        let style = Style::new(true, true);
        let paint = |style: Style, text: &str| style.paint(TextRole::Good, Styled::text(text));
        assert_eq!(paint(style, "ok").as_str(), "\u{1b}[32mok\u{1b}[0m");
        assert_eq!(paint(style, "ok\n").as_str(), "\u{1b}[32mok\u{1b}[0m\n");
        assert!(paint(style, "").is_empty());
        assert_eq!(paint(Style::default(), "no").as_str(), "no");
    }
}
