//! Notifies a person who looks at another window: work has ended, or waits for an answer.

use super::text::escape;

/// A notification for a person, as a terminal can show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The text, which is escaped before it is shown.
    pub text: String,
    /// Method of the notification.
    pub method: NotificationMethod,
}

/// Method by which a terminal notifies a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NotificationMethod {
    /// The bell, which every terminal has.
    #[default]
    Bell,
    /// A desktop notification: the sequence OSC 9, introduced by iTerm2.
    Desktop,
}

impl NotificationMethod {
    /// The notification method of a terminal with these environment variables. OSC 9 is used only for terminals that
    /// are known to support it.
    pub(super) fn of(program: &str, term: &str, in_tmux: bool) -> Self {
        let takes_osc = matches!(program, "iTerm.app" | "WezTerm" | "ghostty")
            || matches!(term, "xterm-kitty" | "xterm-ghostty" | "foot");
        if takes_osc && !in_tmux {
            Self::Desktop
        } else {
            Self::Bell
        }
    }
}

impl Notification {
    pub(super) fn write(&self, to: &mut String) {
        match self.method {
            NotificationMethod::Bell => to.push('\u{7}'),
            NotificationMethod::Desktop => {
                to.extend(["\u{1b}]9;", &*escape::line(&self.text), "\u{7}"]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terminals_that_take_the_sequence_get_it() {
        let notified = |program, term, in_tmux| {
            NotificationMethod::of(program, term, in_tmux) == NotificationMethod::Desktop
        };
        assert!(notified("iTerm.app", "xterm-256color", false));
        assert!(notified("", "xterm-kitty", false));
        assert!(!notified("iTerm.app", "screen-256color", true));
        assert!(!notified("", "xterm-256color", false));
        let mut written = String::new();
        let notification = Notification {
            text: "a\u{7}b\u{1b}]".to_owned(),
            method: NotificationMethod::Desktop,
        };
        notification.write(&mut written);
        assert_eq!(written.matches('\u{7}').count(), 1);
        assert_eq!(written.matches('\u{1b}').count(), 1);
    }
}
