//! The simple commands in a shell command, as far as they are known before the shell command runs.
//!
//! Invariants:
//! 1. Apart from words of shell syntax such as `if`, a parsed command directly runs only the programs that the first
//!    words of its simple commands name. Syntax that the parser does not know makes the whole command opaque, so that
//!    its programs count as unknown.
//! 2. A word that does not expand reaches its program unchanged.
//! 3. A rule that allows needs a certain match, so the policy asks if the command has a redirection, an assignment or a
//!    variable. A rule that denies has an uncertain match only if the command could hide a program.

mod launchers;
mod matching;
mod parsed;
mod parser;
mod reads_only;
mod sed;

use parsed::CommandWord;
pub(super) use parsed::{ParsedCommand, PrefixMatch};
use parser::CommandParser;

impl ParsedCommand {
    pub(super) fn parse(command: &str) -> Self {
        match CommandParser::default().parse(command) {
            Some(Self::Parsed { commands, .. }) if commands.is_empty() => Self::Opaque,
            Some(read) => read,
            None => Self::Opaque,
        }
    }

    /// True if every simple command certainly starts with one of the prefixes.
    pub(super) fn all_start_with<'a>(
        &self,
        prefixes: &(impl Iterator<Item = &'a [String]> + Clone),
    ) -> bool {
        self.all_plain(|words| {
            prefixes.clone().any(|prefix| {
                prefix.len() <= words.len()
                    && prefix
                        .iter()
                        .zip(words)
                        .all(|(want, word)| !word.expands && *want == word.text)
            })
        })
    }

    /// True if every simple command only reads below the working directory.
    pub(super) fn only_reads(&self, may_use_git: &dyn Fn() -> bool) -> bool {
        self.all_plain(|words| reads_only::only_reads(words, may_use_git))
    }

    /// True if the command consists of plain words, and each of its simple commands is as wanted.
    fn all_plain(&self, is_wanted: impl Fn(&[CommandWord]) -> bool) -> bool {
        match self {
            Self::Parsed {
                commands,
                is_plain: true,
            } => commands.iter().all(|words| is_wanted(words)),
            _ => false,
        }
    }

    /// Strongest match of any simple command with the prefix.
    pub(super) fn any_starts_with(&self, prefix: &[String]) -> PrefixMatch {
        let Self::Parsed { commands, .. } = self else {
            return PrefixMatch::Uncertain;
        };
        let matches = commands.iter().map(|words| matching::of(words, prefix));
        matches.max().unwrap_or(PrefixMatch::No)
    }

    /// Returns the words of the command if it is one simple command without expansions.
    pub(super) fn into_plain_words(self) -> Option<Vec<String>> {
        let Self::Parsed {
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
