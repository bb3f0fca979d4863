//! The title of the terminal's window, and the marks between turns. Both are control sequences without text.

use super::text::escape;

/// Saves the title of the window on the terminal's own stack.
const SAVE: &str = "\x1b[22;2t";
/// Restores the saved title.
const RESTORE: &str = "\x1b[23;2t";

/// Mark at a place of the output (the control sequence OSC 133). A terminal that knows the marks can jump from message
/// to message, and copy a whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnMark {
    /// A message of the user follows.
    Message,
    /// The answer follows.
    Answer,
    /// The answer has ended.
    End,
}

impl TurnMark {
    pub(super) fn sequence(self) -> &'static str {
        match self {
            Self::Message => "\x1b]133;A\x1b\\",
            Self::Answer => "\x1b]133;C\x1b\\",
            Self::End => "\x1b]133;D\x1b\\",
        }
    }
}

/// Writes the change from one title to another. `None` is the title that the window had before.
pub(super) fn change(from: Option<&str>, to: Option<&str>) -> String {
    match (from, to) {
        (None, None) => String::new(),
        (None, Some(to)) => format!("{SAVE}{}", set(to)),
        (Some(_), Some(to)) => set(to),
        (Some(_), None) => RESTORE.to_owned(),
    }
}

fn set(title: &str) -> String {
    format!("\x1b]2;{}\x1b\\", escape::line(title))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_saved_once_and_restored() {
        assert_eq!(change(None, None), "");
        assert_eq!(change(None, Some("a")), "\x1b[22;2t\x1b]2;a\x1b\\");
        assert_eq!(change(Some("a"), Some("b\x1b]")), "\x1b]2;b\\u{1b}]\x1b\\");
        assert_eq!(change(Some("b"), None), "\x1b[23;2t");
    }
}
