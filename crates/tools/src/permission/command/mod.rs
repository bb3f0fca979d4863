//! Which simple commands a shell command consists of, as far as that can be told without running it.
//!
//! Invariants:
//! 1. A command that was read runs no program by itself but the first words of its simple commands, after words of the
//!    shell's syntax such as `if`. What this reader does not know makes the whole command opaque.
//! 2. A word that does not expand reaches its program exactly as it stands here.
//! 3. A rule allows only what is certain, so a redirection, an assignment or a variable is enough to ask; a rule that
//!    denies is in doubt only where a program could be hidden.

mod launchers;
mod matching;
mod reader;
mod sed;

use reader::Reader;

/// A shell command, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// It cannot be told what it runs.
    Opaque,
    /// It runs these, in some order, some perhaps not.
    Read {
        commands: Vec<Vec<Word>>,
        /// It is nothing but these: no redirection, no variable, no syntax around them.
        is_plain: bool,
    },
}

/// One word of a simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    text: String,
    /// The shell expands it (a glob, a tilde, braces, a variable): the program may be given something else.
    expands: bool,
}

impl Word {
    /// True if the word could begin with a dash or become several words, which may.
    fn may_become_option(&self) -> bool {
        self.expands
            && (self.text.starts_with(['*', '?', '[', '{', '-']) || self.text.contains('$'))
    }
}

/// Match of a rule with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    No,
    /// It cannot be told.
    Perhaps,
    Yes,
}

impl Command {
    /// Reads a command.
    pub(super) fn parse(command: &str) -> Self {
        match Reader::default().read(command) {
            Some(Self::Read { commands, .. }) if commands.is_empty() => Self::Opaque,
            Some(read) => read,
            None => Self::Opaque,
        }
    }

    /// True if every simple command starts with one of the prefixes, for certain.
    pub(super) fn all_start_with<'a>(
        &self,
        prefixes: &(impl Iterator<Item = &'a [String]> + Clone),
    ) -> bool {
        let Self::Read {
            commands,
            is_plain: true,
        } = self
        else {
            return false;
        };
        commands.iter().all(|words| {
            prefixes.clone().any(|prefix| {
                prefix.len() <= words.len()
                    && prefix
                        .iter()
                        .zip(words)
                        .all(|(want, word)| !word.expands && *want == word.text)
            })
        })
    }

    /// True if any simple command starts with the prefix, or may come to that.
    pub(super) fn any_starts_with(&self, prefix: &[String]) -> Match {
        let Self::Read { commands, .. } = self else {
            return Match::Perhaps;
        };
        let matches = commands.iter().map(|words| matching::of(words, prefix));
        matches.max().unwrap_or(Match::No)
    }

    /// The words of the one simple command, if that is all it is and nothing in it expands.
    pub(super) fn into_plain_words(self) -> Option<Vec<String>> {
        let Self::Read {
            mut commands,
            is_plain: true,
        } = self
        else {
            return None;
        };
        let words = commands.pop().filter(|_| commands.is_empty())?;
        words
            .into_iter()
            .map(|word| (!word.expands).then_some(word.text))
            .collect()
    }
}
