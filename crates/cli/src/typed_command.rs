//! Commands from files in a typed prompt: `/NAME arguments`.

use allstop_runtime::Definitions;

/// Meaning of a typed prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TypedCommand<'a> {
    /// The prompt is text, such as a path.
    None,
    /// The prompt begins with the name of a command. The text is the prompt of the command, with the arguments.
    Expanded { name: &'a str, text: String },
    /// The prompt is the name of a command after `//`: text, without the first slash.
    Literal(&'a str),
    /// The prompt looks like a command, and other commands exist.
    Unknown(&'a str),
}

impl<'a> TypedCommand<'a> {
    pub(crate) fn find(typed: &'a str, definitions: &Definitions) -> Self {
        let Some(command) = typed.strip_prefix('/') else {
            return Self::None;
        };
        let is_literal = command.starts_with('/');
        let words = command.trim_start_matches('/');
        let (name, arguments) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        match definitions.commands.get(name) {
            Some(_) if is_literal => Self::Literal(command),
            Some(definition) => Self::Expanded {
                name,
                text: definition.expand(arguments),
            },
            None if is_literal || name.is_empty() || definitions.commands.is_empty() => Self::None,
            None if is_name(name) => Self::Unknown(name),
            None => Self::None,
        }
    }
}

/// True for a word that can be the name of a command. A path has a second slash or a dot.
fn is_name(word: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    word.chars().all(is_valid)
}
