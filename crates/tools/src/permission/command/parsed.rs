//! A shell command as words.

/// A shell command, as far as its simple commands are known before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::permission) enum ParsedCommand {
    /// The programs that the command runs are unknown.
    Opaque,
    /// The command runs some or all of these simple commands, in some order.
    Parsed {
        commands: Vec<Vec<CommandWord>>,
        /// True if the command has no redirection, variable or surrounding syntax.
        is_plain: bool,
    },
}

/// A word of a simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::permission) struct CommandWord {
    pub(super) text: String,
    /// True if the shell expands the word (a glob, a tilde, braces, a variable), so that the program may receive
    /// different text.
    pub(super) expands: bool,
}

impl CommandWord {
    /// True if the word could expand to an option, or to several words of which one is an option.
    pub(super) fn may_become_option(&self) -> bool {
        self.expands
            && (self.text.starts_with(['*', '?', '[', '{', '-']) || self.text.contains('$'))
    }
}

/// Match of a simple command with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::permission) enum PrefixMatch {
    No,
    /// The command may match.
    Uncertain,
    Yes,
}
