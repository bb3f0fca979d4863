//! Which simple commands a shell command consists of, as far as that can be told without running it.
//!
//! Everything that could run something else, or that this reader does not know, makes the whole command opaque:
//! substitutions, redirections, groups, functions, comments, control characters. Invariants:
//! 1. A plain command runs no program but the first words of its simple commands.
//! 2. A word that is `certain` reaches its program exactly as it stands here.

/// A shell command, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// It cannot be told what it runs.
    Opaque,
    /// It runs these, in some order, some perhaps not.
    Plain(Vec<Vec<Word>>),
}

/// One word of a simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    text: String,
    /// The shell expands it (a glob, a tilde, braces): the program may be given something else.
    expands: bool,
}

/// Whether a rule is about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    Yes,
    No,
    /// It cannot be told.
    Perhaps,
}

/// First words that run what follows them, or that are syntax: the program behind them is not looked for.
const RUNS_ANOTHER: &[&str] = &[
    "!", ".", "[[", "alias", "awk", "bash", "builtin", "busybox", "case", "chroot", "chrt",
    "command", "coproc", "dash", "do", "doas", "elif", "else", "env", "eval", "exec", "expect",
    "fakeroot", "find", "flock", "for", "function", "gawk", "if", "ionice", "ksh", "lua", "make",
    "mawk", "nice", "node", "nohup", "nsenter", "parallel", "perl", "php", "prlimit", "python",
    "python3", "ruby", "runuser", "script", "select", "setarch", "setpriv", "setsid", "sh",
    "source", "ssh", "stdbuf", "strace", "su", "sudo", "taskset", "then", "time", "timeout",
    "trap", "unbuffer", "unshare", "until", "watch", "while", "xargs", "zsh",
];

impl Command {
    /// Reads a command.
    pub(super) fn parse(command: &str) -> Self {
        match Reader::default().read(command) {
            Some(commands) if !commands.is_empty() => Self::Plain(commands),
            _ => Self::Opaque,
        }
    }

    /// Whether every simple command starts with one of the prefixes, for certain.
    pub(super) fn all_start_with<'a>(
        &self,
        prefixes: &(impl Iterator<Item = &'a [String]> + Clone),
    ) -> bool {
        let Self::Plain(commands) = self else {
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

    /// Whether any simple command starts with the prefix. The program's folder does not count: `/bin/rm` is `rm`.
    pub(super) fn any_starts_with(&self, prefix: &[String]) -> Match {
        let Self::Plain(commands) = self else {
            return Match::Perhaps;
        };
        let mut result = Match::No;
        for words in commands {
            match starts_with(words, prefix) {
                Match::Yes => return Match::Yes,
                Match::Perhaps => result = Match::Perhaps,
                Match::No => {}
            }
        }
        result
    }

    /// The words of the one simple command, if that is all it is and nothing in it expands.
    pub(super) fn into_plain_words(self) -> Option<Vec<String>> {
        match self {
            Self::Plain(mut commands) if commands.len() == 1 => {
                let words = commands.pop()?;
                words
                    .into_iter()
                    .map(|word| (!word.expands).then_some(word.text))
                    .collect()
            }
            _ => None,
        }
    }
}

fn starts_with(words: &[Word], prefix: &[String]) -> Match {
    let program = words
        .first()
        .map_or("", |word| word.text.rsplit('/').next().unwrap_or_default());
    // `A=b rm` runs `rm`; what `sudo` runs stands further on. Neither is worth a parser of its own.
    if words.first().is_some_and(|word| word.text.contains('=')) || RUNS_ANOTHER.contains(&program)
    {
        if words
            .first()
            .is_some_and(|word| prefix.first() == Some(&word.text))
            && prefix.len() == 1
        {
            return Match::Yes;
        }
        return Match::Perhaps;
    }
    for (index, want) in prefix.iter().enumerate() {
        let Some(word) = words.get(index) else {
            return Match::No;
        };
        if word.expands {
            return Match::Perhaps;
        }
        let text = if index == 0 {
            program
        } else {
            word.text.as_str()
        };
        if text != want && word.text != *want {
            return Match::No;
        }
    }
    Match::Yes
}

/// The reader's state: commands so far, the simple command and the word under way.
#[derive(Default)]
struct Reader {
    commands: Vec<Vec<Word>>,
    words: Vec<Word>,
    word: Option<Word>,
}

impl Reader {
    /// `None`: opaque.
    fn read(mut self, command: &str) -> Option<Vec<Vec<Word>>> {
        let mut chars = command.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                ' ' | '\t' => self.end_word(),
                '\n' | ';' | '&' | '|' => self.end_command(),
                '\'' => self.single_quoted(&mut chars)?,
                '"' => self.double_quoted(&mut chars)?,
                '\\' => match chars.next()? {
                    '\n' => return None,
                    escaped => self.push(escaped),
                },
                // A comment hides the rest of its line; within a word it is a letter.
                '#' if self.word.is_none() => return None,
                '$' | '`' | '(' | ')' | '<' | '>' => return None,
                '*' | '?' | '[' | ']' | '{' | '}' | '~' => {
                    self.push(c);
                    self.word.get_or_insert_default().expands = true;
                }
                // Shells differ on which of these end a word.
                c if c.is_control() || (c.is_whitespace() && !c.is_ascii()) => return None,
                c => self.push(c),
            }
        }
        self.end_command();
        Some(self.commands)
    }

    fn single_quoted(&mut self, chars: &mut impl Iterator<Item = char>) -> Option<()> {
        let word = self.word.get_or_insert_default();
        loop {
            match chars.next()? {
                '\'' => return Some(()),
                c => word.text.push(c),
            }
        }
    }

    fn double_quoted(&mut self, chars: &mut impl Iterator<Item = char>) -> Option<()> {
        let word = self.word.get_or_insert_default();
        loop {
            match chars.next()? {
                '"' => return Some(()),
                '$' | '`' => return None,
                '\\' => match chars.next()? {
                    '\n' => return None,
                    c @ ('"' | '\\' | '$' | '`') => word.text.push(c),
                    c => word.text.extend(['\\', c]),
                },
                c => word.text.push(c),
            }
        }
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().text.push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }
}
