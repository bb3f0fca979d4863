//! Lone surrogates in JSON: halves of UTF-16 pairs. Python writes them for file names that are not UTF-8, and Rust
//! strings cannot contain them.

use std::borrow::Cow;

/// Returns the JSON text with each escaped lone surrogate replaced by the replacement character.
pub(super) fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let (mut clean, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        clean.push_str(before);
        let (taken, text) = match (code_of(escape), escape.get(6..).and_then(code_of)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, escape.get(..12)),
            (Some(0xD800..=0xDFFF), _) => (6, Some("\\ufffd")),
            // The escaped character may be a backslash. That backslash does not begin another escape, so both
            // characters are copied.
            _ => {
                let len = escape.chars().take(2).map(char::len_utf8).sum();
                (len, escape.get(..len))
            }
        };
        clean.push_str(text.unwrap_or_default());
        rest = escape.get(taken..).unwrap_or_default();
    }
    clean.push_str(rest);
    Cow::Owned(clean)
}

/// Returns the code of an escape such as `\\u00e9` at the beginning of the text.
fn code_of(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (json, clean) in [
            (r#""plain""#, r#""plain""#),
            (r#""file \udcff.txt""#, r#""file \ufffd.txt""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\udcff""#, r#""\\udcff""#),
            (r#""\uD83D""#, r#""\ufffd""#),
            (r#""é\é\udc""#, r#""é\é\udc""#),
            (r#""\"#, r#""\"#),
        ] {
            assert_eq!(without_lone_surrogates(json), clean, "{json}");
        }
    }
}
