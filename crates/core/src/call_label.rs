//! One-line label of a tool call for people. The label describes the work of the call.

use std::sync::Arc;

use serde_json::Value;

use crate::message::Arguments;
use crate::terminal_text::{escape, is_unsafe};

/// Maximum length of a label, in characters: a line or two of a terminal.
pub const LABEL_CHARS_MAX: usize = 200;

/// Arguments that describe a call, in order: the most informative argument is first.
const LABEL_KEYS: [&str; 5] = ["command", "pattern", "path", "url", "prompt"];

/// Label of a call: the most informative of its arguments, such as the command line of a shell, the file of an edit, or
/// the prompt of an agent. `None` if the call has no such argument.
pub fn call_label(arguments: &Arguments) -> Option<Arc<str>> {
    let Arguments::Json(arguments) = arguments else {
        return None;
    };
    let mut texts = LABEL_KEYS
        .iter()
        .filter_map(|key| arguments.get(key)?.as_str());
    let label = one_line(texts.next()?);
    (!label.is_empty()).then(|| label.into())
}

/// Short description of a call: the tool and its most informative argument. The text is not escaped.
pub fn describe_call(name: &str, arguments: &Arguments) -> String {
    let value = match arguments {
        Arguments::Malformed(_) => return format!("{name} (its arguments are not JSON)"),
        Arguments::Json(value) => value,
    };
    let text_of = |key: &&str| value.get(key).and_then(Value::as_str);
    if let Some((key, text)) = LABEL_KEYS.iter().find_map(|key| Some((key, text_of(key)?))) {
        let text = text.trim();
        return match (*key, text_of(&"path")) {
            ("path", _) => format!("{name} {text}"),
            ("pattern", Some(path)) => format!("{name}: {text} in {}", path.trim()),
            _ => format!("{name}: {text}"),
        };
    }
    let Some(named) = value.as_object().filter(|named| !named.is_empty()) else {
        return name.to_owned();
    };
    let named = named.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key}={text}"),
        Value::Array(items) => format!("{key}=[{}]", items.len()),
        Value::Object(_) => format!("{key}={{…}}"),
        other => format!("{key}={other}"),
    });
    format!("{name} {}", named.collect::<Vec<_>>().join(", "))
}

/// One line of at most [`LABEL_CHARS_MAX`] characters, escaped for a terminal. Runs of white space, including line
/// ends, become single spaces.
fn one_line(text: &str) -> String {
    let mut label = String::new();
    for (at, word) in text.split_whitespace().enumerate() {
        if at > 0 {
            label.push(' ');
        }
        // Escaping never shortens a word, so the first `LABEL_CHARS_MAX` characters of a word are enough to fill the
        // label.
        let end = word.char_indices().nth(LABEL_CHARS_MAX);
        let start = end.map_or(word, |(end, _)| &word[..end]);
        label += &escape(start, is_unsafe);
        if let Some((end, _)) = label.char_indices().nth(LABEL_CHARS_MAX - 1) {
            label.truncate(end);
            label.push('…');
            return label;
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_is_one_short_line() {
        let label = |json| call_label(&Arguments::from(json)).map(|label| label.to_string());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            label(json!({ "command": "cargo  test\n\t--all" })),
            some("cargo test --all")
        );
        assert_eq!(
            label(json!({ "n": 1, "path": "src/lib.rs" })),
            some("src/lib.rs")
        );
        assert_eq!(label(json!({ "n": 1 })), None);
        assert_eq!(label(json!({ "command": 1, "prompt": "x" })), some("x"));
        assert_eq!(label(json!({ "command": " \n " })), None);
        let escaped = label(json!({ "command": "a\u{1b}[2Jb\u{202e}c" })).expect("a label");
        assert!(!escaped.contains(is_unsafe), "{escaped}");
        let long = label(json!({ "command": "é".repeat(10_000) })).expect("a label");
        assert_eq!(long.chars().count(), LABEL_CHARS_MAX);
        assert!(long.ends_with("é…"), "{long}");
        let exact = "é".repeat(LABEL_CHARS_MAX - 1);
        assert_eq!(label(json!({ "command": exact })), Some(exact));
        let malformed = Arguments::Malformed("{".into());
        assert_eq!(call_label(&malformed), None);
    }

    #[test]
    fn a_call_is_labelled_by_its_most_informative_argument() {
        let words = |json| describe_call("t", &Arguments::from(json));
        assert_eq!(words(json!({"command": "ls"})), "t: ls");
        assert_eq!(words(json!({"path": "f", "old": "x"})), "t f");
        let found = json!({"path": "src", "pattern": "fn main"});
        assert_eq!(words(found), "t: fn main in src");
        assert_eq!(words(json!({})), "t");
        let other = json!({"n": 1, "city": "Bonn", "a": [1, 2], "o": {"x": 1}});
        let shown = words(other);
        assert!(!shown.contains('"'), "{shown}");
        assert!(
            shown.contains("city=Bonn") && shown.contains("a=[2]"),
            "{shown}"
        );
        let malformed = describe_call("t", &Arguments::Malformed("{".into()));
        assert_eq!(malformed, "t (its arguments are not JSON)");
    }
}
