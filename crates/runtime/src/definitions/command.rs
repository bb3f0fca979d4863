//! Commands: prompts of the user, with places for arguments.

use std::path::PathBuf;

use serde::Deserialize;

use super::files::DefinitionFile;
use super::front_matter::{name, one_line, split};

/// Place of all arguments, as they were typed.
const ALL: &str = "ARGUMENTS";

/// A prompt with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandDefinition {
    /// Name, used as `/NAME`.
    pub name: String,
    /// Description for people, as one line.
    pub description: Option<String>,
    /// Description of the arguments, such as `FILE`.
    pub argument_hint: Option<String>,
    /// File of the command.
    pub path: PathBuf,
    template: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CommandValues {
    description: Option<String>,
    #[serde(rename = "argument-hint")]
    argument_hint: Option<String>,
}

impl CommandDefinition {
    pub(super) fn parse(file: &DefinitionFile) -> Result<Self, String> {
        let (values, template) = split::<CommandValues>(&file.text)?;
        Ok(Self {
            name: name(&file.name)?,
            description: values.description.as_deref().map(one_line),
            argument_hint: values.argument_hint.as_deref().map(one_line),
            path: file.path.clone(),
            template,
        })
    }

    /// The prompt with these arguments. `$ARGUMENTS` stands for all arguments, and `$1` to `$9` for single words or
    /// quoted texts. The highest of these numbers in the prompt stands for all remaining words. Without any such place,
    /// the arguments follow the prompt. `$$1` stands for the text `$1`. The prompt is text: no part of it or of the
    /// arguments is run.
    pub fn expand(&self, arguments: &str) -> String {
        let arguments = arguments.trim();
        let places: Vec<ArgumentPlace> = places(&self.template);
        let highest = places.iter().filter_map(|place| place.number()).max();
        let words = words(arguments);
        let mut text = String::new();
        let mut rest = self.template.as_str();
        let mut has_place = false;
        while let Some((before, place, after)) = next_place(rest) {
            text.push_str(before);
            match place {
                ArgumentPlace::Escaped(literal) => text.push_str(literal),
                ArgumentPlace::All => text.push_str(arguments),
                ArgumentPlace::Word(number) if Some(number) == highest => {
                    let remaining = words.get(number - 1..).unwrap_or_default();
                    text.push_str(&remaining.join(" "));
                }
                ArgumentPlace::Word(number) => {
                    text.push_str(words.get(number - 1).map_or("", String::as_str));
                }
            }
            has_place |= !matches!(place, ArgumentPlace::Escaped(_));
            rest = after;
        }
        text.push_str(rest);
        if !has_place && !arguments.is_empty() {
            text.push_str("\n\n");
            text.push_str(arguments);
        }
        text
    }
}

/// Place for arguments in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgumentPlace<'a> {
    All,
    /// A number from 1 to 9.
    Word(usize),
    /// The text of a place that begins with `$$`.
    Escaped(&'a str),
}

impl ArgumentPlace<'_> {
    fn number(self) -> Option<usize> {
        match self {
            Self::Word(number) => Some(number),
            Self::All | Self::Escaped(_) => None,
        }
    }
}

fn places(template: &str) -> Vec<ArgumentPlace<'_>> {
    let mut rest = template;
    std::iter::from_fn(|| {
        let (_, place, after) = next_place(rest)?;
        rest = after;
        Some(place)
    })
    .collect()
}

/// The text before the next place, the place, and the text after it.
fn next_place(text: &str) -> Option<(&str, ArgumentPlace<'_>, &str)> {
    let dollars = text.match_indices('$').map(|(at, _)| at);
    dollars.into_iter().find_map(|at| {
        let (before, from) = text.split_at(at);
        let is_escaped = from.starts_with("$$");
        let named = from.get(if is_escaped { 2 } else { 1 }..)?;
        let (len, place) = if named.starts_with(ALL) {
            (ALL.len(), ArgumentPlace::All)
        } else {
            let digit = named
                .chars()
                .next()?
                .to_digit(10)
                .filter(|digit| *digit > 0)?;
            // `$10` is an amount of money or a number of another language, and not the first argument.
            let is_longer = named.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
            if is_longer {
                return None;
            }
            (1, ArgumentPlace::Word(digit as usize))
        };
        let after = named.get(len..)?;
        if is_escaped {
            let literal = from.get(1..2 + len)?;
            return Some((before, ArgumentPlace::Escaped(literal), after));
        }
        Some((before, place, after))
    })
}

/// Splits at white space, except within quotes. A quote that is not closed is part of its word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let closed = ['"', '\''].contains(&first).then(|| {
            let inner = rest.get(1..)?;
            let (word, after) = inner.split_once(first)?;
            (after.is_empty() || after.starts_with(char::is_whitespace)).then_some((word, after))
        });
        let (word, after) = closed.flatten().unwrap_or_else(|| {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            rest.split_at(end)
        });
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(template: &str, arguments: &str) -> String {
        let command = CommandDefinition {
            name: "c".to_owned(),
            description: None,
            argument_hint: None,
            path: PathBuf::new(),
            template: template.to_owned(),
        };
        command.expand(arguments)
    }

    #[test]
    fn arguments_go_to_their_places() {
        for (template, arguments, expanded) in [
            ("fix $ARGUMENTS now", "a  'b c'", "fix a  'b c' now"),
            ("$1 and $2", "a b", "a and b"),
            ("$1 and $2", "\"a b\" 'c d'", "a b and c d"),
            ("$1 and $2", "a b c d", "a and b c d"),
            ("$1 and $2", "a", "a and "),
            ("fix it", "soon", "fix it\n\nsoon"),
            ("fix it", " ", "fix it"),
            ("cost $$1, $10, $x, 5$", "a", "cost $1, $10, $x, 5$\n\na"),
            ("$$ARGUMENTS is $ARGUMENTS", "x", "$ARGUMENTS is x"),
            ("it's $1", "it's", "it's it's"),
            (
                "$1 $ARGUMENTS",
                "$2 $ARGUMENTS",
                "$2 $ARGUMENTS $2 $ARGUMENTS",
            ),
            ("é$1é", "é", "ééé"),
        ] {
            assert_eq!(
                expand(template, arguments),
                expanded,
                "{template:?} {arguments:?}"
            );
        }
    }
}
