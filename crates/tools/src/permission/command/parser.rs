//! Parser of shell commands: from characters to words to simple commands.
//!
//! The parser accepts the syntax that `sh` and all related shells parse in the same way. Substitutions, here-documents,
//! functions, unfinished quotes and control characters make the command opaque: the programs that it runs count as
//! unknown.

use std::iter::Peekable;
use std::str::Chars;

use super::parsed::{CommandWord, ParsedCommand};

/// State of the parser: finished commands, and the current command and word.
#[derive(Default)]
pub(super) struct CommandParser {
    commands: Vec<Vec<CommandWord>>,
    words: Vec<CommandWord>,
    word: Option<CommandWord>,
    /// True if a part of the current word is quoted.
    is_quoted: bool,
    /// True if the current word names the file of a redirection.
    redirects: bool,
    /// True if the command contains other syntax than plain words.
    has_syntax: bool,
}

impl CommandParser {
    /// Parses a command; `None` if it is opaque.
    pub(super) fn parse(mut self, command: &str) -> Option<ParsedCommand> {
        let mut chars = command.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                ' ' | '\t' => self.end_word(),
                // Some shells parse `&>f` as one redirection, others as `&` and a new command.
                '&' if chars.peek() == Some(&'>') => return None,
                '\n' | ';' | '&' | '|' => self.end_command()?,
                '\'' => self.single_quoted(&mut chars)?,
                '"' => self.double_quoted(&mut chars)?,
                '\\' => match chars.next()? {
                    '\n' => self.has_syntax = true,
                    escaped => {
                        self.is_quoted = true;
                        self.push(escaped);
                    }
                },
                '#' if self.word.is_none() => self.comment(&mut chars)?,
                '(' | ')' => self.subshell(c)?,
                '<' | '>' => self.redirection(c, &mut chars)?,
                '$' => self.variable(&mut chars)?,
                '`' => return None,
                '*' | '?' | '[' | ']' | '{' | '}' | '~' => {
                    self.push(c);
                    self.word.get_or_insert_default().expands = true;
                }
                // Shells differ on whether these characters end a word.
                c if c.is_control() || (c.is_whitespace() && !c.is_ascii()) => return None,
                c => self.push(c),
            }
        }
        self.end_command()?;
        Some(ParsedCommand::Parsed {
            commands: self.commands,
            is_plain: !self.has_syntax,
        })
    }

    fn single_quoted(&mut self, chars: &mut Peekable<Chars<'_>>) -> Option<()> {
        self.is_quoted = true;
        let word = self.word.get_or_insert_default();
        loop {
            match chars.next()? {
                '\'' => return Some(()),
                c => word.text.push(c),
            }
        }
    }

    fn double_quoted(&mut self, chars: &mut Peekable<Chars<'_>>) -> Option<()> {
        self.is_quoted = true;
        self.word.get_or_insert_default();
        loop {
            match chars.next()? {
                '"' => return Some(()),
                '$' => match chars.peek() {
                    // In every shell, this is a literal dollar sign.
                    Some('"' | ' ') => self.push('$'),
                    _ => self.variable(chars)?,
                },
                '`' => return None,
                '\\' => match chars.next()? {
                    '\n' => self.has_syntax = true,
                    c @ ('"' | '\\' | '$' | '`') => self.push(c),
                    c => {
                        self.push('\\');
                        self.push(c);
                    }
                },
                c => self.push(c),
            }
        }
    }

    fn comment(&mut self, chars: &mut Peekable<Chars<'_>>) -> Option<()> {
        self.has_syntax = true;
        while chars.next_if(|c| *c != '\n').is_some() {}
        (!self.redirects).then_some(())
    }

    /// Parses a parenthesis. A list in parentheses runs like a list without parentheses. A parenthesis after a word is
    /// refused, because it would define a function or be invalid in `sh`.
    fn subshell(&mut self, c: char) -> Option<()> {
        self.has_syntax = true;
        if c == ')' {
            return self.end_command();
        }
        (self.words.is_empty() && self.word.is_none() && !self.redirects).then_some(())
    }

    /// Parses a redirection, which opens a file but runs no program. The next word does not belong to the command.
    fn redirection(&mut self, c: char, chars: &mut Peekable<Chars<'_>>) -> Option<()> {
        self.has_syntax = true;
        if self.redirects {
            return None;
        }
        // A single digit before the redirection is a file descriptor. Several digits are refused, because some shells
        // treat them as a word.
        let is_number = |word: &CommandWord| word.text.chars().all(|c| c.is_ascii_digit());
        let is_quoted = std::mem::take(&mut self.is_quoted);
        match self.word.take() {
            Some(word) if !is_quoted && is_number(&word) => (word.text.len() == 1).then_some(())?,
            word => self.words.extend(word),
        }
        match (c, chars.peek()) {
            ('<', Some('<')) => return None,
            ('<' | '>', Some('&')) => {
                chars.next();
                return descriptor(chars);
            }
            ('<', Some('>')) | ('>', Some('>' | '|')) => drop(chars.next()),
            _ => {}
        }
        self.redirects = true;
        Some(())
    }

    /// Parses the name of a variable. The value of the variable is unknown.
    fn variable(&mut self, chars: &mut Peekable<Chars<'_>>) -> Option<()> {
        self.has_syntax = true;
        let is_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let in_braces = chars.next_if_eq(&'{').is_some();
        let mut names = 0;
        while chars.next_if(is_name).is_some() {
            names += 1;
        }
        if names == 0 {
            chars.next_if(|c| "@*#?-$!".contains(*c))?;
        }
        if in_braces {
            chars.next_if_eq(&'}')?;
        }
        self.push('$');
        self.word.get_or_insert_default().expands = true;
        Some(())
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().text.push(c);
    }

    fn end_word(&mut self) {
        self.is_quoted = false;
        if let Some(word) = self.word.take()
            && !std::mem::take(&mut self.redirects)
        {
            self.words.push(word);
        }
    }

    /// Ends the simple command; `None` if a redirection has no file.
    fn end_command(&mut self) -> Option<()> {
        self.end_word();
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
        (!self.redirects).then_some(())
    }
}

/// Parses the descriptor's number after `>&` or `<&`. Other text is refused, because shells differ: in some shells a
/// `-` ends the redirection, and the following text belongs to the command.
fn descriptor(chars: &mut Peekable<Chars<'_>>) -> Option<()> {
    chars.next_if(char::is_ascii_digit)?;
    match chars.peek() {
        None => Some(()),
        Some(c) => " \t\n;&|)<>".contains(*c).then_some(()),
    }
}
