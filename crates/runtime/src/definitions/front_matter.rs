//! Front matter: YAML between two lines `---` at the beginning of a Markdown file.

use std::fmt;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Maximum length of a name, in bytes: the limit of the other agents.
const NAME_LEN_MAX: usize = 64;
/// Maximum length of a description, in characters: the limit of the other agents. Every model call sends it.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Maximum number of values in the YAML: a bound for aliases that multiply.
const NODES_MAX: usize = 1_000;

/// Splits a file into its front matter and its body, without white space around the body.
///
/// # Errors
/// If the front matter has no end or is invalid, or if the body is empty.
pub(super) fn split<T: DeserializeOwned + Default>(text: &str) -> Result<(T, String), String> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let (values, body) = match text.strip_prefix("---\n") {
        None => (T::default(), text.as_str()),
        Some(rest) => {
            let end = if rest.starts_with("---\n") {
                Some(0)
            } else {
                rest.find("\n---\n").map(|at| at + 1)
            };
            let end = end.or_else(|| rest.ends_with("\n---").then(|| rest.len() - 3));
            let end = end.ok_or("its front matter has no end, a line `---`")?;
            let (yaml, body) = rest.split_at(end);
            (parse(yaml)?, body.trim_start_matches('-'))
        }
    };
    let body = body.trim();
    if body.is_empty() {
        return Err("its text is empty".to_owned());
    }
    Ok((values, body.to_owned()))
}

fn parse<T: DeserializeOwned + Default>(yaml: &str) -> Result<T, String> {
    if yaml.trim().is_empty() {
        return Ok(T::default());
    }
    let read = |yaml: &str| {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: NODES_MAX,
                max_events: 4 * NODES_MAX,
            },
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(yaml, options)
    };
    // Files of other agents often have a colon in a text without quotes, which is no valid YAML.
    let error: serde_saphyr::Error = match read(yaml) {
        Ok(values) => return Ok(values),
        Err(error) => match read(&with_quotes(yaml)) {
            Ok(values) => return Ok(values),
            Err(_) => error,
        },
    };
    let message = error.without_snippet().to_string();
    let message = message.lines().next().unwrap_or_default();
    Err(format!("its front matter is invalid: {message}"))
}

/// Puts quotes around each text on the line of its key that contains a colon.
fn with_quotes(yaml: &str) -> String {
    let quoted = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        let is_key = key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let value = value.trim();
        let is_plain = !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!']);
        let is_text = is_key && is_plain && value.contains(':');
        is_text.then(|| format!("{key}: '{}'", value.replace('\'', "''")))
    };
    let lines = yaml
        .lines()
        .map(|line| quoted(line).unwrap_or_else(|| line.to_owned()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Checks a name.
pub(super) fn name(name: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.len() <= NAME_LEN_MAX && name.chars().all(is_valid) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "a name has 1 to {NAME_LEN_MAX} letters of a to z, digits, `-` or `_`, and begins with a letter or digit"
    ))
}

/// A description as one line. Cut at a limit, because every model call sends it.
pub(super) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// A required description.
pub(super) fn description(text: Option<&str>) -> Result<String, String> {
    match text.map(one_line).filter(|line| !line.is_empty()) {
        Some(line) => Ok(line),
        None => {
            Err("its front matter has no `description`, by which the model chooses it".to_owned())
        }
    }
}

/// Names in a list, or in a text with commas.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameList(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameListVisitor)
    }
}

struct NameListVisitor;

impl<'de> Visitor<'de> for NameListVisitor {
    type Value = NameList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names, or a text with names and commas")
    }

    fn visit_str<E>(self, text: &str) -> Result<NameList, E> {
        let names = text.split(',').map(|name| name.trim().to_owned());
        Ok(NameList(names.filter(|name| !name.is_empty()).collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NameList, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element::<String>()? {
            names.push(name);
        }
        Ok(NameList(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Values {
        description: Option<String>,
        other: Option<String>,
    }

    fn read(text: &str) -> Result<(Option<String>, String), String> {
        split::<Values>(text).map(|(values, body)| (values.description, body))
    }

    fn both(description: &str, body: &str) -> (Option<String>, String) {
        (Some(description.to_owned()), body.to_owned())
    }

    #[test]
    fn front_matter_is_optional_and_unknown_keys_are_ignored() {
        assert_eq!(read("just text\n"), Ok((None, "just text".to_owned())));
        assert_eq!(read("---\n---\nx"), Ok((None, "x".to_owned())));
        assert_eq!(
            read("---\ndescription: d\nallowed-tools: [a]\n---\n\nx\n---\ny"),
            Ok(both("d", "x\n---\ny"))
        );
        assert_eq!(
            read("\u{feff}---\r\ndescription: d\r\n---\r\nx\r\n"),
            Ok(both("d", "x"))
        );
        assert_eq!(
            read("---\ndescription: >\n  a\n  b\n---\nx"),
            Ok(both("a b\n", "x"))
        );
    }

    #[test]
    fn colon_in_a_text_without_quotes_is_accepted() {
        let text = "---\ndescription: Use when: it's red\nother: 'a: b'\n---\nx";
        assert_eq!(read(text), Ok(both("Use when: it's red", "x")));
    }

    #[test]
    fn aliases_cannot_multiply() {
        let mut yaml = "---\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            yaml.extend([
                "a",
                &level.to_string(),
                ": &a",
                &level.to_string(),
                " [",
                &below,
                "]\n",
            ]);
        }
        let error = read(&format!("{yaml}description: *a8\n---\nx")).unwrap_err();
        assert!(error.starts_with("its front matter is invalid"), "{error}");
    }

    #[test]
    fn description_is_one_bounded_line() {
        assert_eq!(one_line(" a\n\tb "), "a b");
        assert_eq!(
            one_line(&"é".repeat(2_000)).chars().count(),
            DESCRIPTION_CHARS_MAX + 1
        );
    }
}
